// Package judge decides which presence and absence an answer of Consul proves, for services, instances, keys and
// providers alike. It does no I/O, and has no clock.
//
// An answer proves the presence of its items. It proves the absence of others only if it is confirmed: not blocking,
// and from a leader that made sure first that it leads, by Consul itself, with no hidden data. Even then a Consul that
// lost its data proves no absence: see Reset.
package judge

import (
	"encoding/json"
	"fmt"
	"time"

	"tributary/sources/presence"
)

// Answer is an answer without its items.
type Answer struct {
	Index uint64
	// Filtered says that Consul may hide data: its flag is set, or cannot be known, and no right to see the missing
	// items was shown.
	Filtered bool
	// Confirmed says that the query did not block, and that the leader made sure first that it leads. Only such an
	// answer proves absence. A watch is a stream of events that goes silent when its token is deleted; a stale read may
	// come from a server that just started, without data; and a leader that replays its log answers other queries from
	// a part of it.
	Confirmed bool
	// Leaderless says that the answer names no leader. Answers to watches never do. In a confirming answer it is a sign
	// that a proxy removed headers, and with them that of Filtered, or that another server answered.
	Leaderless bool
	// Late says that the server has not heard of its leader for too long: its data is of that age.
	Late bool
	// Anonymous says that no token was sent. Consul does not flag data that it hides from anonymous requests.
	Anonymous bool
	// Cluster is the identity of the cluster; empty if it was not read, or is unknown.
	Cluster string
}

// Compared is the difference between the items of an answer and the baseline: the last ones accepted.
type Compared struct {
	HasBaseline bool   // an answer of this run was accepted, or the Record of an earlier one has it
	Index       uint64 // index of the baseline; 0 if indexes cannot be compared
	Before      int    // number of items in the baseline
	Now         int    // number of items in the answer
	Missing     int    // number of items of the baseline that the answer lacks
	Older       bool   // an item is older than in the baseline
	Same        bool   // there is no difference

	Outage bool // Consul could not be read since the baseline
	// SameCreation and Recreated count the items of both by whether their CreateIndex is the same. Zero if it is
	// unknown.
	SameCreation, Recreated int
	// Rewritten says that an item has another CreateIndex, from before the baseline.
	Rewritten bool
	// OtherCluster says that another cluster answers, as a Consul without its data is.
	OtherCluster bool
	// OneByOne says that items do not go together. Services do not: the last instance leaves an empty service. Keys may
	// be deleted together.
	OneByOne bool
}

// Verdict is the meaning of an answer.
type Verdict int

// The verdicts of Judge.
const (
	// Unchanged: the answer has the items of the baseline.
	Unchanged Verdict = iota
	// Changed: the answer is the current state, including the absence of other items.
	Changed
	// Doubtful: items are missing, or may be older, and the answer cannot prove it. Send a confirming query.
	Doubtful
	// Partial: the listed items count. The missing ones may be hidden, and stay.
	Partial
	// Denied: all items may be hidden, and stay.
	Denied
	// Foreign: another server answered, or a proxy changed the answer. All items stay.
	Foreign
)

// The verdicts on the instances of a service that package consul derives from Unchanged and Changed.
const (
	// Emptied: the service certainly has no instances.
	Emptied = Foreign + 1 + iota
	// Absent: there is nothing to apply. The service already had no instances, or its earlier ones stay in a suspicion.
	Absent
	// Unconfirmed: instances are missing. A confirmed read of the names must show first that Consul kept its data.
	Unconfirmed
)

// Judge returns the verdict on an answer.
func Judge(compared Compared, answer Answer) Verdict {
	empty := compared.Now == 0
	doubtful := empty || compared.Missing > 0 || compared.Older || compared.back(answer)
	switch {
	case answer.Index == 0: // Consul gives every answer an index, and never 0
		return Foreign
	case (doubtful || answer.Late) && !answer.Confirmed:
		return Doubtful
	case doubtful && answer.Leaderless:
		return Foreign
	case answer.Filtered && empty:
		return Denied
	case answer.Filtered && compared.Missing > 0:
		return Partial
	case compared.HasBaseline && compared.Same:
		return Unchanged
	default:
		return Changed
	}
}

