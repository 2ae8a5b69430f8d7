package envoy

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"tributary/memstore"
)

// Clients of an earlier process come back within returnTime, and the first scope of them is made within firstScopeTime.
const (
	returnTime     = 2 * time.Minute
	firstScopeTime = 5 * time.Second
)

// Run waits for the first client, since the mesh takes memory, and then follows the view until ctx ends. If the view has
// changed since it was first complete, the first scope starts with that content, which is from the disk after a restart:
// so the engine knows the versions with which clients come back, and leads them on from there.
func (c *Catalog) Run(ctx context.Context) error {
	former, err := c.awaitClient(ctx)
	if err == nil && former != nil && former.Revision() != c.view.Snapshot().Revision() {
		c.update(nil, *former, false, false)
		_, err = await(ctx, c.beats, c.scoped.given, time.After(firstScopeTime))
	}
	if err != nil {
		return err
	}
	return memstore.Follow(ctx, c.view, c.beats, c.update)
}

// awaitClient returns when there was a client, with the view as it was when it became complete, or nil if that was long ago.
func (c *Catalog) awaitClient(ctx context.Context) (former *memstore.Snapshot, err error) {
	for {
		changed := c.view.Changed()
		if c.view.Synced() {
			break
		}
		if wanted, err := await(ctx, c.beats, c.wanted.given, changed); wanted || err != nil {
			return nil, err
		}
	}
	complete := c.view.Snapshot()
	wanted, err := await(ctx, c.beats, c.wanted.given, time.After(returnTime))
	if wanted || err != nil {
		return &complete, err
	}
	_, err = await[time.Time](ctx, c.beats, c.wanted.given, nil)
	return nil, err
}

// await returns when given or other is ready, and whether it is given; or with the error of ctx.
func await[T any](ctx context.Context, beats memstore.Beat, given <-chan struct{}, other <-chan T) (bool, error) {
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-beats:
		case <-given:
			return true, nil
		case <-other:
			return false, nil
		}
	}
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
