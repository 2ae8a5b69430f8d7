package memstore

import (
	"context"

	"tributary/resource"
)

// Follow calls update with the state of r and then with each later one, until ctx ends; what r becomes while update runs is one change. If the
// update is incremental, keys are all that changed since the call before; else they do not tell. Synced is what r said before its
// state was read, which is then all that it speaks of.
func Follow(ctx context.Context, r Reader, update func(keys []resource.Key, now Snapshot, incremental, synced bool)) error {
	var since Revision
	for first := true; ; first = false {
		changed := r.Changed()
		synced := r.Synced()
		keys, now, ok := r.Changes(since)
		update(keys, now, ok && !first, synced)
		since = now.Revision()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
