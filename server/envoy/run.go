package envoy

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"tributary/memstore"
)

const (
	// returnTime is the time after the start in which clients of an earlier process return. If the first client comes in
	// it, the first scope begins with the content from the disk.
	returnTime = 2 * time.Minute
	// firstScopeTime limits the wait for that scope.
	firstScopeTime = 2 * time.Second
)

// Run waits for the first client, since the mesh takes memory, and then follows the view until ctx ends. If the view
// has changed since it was first complete, the first scope starts with that content, which comes from the disk after a
// restart, so that the engine knows the versions that returning clients hold.
func (c *Catalog) Run(ctx context.Context) error {
	var former memstore.Snapshot
	var expired <-chan time.Time
	for hasClient := false; !hasClient; {
		changed := c.view.Changed()
		if expired == nil && c.view.Synced() {
			former = c.view.Snapshot()
			expired = time.After(returnTime)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.beats:
		case <-changed:
		case <-expired:
			former = memstore.Snapshot{}
		case <-c.firstClient.given:
			hasClient = true
		}
	}
	if former.Revision() != 0 && former.Revision() != c.view.Snapshot().Revision() {
		c.reset(former, false) // not synced: clients wait for the present content
		select {
		case <-ctx.Done():
		case <-c.firstScope.given:
		case <-time.After(firstScopeTime):
		}
	}
	return memstore.Follow(ctx, c.view, c.beats, c.update)
}

// awaitMesh returns when the mesh contains a view, or with the error of ctx.
func (c *Catalog) awaitMesh(ctx context.Context) error {
	c.firstClient.give()
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-c.meshReady.given:
		return nil
	}
}

// signal closes a channel once.
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
