package memstore

import (
	"iter"

	"tributary/resource"
)

// Change is what a commit did to one key: Old is nil if it was added, New is nil if it was deleted. If both are there
// and resource.Equal, only the origin or the creation time changed.
type Change struct {
	Old, New *resource.Resource
}

// Key returns the key that changed.
func (c Change) Key() resource.Key {
	if c.New != nil {
		return c.New.Key()
	}
	return c.Old.Key()
}

// Event names the change.
func (c Change) Event() Event {
	switch {
	case c.Old == nil:
		return Added
	case c.New == nil:
		return Deleted
	default:
		return Updated
	}
}

// ChangesFrom yields what changed since seen, an earlier snapshot of r, and returns the present one.
func ChangesFrom(r Reader, seen Snapshot) (iter.Seq[Change], Snapshot) {
	keys, now, ok := r.Changes(seen.Revision())
	if !ok {
		return Diff(seen, now), now
	}
	return func(yield func(Change) bool) {
		for _, key := range keys {
			if c := (Change{Old: seen.Get(key), New: now.Get(key)}); c.Old != c.New && !yield(c) {
				return
			}
		}
	}, now
}

// Diff yields what changed from a to b in key order, in O(len(a) + len(b)). It is what a follower uses that has fallen
// too far behind the change log.
func Diff(a, b Snapshot) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		nextOld, stopOld := iter.Pull(a.All())
		defer stopOld()
		nextNew, stopNew := iter.Pull(b.All())
		defer stopNew()
		before, moreOld := nextOld()
		after, moreNew := nextNew()
		for moreOld || moreNew {
			var order int
			switch {
			case !moreOld:
				order = +1
			case !moreNew:
				order = -1
			default:
				order = before.Key().Compare(after.Key())
			}
			var c Change
			if order <= 0 {
				c.Old = before
				before, moreOld = nextOld()
			}
			if order >= 0 {
				c.New = after
				after, moreNew = nextNew()
			}
			if c.Old != c.New && !yield(c) {
				return
			}
		}
	}
}
