package consulkv

import (
	"slices"
	"time"

	"tributary/sources/consul/judge"
)

// memory is the trusted state of a prefix. It judges the next answer. It does no I/O, and is not safe for concurrent
// use.
type memory struct {
	resetHold time.Duration

	hasState    bool // it has a state to compare with
	isFirstRead bool // this run has no answer of Consul yet
	index       uint64
	keys        map[string]belief
	suspicion   judge.Suspicion
}

// belief is the trusted state of a key.
type belief struct {
	// created and modified are indexes of Consul; 0 if unknown.
	created, modified uint64
	// held says that it stays although Consul lacks it, since Consul seems to have lost its data.
	held bool
}

func newMemory(resetHold time.Duration) *memory {
	return &memory{resetHold: resetHold, isFirstRead: true, keys: make(map[string]belief)}
}

// recall restores the published keys and the note of an earlier run.
func (m *memory) recall(published []string, record judge.Record) {
	m.hasState = len(published) > 0 || record.Index > 0
	m.index, m.suspicion = record.Index, record.Suspicion
	for _, key := range published {
		m.keys[key] = belief{created: record.CreateIndexes[key]}
	}
	for _, key := range record.Held {
		m.keys[key] = belief{held: true}
	}
}

// record returns the note for the next run.
func (m *memory) record() judge.Record {
	r := judge.Record{Index: m.index, CreateIndexes: make(judge.CreateIndexes, len(m.keys)), Suspicion: m.suspicion}
	for key, b := range m.keys {
		if b.held {
			r.Held = append(r.Held, key)
		} else {
			r.CreateIndexes[key] = b.created
		}
	}
	slices.Sort(r.Held)
	return r
}

// compare compares a listing with the trusted state, and returns the missing keys in order. A held key is missing once
// the suspicion is over.
func (m *memory) compare(l listing, outage bool) (c judge.Compared, missing []string) {
	c = judge.Compared{HasBaseline: m.hasState, Index: m.index, Now: len(l.pairs), Outage: outage || m.isFirstRead}
	before, after := make(judge.CreateIndexes, len(m.keys)), make(judge.CreateIndexes, len(l.pairs))
	for _, pair := range l.pairs {
		after[pair.Key] = pair.CreateIndex
		c.Older = c.Older || pair.ModifyIndex < m.keys[pair.Key].modified
	}
	holding := m.suspicion.Holds(l.read)
	for key, b := range m.keys {
		if b.held && holding {
			continue
		}
		c.Before++
		before[key] = b.created
		if _, exists := after[key]; !exists {
			missing = append(missing, key)
		}
	}
	slices.Sort(missing)
	c.Missing = len(missing)
	before.Compare(after, m.index, &c)
	return c, missing
}

// take makes a listing the trusted state, given the result of compare, and adds held keys to it.
func (m *memory) take(l *listing, c judge.Compared, missing []string) {
	now := l.read // the time of compare: no hold may end between the two
	reset := judge.Reset(c, l.Answer)
	l.reset = reset || c.HasBaseline && l.Index < m.index
	switch {
	case reset: // each reset begins the hold again: all keys may come back
		m.suspicion = judge.Suspicion{Until: now.Add(m.resetHold), Why: judge.Why(c, l.Answer, "keys")}
		if l.Index < m.index && len(l.pairs) == 0 {
			m.suspicion.Until = time.Time{} // they were not deleted: that would have moved the index forward
		}
	case m.suspicion.Why == "":
	case m.suspicion.Until.IsZero():
		if len(l.pairs) > 0 { // the keys are being written again
			m.suspicion.Until = now.Add(m.resetHold)
		}
	case !m.suspicion.Holds(now):
		m.suspicion = judge.Suspicion{}
	}
	holding := m.suspicion.Holds(now)
	l.held = make(map[string]bool)
	for key, b := range m.keys {
		if b.held && holding {
			l.held[key] = true
		}
		l.reset = l.reset || b.held && !holding
	}
	if reset {
		for _, key := range missing {
			l.held[key] = true
		}
	}
	m.hasState, m.isFirstRead, m.index = true, false, l.Index
	m.keys = make(map[string]belief, len(l.pairs)+len(l.held))
	for _, pair := range l.pairs {
		m.keys[pair.Key] = belief{created: pair.CreateIndex, modified: pair.ModifyIndex}
		delete(l.held, pair.Key)
	}
	for key := range l.held {
		m.keys[key] = belief{held: true}
	}
	l.suspicion = m.suspicion
}

// wait returns the wait of a query: not beyond the end of a suspicion.
func (m *memory) wait(usual time.Duration, now time.Time) time.Duration {
	if m.suspicion.Until.IsZero() {
		return usual
	}
	return max(time.Second, min(usual, m.suspicion.Until.Sub(now)))
}
