package relay

import "context"

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
