package consulkv

import (
	"slices"
	"time"

	"tributary/sources/consul/judge"
)

// memory is what is believed of a prefix, by which the next answer is judged. It does no I/O, and is not safe for
// concurrent use.
type memory struct {
	resetHold time.Duration

	known     bool // there is something to compare with
	fresh     bool // Consul was not read yet by this run
	index     uint64
	keys      map[string]belief
	suspicion judge.Suspicion
}

// belief is what is believed of a key.
type belief struct {
	// created and modified are when it was; 0 if that is not known.
	created, modified uint64
	// held says that it stays although Consul does not have it, because it seems to have lost its data.
	held bool
}

func newMemory(resetHold time.Duration) *memory {
	return &memory{resetHold: resetHold, fresh: true, keys: make(map[string]belief)}
}

// recall takes over what an earlier run knew: the keys that it published, and what it kept.
func (m *memory) recall(published []string, record judge.Record) {
	m.known = len(published) > 0 || record.Index > 0
	m.index, m.suspicion = record.Index, record.Suspicion
	for _, key := range published {
		m.keys[key] = belief{created: record.CreateIndexes[key]}
	}
	for _, key := range record.Held {
		m.keys[key] = belief{held: true}
	}
}

// record is what is to be kept for the next run.
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

// compare says how a listing differs from what is believed, and returns the keys that it lacks, in order. One that is
// held is lacking once the suspicion is over.
func (m *memory) compare(l listing, outage bool) (c judge.Compared, missing []string) {
	c = judge.Compared{HasBaseline: m.known, Index: m.index, Now: len(l.pairs), Outage: outage || m.fresh}
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
		if _, there := after[key]; !there {
			missing = append(missing, key)
		}
	}
	slices.Sort(missing)
	c.Missing = len(missing)
	before.Compare(after, m.index, &c)
	return c, missing
}

// take makes a listing what is believed, given how it differs from that, and completes it with what stays all the same.
func (m *memory) take(l *listing, c judge.Compared, missing []string) {
	now := l.read // as when it was compared: what is held must not go between the two
	reset := judge.Reset(c, l.Answer)
	l.reset = reset || c.HasBaseline && l.Index < m.index
	switch {
	case reset: // however often: each time all that there was has to come back
		m.suspicion = judge.Suspicion{Until: now.Add(m.resetHold), Why: judge.Why(c, l.Answer, "keys")}
		if l.Index < m.index && len(l.pairs) == 0 {
			m.suspicion.Until = time.Time{} // nobody has deleted them: that would have moved the index forward
		}
	case m.suspicion.Why == "":
	case m.suspicion.Until.IsZero():
		if len(l.pairs) > 0 { // somebody begins to write them again
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
	m.known, m.fresh, m.index = true, false, l.Index
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

// wait is how long a query may wait for news: not beyond the end of a suspicion.
func (m *memory) wait(usual time.Duration, now time.Time) time.Duration {
	if m.suspicion.Until.IsZero() {
		return usual
	}
	return max(time.Second, min(usual, m.suspicion.Until.Sub(now)))
}
