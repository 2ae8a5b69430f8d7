package memstore

import (
	"slices"
	"sort"

	"tributary/resource"
)

// minLog is the least number of changes in a log. The log of a larger store has a quarter of its size: a snapshot
// serves readers better that are further behind.
const minLog = 4096

// change is a key of a commit.
type change struct {
	revision Revision
	key      resource.Key
}

// changeLog has the changed keys, oldest first. Values share memory: a copy never changes, since entries are only
// written past the end of all copies.
type changeLog struct {
	entries []change
	floor   Revision // every change after this one is in entries
}

// append adds the keys of one commit to a log of a store that now holds size resources.
func (l *changeLog) append(revision Revision, changes []Change, size int) {
	limit := max(minLog, size/4)
	if len(changes) > limit {
		*l = changeLog{floor: revision}
		return
	}
	if len(l.entries)+len(changes) > limit {
		l.shrink(limit - len(changes))
	}
	for _, c := range changes {
		l.entries = append(l.entries, change{revision, c.Key()})
	}
}

// shrink makes room: it keeps the latest change of each key, so that a busy key does not displace the others, and then
// removes the oldest. It leaves at most half of limit, so that its cost for each append is constant.
func (l *changeLog) shrink(limit int) {
	seen := make(map[resource.Key]struct{}, len(l.entries))
	latest := make([]change, 0, limit)
	for _, change := range slices.Backward(l.entries) {
		if _, ok := seen[change.key]; ok {
			continue
		}
		if len(latest) == limit/2 {
			l.floor = change.revision
			break
		}
		seen[change.key] = struct{}{}
		latest = append(latest, change)
	}
	slices.Reverse(latest)
	l.entries = latest
}

// keysSince returns the keys changed after revision, each once, or false if the log does not reach back that far.
func (l *changeLog) keysSince(revision Revision) ([]resource.Key, bool) {
	if revision < l.floor {
		return nil, false
	}
	tail := l.entries[sort.Search(len(l.entries), func(i int) bool { return l.entries[i].revision > revision }):]
	if len(tail) == 0 {
		return nil, true
	}
	keys := make([]resource.Key, 0, len(tail))
	if tail[0].revision == tail[len(tail)-1].revision { // one commit, which has each key once
		for _, c := range tail {
			keys = append(keys, c.key)
		}
		return keys, true
	}
	seen := make(map[resource.Key]struct{}, len(tail))
	for _, change := range tail {
		if _, ok := seen[change.key]; !ok {
			seen[change.key] = struct{}{}
			keys = append(keys, change.key)
		}
	}
	return keys, true
}
