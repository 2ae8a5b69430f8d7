package envoy

import (
	"bytes"
	"runtime"
	"sync"
	"weak"

	"tributary/server/xds"
)

// bodies has scopes share what they put together of several hosts, where it comes to the same: routes of a port are large, and most clients
// see the same. What no scope has any more is not kept. It is safe for concurrent use.
type bodies struct {
	mu    sync.Mutex
	known map[string]weak.Pointer[xds.Entry] // by version
}

// one returns the entry that equal ones share, which may be e.
func (b *bodies) one(e *xds.Entry) *xds.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.known[e.Version].Value(); known != nil && known.Name == e.Name && bytes.Equal(known.Any, e.Any) {
		return known
	}
	if b.known == nil {
		b.known = make(map[string]weak.Pointer[xds.Entry])
	}
	b.known[e.Version] = weak.Make(e)
	runtime.AddCleanup(e, b.forget, e.Version)
	return e
}

// forget ends that the entry of a version is known, unless there is a new one.
func (b *bodies) forget(version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.known[version]; ok && known.Value() == nil {
		delete(b.known, version)
	}
}
