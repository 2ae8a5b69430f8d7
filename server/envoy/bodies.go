package envoy

import (
	"bytes"
	"crypto/sha256"
	"runtime"
	"slices"
	"sync"
	"weak"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/extend"
	"tributary/server/envoy/index"
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
	hosts map[model.Key]weak.Pointer[translate.Body]
}

// routesKey is what the routes of a port depend on. hosts is a digest of their virtual hosts.
type routesKey struct {
	name       string
	role       model.Role
	restricted bool
	hosts      model.Key
	patches    string
}

// sharedEntry is the entry of routes, and what was found in it, sorted.
type sharedEntry struct {
	entry weak.Pointer[xds.Entry]
	found model.Findings
}

// routes returns the entry of the routes of a port as patches have them, and the domains that hosts do not get in it and what else was
// found, sorted. Scopes with equal virtual hosts and patches share them, and do not modify them; only the first scope encodes the routes.
func (b *bodies) routes(r *sharedRoutes, name string, role model.Role, restricted bool, patches *model.Extension,
) (e *xds.Entry, found model.Findings) {
	key := routesKey{name: name, role: role, restricted: restricted, hosts: r.digest()}
	if patches != nil {
		key.patches = patches.From
	}
	b.mu.Lock()
	known := b.ports[key]
	b.mu.Unlock()
	if e := known.entry.Value(); e != nil {
		return e, known.found
	}
	body, found := r.encode(name, role, restricted)
	if patches != nil {
		body = patchRoutes(body, role, patches, &found)
	}
	found = found.Sorted() // in place: before other scopes have it
	e = b.one(translate.EntryOfBytes(name, xds.RouteURL, body))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ports == nil {
		b.ports = make(map[routesKey]sharedEntry)
	}
	b.ports[key] = sharedEntry{weak.Make(e), found}
	runtime.AddCleanup(e, b.forgetRoutes, key)
	return e, found
}

// patchRoutes patches an encoded RouteConfiguration.
func patchRoutes(body []byte, role model.Role, patches *model.Extension, found *model.Findings) []byte {
	r := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(body, r); err != nil {
		panic(err) // it was encoded here
	}
	return model.MustMarshal(extend.New(patches, extend.ContextOf(role), found).Routes(r))
}

// sharing shares the bodies of the virtual hosts of a view with other views.
func (b *bodies) sharing(v *model.View) translate.Sharing {
	base := sync.OnceValue(func() model.Digest { return index.RoutesKey(v) })
	return func(part model.Digest, build func() *translate.Body) *translate.Body {
		key := model.Key(sha256.Sum256(slices.Concat(base(), part)))
		b.mu.Lock()
		shared := b.hosts[key].Value()
		b.mu.Unlock()
		if shared != nil {
			return shared
		}
		shared = build()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.hosts == nil {
			b.hosts = make(map[model.Key]weak.Pointer[translate.Body])
		}
		b.hosts[key] = weak.Make(shared)
		runtime.AddCleanup(shared, b.forgetBody, key)
		return shared
	}
}

// forgetBody removes a body that no virtual host has any more.
func (b *bodies) forgetBody(key model.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hosts[key].Value() == nil {
		delete(b.hosts, key)
	}
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
