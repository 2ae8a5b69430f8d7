package envoy

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"sync"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/extend"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// bodies lets scopes share translations, and equal entries of routes and listeners: the routes of a port are large, and
// most clients see the same. It is safe for concurrent use.
type bodies struct {
	translations weakMap[model.Key, translate.Translation] // by view
	entries      weakMap[string, xds.Entry]                // by version
	routes       weakMap[routesKey, encodedRoutes]
	hosts        weakMap[model.Key, translate.Body]
}

// routesKey identifies the content of a port's routes. hosts is a digest of their virtual hosts.
type routesKey struct {
	name       string
	role       model.Role
	restricted bool
	hosts      model.Key
	patches    string
}

// encodedRoutes is the entry of routes, with its sorted findings.
type encodedRoutes struct {
	entry    *xds.Entry
	findings model.Findings
}

// encode returns the entry of the patched routes of a port, with findings, for example of domains that belong to
// another host. Scopes with equal virtual hosts and patches share both: the first scope encodes them, and no scope
// modifies them.
func (b *bodies) encode(routes *sharedRoutes, name string, role model.Role, restricted bool, patches *model.Extension,
) *encodedRoutes {
	key := routesKey{name: name, role: role, restricted: restricted, hosts: routes.digest()}
	if patches != nil {
		key.patches = patches.From
	}
	return b.routes.getOrCreate(key, func() *encodedRoutes {
		body, findings := routes.encode(name, role, restricted)
		if patches != nil {
			body = patchRoutes(body, role, patches, &findings)
		}
		return &encodedRoutes{b.intern(translate.EntryOfBytes(name, xds.RouteURL, body)), findings.Sorted()}
	})
}

// patchRoutes patches an encoded RouteConfiguration.
func patchRoutes(body []byte, role model.Role, patches *model.Extension, findings *model.Findings) []byte {
	routes := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(body, routes); err != nil {
		panic(err) // it was encoded here
	}
	return model.MustMarshal(extend.New(patches, extend.ContextOf(role), findings).Routes(routes))
}

// bodyCache shares the bodies of the virtual hosts of a view with other views.
func (b *bodies) bodyCache(v *model.View) translate.BodyCache {
	base := sync.OnceValue(func() model.Digest { return index.RoutesKey(v) })
	return func(part model.Digest, build func() *translate.Body) *translate.Body {
		return b.hosts.getOrCreate(sha256.Sum256(slices.Concat(base(), part)), build)
	}
}

// intern returns the shared entry that is equal to the argument, and shares the argument if it is the first.
func (b *bodies) intern(entry *xds.Entry) *xds.Entry {
	shared := b.entries.getOrCreate(entry.Version, func() *xds.Entry { return entry })
	if shared.Name == entry.Name && bytes.Equal(shared.Any, entry.Any) {
		return shared
	}
	return entry
}