// back reports whether the index went backwards.
func (c Compared) back(a Answer) bool { return c.HasBaseline && a.Index < c.Index }

// Reset reports whether an accepted answer comes from a Consul that lost its data: then missing items prove no absence
// until its agents registered again.
func Reset(compared Compared, answer Answer) bool {
	several := compared.Missing > 1
	switch {
	case !compared.HasBaseline:
		return false
	case compared.OtherCluster:
		return true
	case compared.back(answer):
		// The index of keys also goes back when Consul forgets deletions, minutes after them. The remaining items
		// decide, unless some are missing: a program may create all of them again at the same indexes.
		return compared.Missing > 0 || compared.Recreated > 0 || compared.SameCreation == 0
	case compared.Rewritten:
		return true
	case several && compared.Now == 0 && (compared.OneByOne || compared.Outage):
		return true
	case several && compared.Outage && 2*compared.Missing > compared.Before:
		// The index alone proves little: it can overtake that of a young Consul. A single item may be the same by
		// chance.
		return compared.Recreated > 0 || compared.SameCreation < 2
	case compared.Missing > 0 && compared.Recreated > 0 && compared.SameCreation == 0:
		return true // all remaining items were created again
	default:
		return false
	}
}

// Why returns the message of a suspicion, in numbers.
func Why(c Compared, a Answer, items string) string {
	return fmt.Sprintf("Consul seems to have lost its data: it had %d %s at index %d, and has %d of them at index %d",
		c.Before, items, c.Index, max(0, c.Before-c.Missing), a.Index)
}

// IsOtherCluster reports whether the identity of the cluster changed; an empty one is unknown.
func IsOtherCluster(before, now string) bool { return before != "" && now != "" && before != now }

// CreateIndexes has the CreateIndex of items by name. An item that is changed keeps it; one that is deleted and created
// again has a higher one. So it distinguishes a Consul that went on from one that started without data.
type CreateIndexes map[string]uint64

// Compare adds to compared the comparison of items that both have; index is that of the earlier answer.
func (before CreateIndexes) Compare(now CreateIndexes, index uint64, compared *Compared) {
	for name, created := range before {
		current := now[name]
		switch {
		case created == 0 || current == 0:
		case current == created:
			compared.SameCreation++
		default:
			compared.Recreated++
			compared.Rewritten = compared.Rewritten || index > 0 && current <= index
		}
	}
}

// Record is the state that outlives a run and the process, so that the first answer after it is judged like any other:
// without it, a restart would take items that a Consul without its data lacks for deleted.
type Record struct {
	Index   uint64 `json:"index"`             // index of the last accepted answer
	Cluster string `json:"cluster,omitempty"` // identity of the cluster that gave it; empty if unknown
	// Names are the names of the items. CreateIndexes has the indexes of some items, or of their nodes.
	Names         []string      `json:"names,omitempty"`
	CreateIndexes CreateIndexes `json:"made,omitempty"`
	// Held are the names of the items that stay although Consul lacks them, because of the suspicion.
	Held []string `json:"held,omitempty"`
	presence.Suspicion
}

// Records are the records of the scopes of a source, by name.
type Records struct {
	// Settings identifies the settings that select the items. With others, only suspicions and held items count.
	Settings string            `json:"of"`
	Scopes   map[string]Record `json:"parts"`
}

// Encode returns the stored form of the records.
func (r Records) Encode() []byte {
	text, err := json.Marshal(r)
	if err != nil { // of plain data
		panic(err)
	}
	return text
}

// Decode decodes records for a source with these settings; no text stands for no records. No suspicion lasts longer
// than hold from now: the clock may have been wrong when it was stored, or the setting another one.
func Decode(text []byte, settings string, now time.Time, hold time.Duration) (Records, error) {
	records := Records{Settings: settings, Scopes: make(map[string]Record)}
	if len(text) == 0 {
		return records, nil
	}
	var stored Records
	if err := json.Unmarshal(text, &stored); err != nil {
		return records, fmt.Errorf("the record of an earlier run: %w", err)
	}
	for name, record := range stored.Scopes {
		if stored.Settings != settings {
			record = Record{Held: record.Held, Suspicion: record.Suspicion}
		}
		record.Suspicion = record.Restored(now, hold)
		records.Scopes[name] = record
	}
	return records, nil
}
