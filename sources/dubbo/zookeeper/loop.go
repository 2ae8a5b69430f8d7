package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"tributary/internal/intake"
	"tributary/internal/worker"
	"tributary/sources/dubbo/backend"
)

// maxNames bounds the children of a node: interfaces, providers of an interface, applications or instances of an
// application. A node over the limit keeps its earlier content.
const maxNames = 100_000

// node is a way to read one kind of content of a node.
type node[T any] struct {
	read  func(path string) (T, *zk.Stat, error)
	watch func(path string) (T, *zk.Stat, <-chan zk.Event, error)
	equal func(a, b T) bool
	size  func(T) (names, bytes int)
}

func (w *watch) children() node[[]string] {
	return node[[]string]{w.conn.Children, w.conn.ChildrenW, func(a, b []string) bool {
		a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
		return slices.Equal(a, b)
	}, func(names []string) (count, bytes int) {
		for _, name := range names {
			bytes += len(name)
		}
		return len(names), bytes
	}}
}

func (w *watch) data() node[[]byte] {
	return node[[]byte]{w.conn.Get, w.conn.GetW, bytes.Equal, func(data []byte) (names, bytes int) { return 0, len(data) }}
}

// follow reads a node and calls tell with its content, at each change, until ctx ends. A watch fires once: each read
// sets it again, so that no change is missed. watchMissing returns a watch for a node that does not exist.
func follow[T any](
	ctx context.Context, watch *watch, path string, node node[T], watchMissing func(path string) (<-chan zk.Event, error),
	tell func(T, error),
) {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(500*time.Millisecond),
		backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0))
	held := 0 // bytes of the content
	defer func() { _ = intake.Keep(ctx, held, 0) }()
	for ctx.Err() == nil {
		connected := watch.connected()
		content, fired, err := read(ctx, watch, path, node, watchMissing)
		if err == nil {
			names, size := node.size(content)
			if names > maxNames {
				err = fmt.Errorf("%q: its %d children are over the limit of %d", path, names, maxNames)
			} else if err = intake.Keep(ctx, held, size); err == nil {
				held = size
			} else {
				err = fmt.Errorf("%q: %w", path, err)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil || errors.Is(err, backend.ErrAbsent):
			retry.Reset()
			tell(content, err)
			watch.await(ctx, connected, fired,
				func() (changed bool) { return compare(ctx, watch, path, node, content, err, fired) })
		case errors.Is(err, errConnection):
			_ = worker.Wait(ctx, watch.connected(), retry.NextBackOff())
		default:
			tell(content, err)
			_ = worker.Wait(ctx, nil, retry.NextBackOff())
		}
	}
}

// errConnection says that a read failed because of the connection, not of the node.
var errConnection = errors.New("the connection failed")

// read reads a node and sets a watch for its next change.
func read[T any](
	ctx context.Context, w *watch, path string, node node[T], watchMissing func(path string) (<-chan zk.Event, error),
) (content T, fired <-chan zk.Event, err error) {
	release, ok := w.turn(ctx)
	if !ok {
		return content, nil, ctx.Err()
	}
	defer release()
	content, _, fired, err = node.watch(path)
	if errors.Is(err, zk.ErrNoNode) {
		if fired, err = watchMissing(path); err == nil {
			err = backend.ErrAbsent
		}
	}
	return content, fired, explain(path, err)
}

// explain translates an error of the library.
func explain(path string, err error) error {
	switch {
	case err == nil || errors.Is(err, backend.ErrAbsent):
		return err
	case errors.Is(err, zk.ErrNoNode):
		return backend.ErrAbsent
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed):
		return fmt.Errorf("%s: %w (%w)", path, backend.ErrDenied, err)
	case slices.ContainsFunc(ofNode, func(nodeError error) bool { return errors.Is(err, nodeError) }):
		return fmt.Errorf("%q: %w", path, err)
	}
	// All others are of the connection: closed, no server, session expired or moved, and errors of the network.
	return errConnection
}

// ofNode are the errors about a single node: the server's answers, also with codes that the library does not know, and
// answers that cannot be decoded.
var ofNode = []error{
	zk.ErrInvalidPath, zk.ErrUnknown, zk.ErrAPIError, zk.ErrBadArguments, zk.ErrInvalidACL, zk.ErrNothing,
	zk.ErrShortBuffer, zk.ErrUnhandledFieldType,
}

// errAgain says that a node was created between two reads.
var errAgain = errors.New("it is there by now")

// exists sets a watch for the creation of a missing node: ZooKeeper allows no watch on its children.
func (w *watch) exists(path string) (<-chan zk.Event, error) {
	exists, _, fired, err := w.conn.ExistsW(path)
	if err == nil && exists {
		return nil, errAgain
	}
	return fired, err
}

// await waits until a watch fires. After each resync time and each reconnection it compares the node with the last
// content: a ZooKeeper that was restored from an older snapshot may know our session, and reports no losses.
func (w *watch) await(ctx context.Context, connected <-chan struct{}, fired <-chan zk.Event, changed func() bool) {
	for {
		// Random, to spread the reads.
		timer := time.NewTimer(w.resync/2 + rand.N(w.resync)) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
		case <-fired:
		case <-connected:
			timer.Stop()
			if connected = w.connected(); !changed() {
				continue
			}
		case <-timer.C:
			if !changed() {
				continue
			}
		}
		timer.Stop()
		return
	}
}

// compare re-reads a node without a watch and reports whether it changed although no watch fired. ZooKeeper sends a
// watch event before any answer that includes the change, so this must not happen.
func compare[T any](
	ctx context.Context, watch *watch, path string, node node[T], before T, beforeErr error, fired <-chan zk.Event,
) bool {
	release, ok := watch.turn(ctx)
	if !ok {
		return false
	}
	defer release()
	now, _, err := node.read(path)
	if err = explain(path, err); err != nil && !errors.Is(err, backend.ErrAbsent) {
		return false
	}
	select {
	case <-fired:
		return true
	default:
	}
	if errors.Is(err, backend.ErrAbsent) == errors.Is(beforeErr, backend.ErrAbsent) && node.equal(before, now) {
		return false
	}
	watch.to.Healed(path)
	return true
}
