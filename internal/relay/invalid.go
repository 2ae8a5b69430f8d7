package relay

import (
	"context"
	"slices"

	"tributary/resource"
)

// invalid returns the security objects of which a source has no valid version, in order.
func (r *Relay) invalid() []resource.Key {
	return slices.DeleteFunc(r.supervisor.Invalid(), func(key resource.Key) bool { return !slices.Contains(resource.SecurityKinds, key.Kind) })
}

// followInvalid has Envoys follow what sources have in quarantine, which may change without a change of the view.
func (r *Relay) followInvalid(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.quarantine:
		}
		for _, one := range r.catalogs.ofEnvoys() {
			one.Recheck()
		}
	}
}
