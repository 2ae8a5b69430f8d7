package memstore

import (
	"context"

	"tributary/resource"
)

// Follow calls update with the state of r and then with each later one, until ctx ends; what r becomes while update runs is one change. If
// the update is incremental, keys are all that changed since the call before; else they do not tell. Synced is what r said before its state
// was read, which is then all that it speaks of. Beats are answered between updates; there may be none.
func Follow(ctx context.Context, r Reader, beats Beat, update func(keys []resource.Key, now Snapshot, incremental, synced bool)) error {
	var since Revision
	for first := true; ; first = false {
		changed := r.Changed()
		synced := r.Synced()
		keys, now, ok := r.Changes(since)
		update(keys, now, ok && !first, synced)
		since = now.Revision()
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

// Beat is what a loop answers each time that it comes round, so that one that hangs is noticed. A nil one is never answered.
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
