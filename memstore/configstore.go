package memstore

import (
	"context"
	"errors"

	"tributary/resource"
)

// The errors of a ConfigStore, wrapped with the key.
var (
	ErrExists      = errors.New("already exists")
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("resource version is stale")
	ErrUnknownKind = errors.New("unknown kind")
	ErrReadOnly    = errors.New("store is read-only")
)

// ConfigStore is the interface that istiod expects of a config store: a set of resources with unique keys. Its results
// are read-only, and lists are in key order. Mutators take effect before they return; one that fails has no side
// effect. Versions are opaque and are compared by equality only; the empty version matches any.
type ConfigStore interface {
	Schemas() []*resource.Schema
	// Get returns the resource of key, or nil.
	Get(key resource.Key) *resource.Resource
	// List returns the resources of kind in namespace, or in all namespaces if it is empty.
	List(kind resource.Kind, namespace string) []*resource.Resource
	// Create adds r, and fails with ErrExists if its key is taken. It returns the version stored.
	Create(r *resource.Resource) (version string, err error)
	// Update replaces the resource of r's key, and fails with ErrNotFound if there is none and with ErrConflict if its
	// version is not ifVersion. An equal resource is stored without an event.
	Update(r *resource.Resource, ifVersion string) (version string, err error)
	// UpdateStatus always fails with errors.ErrUnsupported: MCP carries no status.
	UpdateStatus(r *resource.Resource) (version string, err error)
	// Patch replaces the resource of key by the result of edit, atomically: after another write, it calls edit again with
	// the newer resource.
	Patch(key resource.Key, edit func(*resource.Resource) (*resource.Resource, error)) (version string, err error)
	// Delete removes the resource of key, under the same conditions as Update.
	Delete(key resource.Key, ifVersion string) error
}

// Event is the kind of a change.
type Event int

// The events.
const (
	Added Event = iota
	Updated
	Deleted
)

// Handler handles one change: old is nil for Added, new is nil for Deleted.
type Handler func(old, new *resource.Resource, event Event)

// ConfigStoreController is a ConfigStore that calls handlers for its changes.
type ConfigStoreController interface {
	ConfigStore
	// RegisterEventHandler adds a handler for a kind. It must be called before Run. Handlers are called in the order of
	// registration, one at a time, on one goroutine; reads of a handler return a state at least as new as the event. A
	// slow handler sees the changes of a key coalesced.
	RegisterEventHandler(kind resource.Kind, h Handler)
	// SetWatchErrorHandler sets the handler, on the same goroutine, of errors of the sources of the store. It must be
	// called before Run.
	SetWatchErrorHandler(h func(error))
	// Run calls handlers until ctx ends.
	Run(ctx context.Context)
	HasStarted() bool
	// HasSynced says that the content is complete and that handlers were called for all of it.
	HasSynced() bool
}

// Revision counts the commits of one store or view in one process. resource.Resource.Version identifies content.
type Revision uint64

// Reader is the interface of a store or view for servers: state, changes, and a wake-up. Three calls make a loop that
// neither misses nor queues a change:
//
//	for {
//		changed := r.Changed()               // first, so that no commit slips between
//		keys, snap, ok := r.Changes(since)   // O(changes)
//		if !ok { … resync from snap … }
//		since = snap.Revision()
//		<-changed
//	}
type Reader interface {
	// Snapshot returns the state at this moment, in O(1).
	Snapshot() Snapshot
	// Changes returns the keys changed after revision since and up to that of the returned snapshot, each once, in no
	// particular order. They do not include changes of Snapshot.Invalid. A key with equal content may be among them (it
	// changed and changed back, or only its origin or creation time did): compare resource.Resource.Version. Changes
	// returns ok == false, and only the snapshot, if since is too old or not of this store; Diff then returns the changes
	// since an earlier snapshot.
	Changes(since Revision) (keys []resource.Key, now Snapshot, ok bool)
	// Changed returns a channel that is closed by the next commit, or when Synced turns true.
	Changed() <-chan struct{}
	// Synced says that the content is complete: every source that feeds it has been read once. Once true it stays so.
	Synced() bool
}
