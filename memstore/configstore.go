// Package memstore keeps resources in memory: a ConfigStore with optimistic concurrency, a controller that calls event
// handlers in order, and, for servers, immutable snapshots in O(1) with a log of what changed.
package memstore

import (
	"context"
	"errors"

	"tributary/resource"
)

// The errors of a ConfigStore, wrapped with the key that they are about.
var (
	ErrExists      = errors.New("already exists")
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("resource version is stale")
	ErrUnknownKind = errors.New("unknown kind")
	ErrReadOnly    = errors.New("store is read-only")
)

// ConfigStore describes what istiod expects of a config store: a set of resources with unique keys. What it returns is
// read-only, and lists are in key order. Mutators take effect before they return; one that fails has no side effect.
// Versions are opaque and are compared by equality only; the empty version matches any.
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
	// Patch replaces the resource of key by what edit makes of it, without another write coming between: then edit is
	// called again with the newer resource.
	Patch(key resource.Key, edit func(*resource.Resource) (*resource.Resource, error)) (version string, err error)
	// Delete removes the resource of key, under the same conditions as Update.
	Delete(key resource.Key, ifVersion string) error
}

// Event is what happened to a key.
type Event int

// The events.
const (
	Added Event = iota
	Updated
	Deleted
)

// Handler is told of one change: old is nil for Added, new is nil for Deleted.
type Handler func(old, new *resource.Resource, event Event)

// ConfigStoreController is a ConfigStore that tells handlers of its changes.
type ConfigStoreController interface {
	ConfigStore
	// RegisterEventHandler adds a handler for a kind. It must be called before Run. Handlers are called in the order in
	// which they were added, one at a time, on one goroutine; when one is called, reads give a state at least as new as
	// the event. A slow handler sees the changes of a key coalesced.
	RegisterEventHandler(kind resource.Kind, h Handler)
	// SetWatchErrorHandler sets who is told, on the same goroutine, of what the sources behind the store report. It must
	// be called before Run.
	SetWatchErrorHandler(h func(error))
	// Run calls handlers until ctx ends.
	Run(ctx context.Context)
	HasStarted() bool
	// HasSynced says that the content is complete and that handlers were told of all of it.
	HasSynced() bool
}

// Revision counts the commits of one store or view in one process. It says nothing about content; see
// resource.Resource.Version for that.
type Revision uint64

// Reader is what a server needs of a store or view: state, what changed, and when. Three calls make a loop that can
// neither miss a change nor queue one:
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
	// Changes returns the keys changed after revision since and up to that of the returned snapshot, each once, in
	// no particular order. A key whose content is what it was may be among them (it changed and changed back, or only its
	// origin or creation time did): compare resource.Resource.Version. Changes returns ok == false, and only the snapshot,
	// if since is too old to tell or not of this store; Diff then tells what changed since a snapshot that is at hand.
	Changes(since Revision) (keys []resource.Key, now Snapshot, ok bool)
	// Changed returns a channel that is closed by the next commit, or when Synced turns true.
	Changed() <-chan struct{}
	// Synced says that the content is complete: every source that feeds it has been read once. Once true it stays so.
	Synced() bool
}
