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

// bodies lets scopes share equal entries of shared routes and listeners: the routes of a port are large, and most
// clients see the same. Weak pointers free entries that no scope uses any more. It is safe for concurrent use.
type bodies struct {
	mu      sync.Mutex
	entries map[string]weak.Pointer[xds.Entry] // by version
	ports   map[routesKey]sharedEntry
	hosts   map[model.Key]weak.Pointer[translate.Body]
}

// routesKey identifies the content of a port's routes. hosts is a digest of their virtual hosts.
type routesKey struct {
	name       string
	role       model.Role
	restricted bool
	hosts      model.Key
	patches    string
}

// sharedEntry is the entry of routes, with its sorted findings.
type sharedEntry struct {
	entry    weak.Pointer[xds.Entry]
	findings model.Findings
}

// routes returns the entry of the patched routes of a port, and sorted findings, for example of domains that belong to
// another host. Scopes with equal virtual hosts and patches share both, and do not modify them; only the first scope
// encodes the routes.
func (b *bodies) routes(routes *sharedRoutes, name string, role model.Role, restricted bool, patches *model.Extension,
) (entry *xds.Entry, findings model.Findings) {
	key := routesKey{name: name, role: role, restricted: restricted, hosts: routes.digest()}
	if patches != nil {
		key.patches = patches.From
	}
	b.mu.Lock()
	cached := b.ports[key]
	b.mu.Unlock()
	if entry := cached.entry.Value(); entry != nil {
		return entry, cached.findings
	}
	body, findings := routes.encode(name, role, restricted)
	if patches != nil {
		body = patchRoutes(body, role, patches, &findings)
	}
	findings = findings.Sorted() // in place: before other scopes have it
	entry = b.intern(translate.EntryOfBytes(name, xds.RouteURL, body))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ports == nil {
		b.ports = make(map[routesKey]sharedEntry)
	}
	b.ports[key] = sharedEntry{weak.Make(entry), findings}
	runtime.AddCleanup(entry, b.forgetRoutes, key)
	return entry, findings
}

// patchRoutes patches an encoded RouteConfiguration.
func patchRoutes(body []byte, role model.Role, patches *model.Extension, findings *model.Findings) []byte {
	routes := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(body, routes); err != nil {
		panic(err) // it was encoded here
	}
	return model.MustMarshal(extend.New(patches, extend.ContextOf(role), findings).Routes(routes))
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

// forgetBody removes a body that no virtual host uses any more.
func (b *bodies) forgetBody(key model.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hosts[key].Value() == nil {
		delete(b.hosts, key)
	}
}

// forgetRoutes removes the entry of routes that no scope uses any more.
func (b *bodies) forgetRoutes(key routesKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cached, ok := b.ports[key]; ok && cached.entry.Value() == nil {
		delete(b.ports, key)
	}
}

// intern returns the shared entry that is equal to the argument, and shares the argument if it is the first.
func (b *bodies) intern(entry *xds.Entry) *xds.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if interned := b.entries[entry.Version].Value(); interned != nil && interned.Name == entry.Name &&
		bytes.Equal(interned.Any, entry.Any) {
		return interned
	}
	if b.entries == nil {
		b.entries = make(map[string]weak.Pointer[xds.Entry])
	}
	b.entries[entry.Version] = weak.Make(entry)
	runtime.AddCleanup(entry, b.forget, entry.Version)
	return entry
}

// forget removes the entry of a version that no scope uses any more.
func (b *bodies) forget(version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cached, ok := b.entries[version]; ok && cached.Value() == nil {
		delete(b.entries, version)
	}
}
