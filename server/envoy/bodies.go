package envoy

import (
	"bytes"
	"runtime"
	"sync"
	"weak"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// bodies has scopes share equal entries of shared routes and listeners: routes of a port are large, and most clients see the same. Weak
// pointers let entries go that no scope has any more. It is safe for concurrent use.
type bodies struct {
	mu    sync.Mutex
	known map[string]weak.Pointer[xds.Entry] // by version
	ports map[routesKey]sharedEntry
}

// routesKey is what the routes of a port depend on. hosts is a digest of their virtual hosts.
type routesKey struct {
	name       string
	role       model.Role
	restricted bool
	hosts      model.Key
}

// sharedEntry is the entry of routes, and the domains that hosts do not get in it, sorted.
type sharedEntry struct {
	entry weak.Pointer[xds.Entry]
	found model.Findings
}

// routes returns the entry of the routes of a port, and the domains that hosts do not get in it, sorted. Scopes with equal virtual hosts
// share both, and do not modify them; only the first scope encodes the routes.
func (b *bodies) routes(r *sharedRoutes, name string, role model.Role, restricted bool) (*xds.Entry, model.Findings) {
	key := routesKey{name, role, restricted, r.digest()}
	b.mu.Lock()
	known := b.ports[key]
	b.mu.Unlock()
	if e := known.entry.Value(); e != nil {
		return e, known.found
	}
	body, found := r.encode(name, role, restricted)
	found = found.Sorted() // in place: before other scopes have it
	e := b.one(translate.EntryOfBytes(name, xds.RouteURL, body))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ports == nil {
		b.ports = make(map[routesKey]sharedEntry)
	}
	b.ports[key] = sharedEntry{weak.Make(e), found}
	runtime.AddCleanup(e, b.forgetRoutes, key)
	return e, found
}

// forgetRoutes removes the entry of routes that no scope has any more.
func (b *bodies) forgetRoutes(key routesKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.ports[key]; ok && known.entry.Value() == nil {
		delete(b.ports, key)
	}
}

// one returns the one entry that stands for all equal to e, which may be e.
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

// forget removes the entry of a version that no scope has any more.
func (b *bodies) forget(version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.known[version]; ok && known.Value() == nil {
		delete(b.known, version)
	}
}
