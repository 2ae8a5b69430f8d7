// Package judge decides what an answer of Consul proves about what is there and what is not. It does no I/O and has no clock
// of its own, and it does not know what things are: services, instances, keys and providers are all judged alike.
//
// What an answer lists is believed. What it does not list is believed only of an answer that can vouch for it: one to a plain
// question, which the leader answered after it had made sure that it still is one, by Consul itself, and with nothing
// hidden. Even then a Consul that has lost its data proves nothing about what was there before: see Reset and Suspicion.
package judge

import (
	"encoding/json"
	"fmt"
	"time"
)

// Answer is what is known of an answer besides what it lists.
type Answer struct {
	Index uint64
	// Filtered says that something may be hidden from us: Consul says so, or it cannot be known, and nobody has told that we
	// have the right to see what is missing.
	Filtered bool
	// Confirming says that the question was plain: not blocking, and answered by the leader after it had made sure that it
	// still is one. Only such an answer can vouch for what is not there. A watch is served by a stream of events, which goes silent
	// without a word when a token is deleted; a stale read by a server that may have just started, with nothing loaded
	// yet; and a leader that is still replaying its log answers all but consistent questions from a part of it.
	Confirming bool
	// Leaderless says that the answer does not name a leader. Those to a watch never do. In a confirming answer it is a sign that
	// something between us took headers away, and with them that of Filtered, or that Consul did not answer at all.
	Leaderless bool
	// Late says that the server that answered has heard nothing of its leader for longer than it may: what it says was so then.
	Late bool
}

// Compared is how what an answer lists differs from what was believed before.
type Compared struct {
	Known  bool   // something was believed before: by this run, or by an earlier one that left a Record
	Index  uint64 // of the answer that was believed last; 0 if indexes cannot be compared
	Before int    // how many things there were
	Now    int    // how many the answer lists
	// Missing is how many of those there were it does not list.
	Missing int
	// Older says that something it lists is as it was before what was believed.
	Older bool
	// Same says that there is no difference.
	Same bool

	// Outage says that Consul could not be read since then.
	Outage bool
	// Kept and Remade are how many of the things that are listed as before were created when they were then, and how many
	// at another time (CreateIndex). Zero where it is not known.
	Kept, Remade int
	// Rewritten says that one of them was created before the index believed last, and yet not when we saw that it was.
	Rewritten bool
	// Other says that what answers is another cluster than the one that was believed, as a Consul without its data is.
	Other bool
	// OneByOne says that such things do not go at the same moment. Services do not: one that goes leaves an empty list
	// behind. Keys may be deleted together.
	OneByOne bool
}

// Verdict is what an answer means.
type Verdict int

// The verdicts.
const (
	// Same: there is nothing to do.
	Same Verdict = iota
	// Believe: the answer is the state of things, including what is not in it.
	Believe
	// Doubt: something is missing, or may be older, and the answer cannot vouch for that. Ask plainly.
	Doubt
	// Partial: what is listed is to be believed. What is missing may be hidden from us, and stays.
	Partial
	// Denied: there may be something, but we may not see it. What is known stays.
	Denied
	// Foreign: what answered is not Consul, or something in front of it changes its answers. What is known stays.
	Foreign
)

// Judge decides what an answer means.
func Judge(c Compared, a Answer) Verdict {
	none := c.Now == 0
	doubtful := none || c.Missing > 0 || c.Older || c.back(a)
	switch {
	case a.Index == 0: // Consul gives every answer an index, and never 0
		return Foreign
	case (doubtful || a.Late) && !a.Confirming:
		return Doubt
	case doubtful && a.Leaderless:
		return Foreign
	case a.Filtered && none:
		return Denied
	case a.Filtered && c.Missing > 0:
		return Partial
	case c.Known && c.Same:
		return Same
	default:
		return Believe
	}
}

// back reports whether the index went backwards.
func (c Compared) back(a Answer) bool { return c.Known && a.Index < c.Index }

