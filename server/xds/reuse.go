package xds

import (
	"bytes"
	"cmp"
	"log/slog"
	"sync"
	"weak"
)

// reuse is a version that a program used for two contents: clients that have the one are not sent the other. Reuse across a restart
// is not detected.
type reuse struct {
	typeURL, name, version string // no name if it is the version of the collection
	count                  int
}

// reused looks for reuse in a commit that leads from old to next.
func (c *Collection) reused(commit *Commit, old, next *state) (r reuse) {
	r.typeURL = c.typ.URL
	if old.given && next.given && old.version == next.version && old.sum != next.sum {
		r.version, r.count = next.version, 1
	}
	if old.len == 0 {
		return r
	}
	for _, e := range commit.Put {
		if e == nil {
			continue // it is ignored
		}
		if had := old.get(e.Name); had != nil && had != e && had.Version == e.Version && !bytes.Equal(had.Any, e.Any) {
			r.name, r.version = e.Name, e.Version
			r.count++
		}
	}
	return r
}

// warn logs reuse.
func (g *Group) warn(found []reuse) {
	for _, r := range found {
		cmp.Or(g.Log, slog.Default()).Warn("a version was used again for other content: clients are not sent it",
			"type_url", r.typeURL, "name", r.name, "version", r.version, "count", r.count)
	}
}

// versioned returns e with a version, derived from the content if e has none.
func versioned(e *Entry) *Entry {
	if e.Version != "" {
		return e
	}
	own := *e
	own.Version = VersionOf(e.Any)
	return &own
}

// weakCache keeps a value until the first garbage collection after its last use. Then get makes it again.
type weakCache[T any] struct {
	mu    sync.Mutex
	value weak.Pointer[T]
}

// get returns the value, or makes it while other callers wait.
func (w *weakCache[T]) get(build func() *T) *T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.value.Value(); v != nil {
		return v
	}
	v := build()
	w.value = weak.Make(v)
	return v
}
