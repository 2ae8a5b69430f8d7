package memstore

import (
	"context"
	"iter"

	"tributary/resource"
)

// Change is the change of one key by a commit: Old is nil if it was added, New is nil if it was deleted. If both are
// resource.Equal, only the origin or the creation time changed.
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

// ChangesFrom yields the changes since seen, an earlier snapshot of r, and returns the present one.
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

// Diff yields the changes from a to b in key order, in O(len(a) + len(b)), for followers that are too far behind the
// change log.
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
			var change Change
			if order <= 0 {
				change.Old = before
				before, moreOld = nextOld()
			}
			if order >= 0 {
				change.New = after
				after, moreNew = nextNew()
			}
			if change.Old != change.New && !yield(change) {
				return
			}
		}
	}
}

// Follow calls update with the state of reader and then with each later one, until ctx ends. The changes while update
// runs are one update. If the update is incremental, keys are the changed keys since the last call; else they have no
// meaning. Synced is read before the state, so that a synced state is complete. Beats are answered between updates;
// there may be none.
func Follow(ctx context.Context, reader Reader, beats Beat,
	update func(keys []resource.Key, now Snapshot, incremental, synced bool),
) error {
	var revision Revision
	for first := true; ; first = false {
		changed := reader.Changed()
		synced := reader.Synced()
		keys, now, ok := reader.Changes(revision)
		update(keys, now, ok && !first, synced)
		revision = now.Revision()
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-beats:
			case <-changed:
				waiting = false
			}
		}
	}
}

// Beat is a heartbeat: a loop answers it in each round, so that a hanging loop is noticed. A nil Beat is never
// answered.
type Beat chan struct{}

// Await returns when the loop has answered, or with ctx's error.
func (b Beat) Await(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case b <- struct{}{}:
		return nil
	}
}
