package consulkv

import (
	"maps"
	"slices"
	"time"

	"tributary/sources/consul/judge"
)

// memory is what is believed of a prefix, by which the next answer is judged. It does no I/O, and is not safe for concurrent
// use.
type memory struct {
	resetHold time.Duration

	known bool // there is something to compare with
	fresh bool // Consul was not read yet by this run
	index uint64
	keys  map[string]versions // that Consul had
	// held are the keys that stay although Consul does not have them, because it seems to have lost its data.
	held      map[string]bool
	suspicion judge.Suspicion
}

// versions are when a key was created and changed; 0 if that is not known.
type versions struct{ created, modified uint64 }

func newMemory(resetHold time.Duration) *memory {
	return &memory{resetHold: resetHold, fresh: true, keys: make(map[string]versions), held: make(map[string]bool)}
}

// recall takes over what an earlier run knew: the keys that it published, and what it kept.
func (m *memory) recall(published []string, record judge.Record) {
	m.known = len(published) > 0 || record.Index > 0
	m.index, m.suspicion = record.Index, record.Suspicion
	for _, key := range record.Held {
		m.held[key] = true
	}
	for _, key := range published {
		if !m.held[key] {
			m.keys[key] = versions{created: record.Made[key]}
		}
	}
}

// keptKeys is how many keys are kept of which it is known when they were created.
const keptKeys = 256

// record is what is to be kept for the next run.
func (m *memory) record() judge.Record {
	made := make(judge.Made)
	for _, key := range slices.Sorted(maps.Keys(m.keys))[:min(len(m.keys), keptKeys)] {
		made[key] = m.keys[key].created
	}
	return judge.Record{Index: m.index, Made: made, Held: slices.Sorted(maps.Keys(m.held)), Suspicion: m.suspicion}
}

// compare says how a listing differs from what is believed. What is held counts as missing once the suspicion is over.
func (m *memory) compare(l listing, outage bool, now time.Time) judge.Compared {
	c := judge.Compared{Known: m.known, Index: m.index, Before: len(m.keys), Now: len(l.pairs), Outage: outage || m.fresh}
	before, after := make(judge.Made, len(m.keys)), make(judge.Made, len(l.pairs))
	for _, pair := range l.pairs {
		after[pair.Key] = pair.CreateIndex
		c.Older = c.Older || pair.ModifyIndex < m.keys[pair.Key].modified
	}
	for key, was := range m.keys {
		before[key] = was.created
		if _, there := after[key]; !there {
			c.Missing++
		}
	}
	if !m.suspicion.Holds(now) {
		c.Missing, c.Before = c.Missing+len(m.held), c.Before+len(m.held)
	}
	before.Compare(after, m.index, &c)
	return c
}

// missing returns the keys that a listing does not have and that are not held anyway, in order.
func (m *memory) missing(l listing) []string {
	left := maps.Clone(m.keys)
	for _, pair := range l.pairs {
		delete(left, pair.Key)
	}
	return slices.Sorted(maps.Keys(left))
}

// take makes a listing what is believed, and completes it with what stays all the same.
func (m *memory) take(l *listing, c judge.Compared, now time.Time) {
	reset := judge.Reset(c, l.Answer)
	l.reset = reset || c.Known && l.Index < m.index
	if reset {
		if !m.suspicion.Holds(now) {
			m.suspicion = judge.Suspect(c, l.Answer, "keys", now.Add(m.resetHold))
			if l.Index < m.index && len(l.pairs) == 0 {
				m.suspicion.Until = time.Time{} // nobody has deleted them: that would have moved the index forward
			}
		}
		for _, key := range m.missing(*l) {
			m.held[key] = true
		}
	}
	switch {
	case m.suspicion.Why == "":
	case m.suspicion.Until.IsZero():
		if len(l.pairs) > 0 { // somebody begins to write them again
			m.suspicion.Until = now.Add(m.resetHold)
		}
	case !m.suspicion.Holds(now):
		m.suspicion, l.reset = judge.Suspicion{}, l.reset || len(m.held) > 0
		clear(m.held)
	}
	m.known, m.fresh, m.index = true, false, l.Index
	m.keys = make(map[string]versions, len(l.pairs))
	for _, pair := range l.pairs {
		m.keys[pair.Key] = versions{pair.CreateIndex, pair.ModifyIndex}
		delete(m.held, pair.Key)
	}
	l.held, l.suspicion = maps.Clone(m.held), m.suspicion
}

// wait is how long a query may wait for news: not beyond the end of a suspicion.
func (m *memory) wait(usual time.Duration, now time.Time) time.Duration {
	if m.suspicion.Until.IsZero() {
		return usual
	}
	return max(time.Second, min(usual, m.suspicion.Until.Sub(now)))
}
