package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"tributary/resource"
)

// Controller is a read-only ConfigStoreController over any Reader, such as the aggregate's view. Its mutators fail with
// ErrReadOnly.
//
// It has no queue. Its worker keeps the last snapshot that handlers have seen, and asks the reader for the changes
// since then: for a slow handler, one snapshot waits, and the changes of a key become one.
type Controller struct {
	// Read-only after construction.
	reader  Reader
	schemas []*resource.Schema

	// Written before Run, read-only afterwards.
	handlers map[resource.Kind][]Handler
	onError  func(error)

	started atomic.Bool
	synced  atomic.Bool
	failure atomic.Pointer[error] // the last error reported and not yet handled
	failed  chan struct{}         // wakes the worker for failure; holds one
}

// NewController returns a controller that serves the given kinds, or all if none are given, from reader.
func NewController(reader Reader, schemas ...*resource.Schema) *Controller {
	if len(schemas) == 0 {
		schemas = resource.Schemas()
	}
	return &Controller{
		reader:   reader,
		schemas:  schemas,
		handlers: make(map[resource.Kind][]Handler),
		failed:   make(chan struct{}, 1),
	}
}

// Schemas returns the kinds that the store serves.
func (c *Controller) Schemas() []*resource.Schema { return slices.Clone(c.schemas) }

// Get returns the resource of key, or nil.
func (c *Controller) Get(key resource.Key) *resource.Resource { return c.reader.Snapshot().Get(key) }

// List returns the resources of kind in namespace, or in all namespaces if it is empty, in key order.
func (c *Controller) List(kind resource.Kind, namespace string) []*resource.Resource {
	snapshot := c.reader.Snapshot()
	if namespace == "" {
		return slices.AppendSeq(make([]*resource.Resource, 0, snapshot.LenKind(kind)), snapshot.List(kind, ""))
	}
	return slices.Collect(snapshot.List(kind, namespace))
}

// Create fails with ErrReadOnly.
func (c *Controller) Create(r *resource.Resource) (string, error) {
	return "", fmt.Errorf("create %s: %w", r.Key(), ErrReadOnly)
}

// Update fails with ErrReadOnly.
func (c *Controller) Update(r *resource.Resource, _ string) (string, error) {
	return "", fmt.Errorf("update %s: %w", r.Key(), ErrReadOnly)
}

// UpdateStatus fails with errors.ErrUnsupported.
func (c *Controller) UpdateStatus(r *resource.Resource) (string, error) {
	return "", fmt.Errorf("update status of %s: %w", r.Key(), errors.ErrUnsupported)
}

// Patch fails with ErrReadOnly.
func (c *Controller) Patch(key resource.Key, _ func(*resource.Resource) (*resource.Resource, error)) (string, error) {
	return "", fmt.Errorf("patch %s: %w", key, ErrReadOnly)
}

// Delete fails with ErrReadOnly.
func (c *Controller) Delete(key resource.Key, _ string) error {
	return fmt.Errorf("delete %s: %w", key, ErrReadOnly)
}

// RegisterEventHandler adds a handler for kind. It panics once Run was called, since the handler would have missed
// events.
func (c *Controller) RegisterEventHandler(kind resource.Kind, handler Handler) {
	if c.started.Load() {
		panic("memstore: RegisterEventHandler after Run")
	}
	c.handlers[kind] = append(c.handlers[kind], handler)
}

// SetWatchErrorHandler sets the handler of reported errors. It panics once Run was called.
func (c *Controller) SetWatchErrorHandler(handler func(error)) {
	if c.started.Load() {
		panic("memstore: SetWatchErrorHandler after Run")
	}
	c.onError = handler
}

// ReportError makes the worker call the watch error handler with err. Of errors that come faster than they are handled,
// only the last is handled. It never blocks.
func (c *Controller) ReportError(err error) {
	c.failure.Store(&err)
	select {
	case c.failed <- struct{}{}:
	default: // already woken
	}
}

// Run calls handlers, on this goroutine, until ctx ends. It may be called once.
func (c *Controller) Run(ctx context.Context) {
	if c.started.Swap(true) {
		panic("memstore: Run called twice")
	}
	var seen Snapshot
	for {
		changed := c.reader.Changed() // before the read, so that no commit slips between
		synced := c.reader.Synced()   // before the read too: all of the initial content is then part of it
		changes, now := ChangesFrom(c.reader, seen)
		for change := range changes {
			if ctx.Err() != nil {
				return
			}
			c.handle(change)
		}
		seen = now
		if synced {
			c.synced.Store(true)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-c.failed:
			if err := c.failure.Swap(nil); err != nil && c.onError != nil {
				c.onError(*err)
			}
		}
	}
}

// HasStarted says that Run was called.
func (c *Controller) HasStarted() bool { return c.started.Load() }

// HasSynced says that the content is complete and that handlers were called for all of it.
func (c *Controller) HasSynced() bool { return c.synced.Load() }

func (c *Controller) handle(change Change) {
	if resource.Equal(change.Old, change.New) { // changed and changed back, or only its origin did
		return
	}
	event := change.Event()
	for _, h := range c.handlers[change.Key().Kind] {
		h(change.Old, change.New, event)
	}
}
