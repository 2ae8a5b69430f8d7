package consulkv

import (
	"maps"
	"slices"
	"time"

	"tributary/sources/consul/judge"
	"tributary/sources/presence"
)

// memory is the trusted state of a prefix. It judges the next answer. It does no I/O, and is not safe for concurrent
// use.
type memory struct {
	resetHold time.Duration

	hasBaseline bool // there is a state to compare answers with
	isFirstRead bool // this run has no answer of Consul yet
	index       uint64
	keys        presence.Set[indexes]
	suspicion   presence.Suspicion // Consul seems to have lost its data, and with it the held keys
}

// indexes are those of a key in Consul; 0 if unknown.
type indexes struct{ created, modified uint64 }

func newMemory(resetHold time.Duration) *memory {
	return &memory{resetHold: resetHold, isFirstRead: true, keys: make(presence.Set[indexes])}
}

// recall restores the published keys and the note of an earlier run.
func (m *memory) recall(published []string, record judge.Record) {
	m.hasBaseline = len(published) > 0 || record.Index > 0
	m.index = record.Index
	m.suspicion = record.Suspicion
	for _, key := range published {
		m.keys.Put(key, indexes{created: record.CreateIndexes[key]})
	}
	m.keys.Hold(record.Held...)
	if away := m.suspicion.Away; !away.IsZero() { // the hold begins when the first key is written again
		m.suspicion.End = away.Add(m.resetHold)
	}
}

// record returns the note for the next run.
func (m *memory) record() judge.Record {
	created := make(judge.CreateIndexes, len(m.keys))
	for key, entry := range m.keys {
		if !entry.Held {
			created[key] = entry.Value.created
		}
	}
	return judge.Record{Index: m.index, CreateIndexes: created, Held: m.keys.Held(), Suspicion: m.suspicion}
}

// compare compares a listing with the trusted state, and returns the missing keys in order. A held key is missing once
// the suspicion is over.
func (m *memory) compare(listing listing, outage bool) (compared judge.Compared, missing []string) {
	compared = judge.Compared{
		HasBaseline: m.hasBaseline, Index: m.index, Now: len(listing.pairs), Outage: outage || m.isFirstRead,
	}
	before := make(judge.CreateIndexes, len(m.keys))
	after := make(judge.CreateIndexes, len(listing.pairs))
	for _, pair := range listing.pairs {
		after[pair.Key] = pair.CreateIndex
		compared.Older = compared.Older || pair.ModifyIndex < m.keys[pair.Key].Value.modified
	}
	holds := m.suspicion.Holds(listing.read)
	for key, entry := range m.keys {
		if entry.Held && holds {
			continue
		}
		before[key] = entry.Value.created
		if _, exists := after[key]; !exists {
			missing = append(missing, key)
		}
	}
	slices.Sort(missing)
	compared.Before = len(before)
	compared.Missing = len(missing)
	before.Compare(after, m.index, &compared)
	return compared, missing
}

// apply makes a listing the trusted state. compared is the result of compare.
func (m *memory) apply(listing listing, compared judge.Compared) {
	now := listing.read // the time of compare: no hold may end between the two
	reset := judge.Reset(compared, listing.Answer)
	wentBack := compared.HasBaseline && listing.Index < m.index
	if reset { // each reset begins the hold again: all keys may come back
		m.keys.Hold(slices.Collect(maps.Keys(m.keys))...)
		m.suspicion = presence.Suspect(now, m.resetHold, judge.Why(compared, listing.Answer, "keys"))
	}
	if len(listing.pairs) > 0 { // the keys are being written again
		m.suspicion = m.suspicion.Return(now)
	} else if reset && wentBack { // they were not deleted: that would have moved the index forward
		m.suspicion = m.suspicion.Leave(now)
	}
	listed := make(map[string]indexes, len(listing.pairs))
	for _, pair := range listing.pairs {
		listed[pair.Key] = indexes{pair.CreateIndex, pair.ModifyIndex}
	}
	m.suspicion = m.suspicion.Expire(now)
	m.keys.Fold(listed, m.suspicion.Holds(now))
	m.hasBaseline = true
	m.isFirstRead = false
	m.index = listing.Index
}

// wait returns the wait of a query: not beyond the end of a suspicion.
func (m *memory) wait(usual time.Duration, now time.Time) time.Duration {
	if end := m.suspicion.Next(); !end.IsZero() {
		return max(time.Second, min(usual, end.Sub(now)))
	}
	return usual
}
