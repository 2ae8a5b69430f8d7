package relay

import (
	"context"
	"slices"
	"time"

	"tributary/resource"
	"tributary/sources"
)

// invalid returns the security objects of which a source has no valid version, in order.
func (r *Relay) invalid() []resource.Key {
	return slices.DeleteFunc(r.supervisor.Invalid(), func(key resource.Key) bool { return !slices.Contains(resource.SecurityKinds, key.Kind) })
}

// viewTime is how long the view takes to have what a source published, at most.
const viewTime = time.Second

// followInvalid has Envoys follow what sources have in quarantine, which may change without a change of the view.
func (r *Relay) followInvalid(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-r.quarantine:
			if event == sources.EventQuarantineEnd { // until the view has the valid object, the invalid one counts
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(viewTime):
				}
			}
		}
		for _, one := range r.catalogs.ofEnvoys() {
			one.Recheck()
		}
	}
}
