// Package recent remembers when the latest revisions of something came about, so that it can be said how long a change has been
// on its way. It is a package of its own since memstore and server/xds, which do not know each other, use it.
package recent

import (
	"slices"
	"sort"
	"time"
)

// limit is how many revisions are remembered at least. Who is further behind than that does not follow changes, but begins anew.
const limit = 1024

// Log is the times of the latest revisions, which count upwards. Values share memory: a copy stays as it is while the original
// goes on, of which there is one.
type Log struct{ entries []entry }

type entry struct {
	revision uint64
	at       time.Time
}

// With returns the log with the next revision. A revision whose time is not known is one that is not remembered, nor is what
// came before it.
func (l Log) With(revision uint64, at time.Time) Log {
	if at.IsZero() {
		return Log{}
	}
	if len(l.entries) == 2*limit {
		l.entries = slices.Clone(l.entries[limit:])
	}
	return Log{append(l.entries, entry{revision, at})}
}

// After returns the earliest time of the revisions after since, or zero if one of them is not remembered.
func (l Log) After(since uint64) (earliest time.Time) {
	i := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].revision > since })
	if i == len(l.entries) || l.entries[i].revision != since+1 {
		return time.Time{}
	}
	for _, e := range l.entries[i:] {
		earliest = Earlier(earliest, e.at)
	}
	return earliest
}

// Earlier returns the earlier of two times, of which one that is zero is not known.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
