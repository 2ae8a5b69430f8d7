// Package recent remembers the times of the latest revisions, for metrics of the delay of a change. memstore and
// server/xds use it.
package recent

import (
	"slices"
	"sort"
	"time"
)

// limit is the least number of revisions that a Log remembers. A reader that is further behind starts again.
const limit = 1024

// Log is the times of the latest revisions, which count upwards. A copy stays as it is when Append extends the
// original. Only the newest Log may be extended, since Logs share memory.
type Log struct{ entries []entry }

type entry struct {
	revision uint64
	created  time.Time
}

// Append returns the log with the next revision. A zero time makes it forget the revision and all before.
func (l Log) Append(revision uint64, created time.Time) Log {
	if created.IsZero() {
		return Log{}
	}
	if len(l.entries) == 2*limit {
		l.entries = slices.Clone(l.entries[limit:])
	}
	return Log{append(l.entries, entry{revision, created})}
}

// After returns the earliest time of the revisions after a revision, or zero if the log lacks one of them.
func (l Log) After(revision uint64) (earliest time.Time) {
	first := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].revision > revision })
	if first == len(l.entries) || l.entries[first].revision != revision+1 {
		return time.Time{}
	}
	for _, e := range l.entries[first:] {
		earliest = Earlier(earliest, e.created)
	}
	return earliest
}

// Earlier returns the earlier of two times. A zero time is unknown and loses.
func Earlier(first, second time.Time) time.Time {
	if first.IsZero() || !second.IsZero() && second.Before(first) {
		return second
	}
	return first
}
