package envoy

import (
	"bytes"
	"hash/maphash"
	"runtime"
	"slices"
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

// routesKey is what the routes of a port depend on. hosts is a hash of their virtual hosts.
type routesKey struct {
	name       string
	role       model.Role
	restricted bool
	hosts      uint64
}

// sharedEntry is the entry of routes with these virtual hosts.
type sharedEntry struct {
	hosts []*translate.VirtualHost
	entry weak.Pointer[xds.Entry]
	found model.Findings
}

var hostsSeed = maphash.MakeSeed()

// routes returns the entry of the routes of a port, and the domains that hosts do not get in it, sorted. Scopes with the same virtual
// hosts share both, and do not modify them; only the first scope encodes the routes.
func (b *bodies) routes(r *sharedRoutes, name string, role model.Role, restricted bool) (*xds.Entry, model.Findings) {
	hosts := make([]*translate.VirtualHost, 0, r.hosts.Len())
	var hash maphash.Hash
	hash.SetSeed(hostsSeed)
	r.hosts.Scan(func(_ string, v *translate.VirtualHost) bool {
		hosts = append(hosts, v)
		maphash.WriteComparable(&hash, v)
		return true
	})
	key := routesKey{name, role, restricted, hash.Sum64()}
	b.mu.Lock()
	known := b.ports[key]
	b.mu.Unlock()
	if e := known.entry.Value(); e != nil && slices.Equal(known.hosts, hosts) {
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
	b.ports[key] = sharedEntry{hosts, weak.Make(e), found}
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