// Reset reports whether an answer that is believed is of a Consul that lost its data: then what is missing means nothing until
// it has been told everything again.
func Reset(c Compared, a Answer) bool {
	several := c.Missing > 1
	switch {
	case !c.Known:
		return false
	case c.Other:
		return true
	case c.back(a):
		// That of keys also goes back when Consul forgets deletions, minutes after they were seen. What is left tells, unless something
		// is missing: a program that sets up all anew may well do so at the same indexes as before.
		return c.Missing > 0 || c.Remade > 0 || c.Kept == 0
	case c.Rewritten:
		return true
	case several && c.Now == 0 && (c.OneByOne || c.Outage):
		return true
	case several && c.Outage && 2*c.Missing > c.Before:
		// The index alone does not tell: that of a Consul that was young can be overtaken. One thing that is as it was may be so by chance.
		return c.Remade > 0 || c.Kept < 2
	case c.Missing > 0 && c.Remade > 0 && c.Kept == 0:
		return true // all that is left was made anew
	default:
		return false
	}
}

// Suspicion is that Consul lost its data, and that what is missing means nothing for now. The zero value is none.
type Suspicion struct {
	// Until is when it ends; zero if it lasts until something happens.
	Until time.Time `json:"until,omitzero"`
	// Why is for people.
	Why string `json:"why,omitempty"`
}

// Why tells people in numbers why data seems to be lost.
func Why(c Compared, a Answer, what string) string {
	return fmt.Sprintf("Consul seems to have lost its data: it had %d %s at index %d, and has %d of them at index %d",
		c.Before, what, c.Index, max(0, c.Before-c.Missing), a.Index)
}

// Holds reports whether it lasts.
func (s Suspicion) Holds(now time.Time) bool {
	return s.Why != "" && (s.Until.IsZero() || now.Before(s.Until))
}

// Other reports whether what is now is another cluster than what was before; empty is what is not known.
func Other(before, now string) bool { return before != "" && now != "" && before != now }

// Made says when things were created: CreateIndex by name. A thing that is changed keeps it; one that is deleted and made
// again has a new one, higher than all indexes before. So it tells a Consul that went on from one that began anew.
type Made map[string]uint64

// Compare adds to c how those of now that were there before were created; index is that of the answer believed then.
func (m Made) Compare(now Made, index uint64, c *Compared) {
	for name, was := range m {
		is, there := now[name]
		switch {
		case !there || was == 0 || is == 0:
		case is == was:
			c.Kept++
		default:
			c.Remade++
			c.Rewritten = c.Rewritten || index > 0 && is <= index
		}
	}
}

// Record is what has to outlive a run, and the process, to judge the first answer after it as any other: without it
// a restart would take what a Consul that lost its data does not list yet for gone.
type Record struct {
	Index   uint64 `json:"index"`             // of the answer that was believed last
	Cluster string `json:"cluster,omitempty"` // that gave it, if it is known
	// Names are those of the things that there were, and Made when some of them, or of what they are on, were created.
	Names []string `json:"names,omitempty"`
	Made  Made     `json:"made,omitempty"`
	// Held are the names of what stays although Consul does not list it, because of the suspicion.
	Held []string `json:"held,omitempty"`
	Suspicion
}

// Records are those of the parts of Consul that a source reads, by name, and of what they were read.
type Records struct {
	// Of names the settings that select what is read. Indexes and names of others cannot be compared; suspicions, and what is held
	// because of them, can.
	Of    string            `json:"of"`
	Parts map[string]Record `json:"parts"`
}

// Encode returns the records as they are kept.
func (r Records) Encode() []byte {
	text, err := json.Marshal(r)
	if err != nil { // of plain data
		panic(err)
	}
	return text
}

// Decode reads what Encode wrote, for a source whose settings are named of. What cannot be read is as if it had not been kept. No
// suspicion lasts longer than for hold from now: the clock may have been wrong when it was kept, or hold another.
func Decode(text []byte, of string, now time.Time, hold time.Duration) (Records, error) {
	fresh := Records{Of: of, Parts: make(map[string]Record)}
	if len(text) == 0 {
		return fresh, nil
	}
	var kept Records
	if err := json.Unmarshal(text, &kept); err != nil {
		return fresh, fmt.Errorf("what was kept of an earlier run: %w", err)
	}
	for name, part := range kept.Parts {
		if kept.Of != of {
			part = Record{Held: part.Held, Suspicion: part.Suspicion}
		}
		if !part.Until.IsZero() {
			part.Until = now.Add(min(hold, part.Until.Sub(now))) // from here on it does not follow a clock that is set
		}
		fresh.Parts[name] = part
	}
	return fresh, nil
}
