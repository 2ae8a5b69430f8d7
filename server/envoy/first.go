package envoy

import (
	"context"
	"sync"

	"google.golang.org/grpc/status"

	"tributary/memstore"
)

// Run waits for the first client, since the mesh takes memory, and then follows the view until ctx ends.
func (c *Catalog) Run(ctx context.Context) error {
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.beats:
		case <-c.wanted.given:
			waiting = false
		}
	}
	return memstore.Follow(ctx, c.view, c.beats, c.update)
}

// awaitMesh returns when the mesh has a view, or with the error of ctx.
func (c *Catalog) awaitMesh(ctx context.Context) error {
	c.wanted.give()
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-c.made.given:
		return nil
	}
}

// signal is given once.
type signal struct {
	given chan struct{}
	give  func()
}

func newSignal() signal {
	given := make(chan struct{})
	return signal{given, sync.OnceFunc(func() { close(given) })}
}

func (s signal) isGiven() bool {
	select {
	case <-s.given:
		return true
	default:
		return false
	}
}
