package envoy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// canOnDemand says whether a client can ask for virtual hosts and single clusters: Envoy does so by delta only.
func canOnDemand(ctx context.Context) bool {
	method, _ := grpc.Method(ctx)
	return strings.Contains(method, "/Delta")
}

// collectionsOnDemand returns the collections that differ for on-demand clients. They ask for clusters and virtual
// hosts by name only, and a route needs no interim version for new clusters, since its requests ask for them.
func collectionsOnDemand(g *xds.Group) (clusters, routes, virtualHosts *xds.Collection) {
	cluster, route := TypeOf(xds.ClusterURL), TypeOf(xds.RouteURL)
	cluster.NoWildcard, route.Preannounce = true, nil
	return g.Collection(cluster), g.Collection(route), g.Collection(xds.TypeOf(xds.VHostURL))
}

// routesOnDemand returns the routes of a port for clients that request its virtual hosts. The requested names may have
// a port.
func routesOnDemand(name string) []byte {
	head := translate.RoutesHead(name, model.Sidecar)
	head.IgnorePortInHostMatching = false
	// The first answer is about no virtual host, so none is worth waiting for: the routes are complete.
	from := translate.Ads()
	from.InitialFetchTimeout = durationpb.New(time.Millisecond)
	head.Vhds = &routev3.Vhds{ConfigSource: from}
	return model.MustMarshal(head)
}

// virtualHostsOf returns the entries of a virtual host for requests to a domain, with and without the port, each with
// that domain alone. Envoy finds a virtual host by the name of its resource.
func virtualHostsOf(v *translate.VirtualHost, route, domain string) []*xds.Entry {
	v.OnDemand.Mu.Lock()
	defer v.OnDemand.Mu.Unlock()
	if entries, cached := v.OnDemand.Entries[domain]; cached {
		return entries
	}
	_, _, name := protowire.ConsumeField(v.Rest) // the first field, which singles have otherwise
	var entries []*xds.Entry
	for _, authority := range authorities(route, domain) {
		var b []byte
		resourceName := virtualHostName(route, authority)
		b = protowire.AppendString(protowire.AppendTag(b, translate.FieldName, protowire.BytesType), resourceName)
		b = protowire.AppendString(protowire.AppendTag(b, translate.FieldDomains, protowire.BytesType), authority)
		body := slices.Concat(b, v.Rest[name:], v.Routes())
		entries = append(entries, translate.EntryOfBytes(resourceName, xds.VHostURL, body))
	}
	if v.OnDemand.Entries == nil {
		v.OnDemand.Entries = make(map[string][]*xds.Entry)
	}
	v.OnDemand.Entries[domain] = entries
	return entries
}

// virtualHostName is the resource name that Envoy requests for the virtual host of a host.
func virtualHostName(route, host string) string { return route + "/" + host }

func authorities(route, domain string) []string { return []string{domain, domain + ":" + route} }

// owner returns the virtual host that has a domain, or nil.
func (r *sharedRoutes) owner(domain string) (owner *translate.VirtualHost) {
	if r == nil || r.domains[domain] == 0 {
		return nil
	}
	r.hosts.Scan(func(_ string, v *translate.VirtualHost) bool {
		if slices.Contains(v.Domains, domain) {
			owner = v
		}
		return owner == nil
	})
	return owner
}

// demand notes that domains of some routes may have another virtual host now: v, unless several hosts have the domain.
func (c *change) demand(route string, domains []string, v *translate.VirtualHost) {
	if !c.profile.OnDemand {
		return
	}
	if c.domains[route] == nil {
		c.domains[route] = make(map[string]*translate.VirtualHost)
	}
	for _, d := range domains {
		c.domains[route][d] = v
	}
}

// fullRoutes are the routes that are sent in full to clients that ask for virtual hosts. It is safe for concurrent use.
type fullRoutes struct {
	mu    sync.Mutex
	names map[string]struct{} // ports, so there are not many
}

// include reports whether routes are sent in full. If complete, they are from now on.
func (f *fullRoutes) include(route string, complete bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, included := f.names[route]; included || !complete {
		return included
	}
	if f.names == nil {
		f.names = make(map[string]struct{})
	}
	f.names[route] = struct{}{}
	return true
}

// includeFullRoutes encodes routes again that another scope began to send in full: its clients may come here.
func (c *change) includeFullRoutes() {
	if !c.profile.OnDemand {
		return
	}
	for route, r := range c.shared {
		if !r.whole && c.fullRoutes.include(route, false) {
			c.routes[route] = true
		}
	}
}

// shareOnDemand encodes the routes of a port for on-demand clients, and says whether in full. A client cannot ask for a
// virtual host of a wildcard domain, and if it has one, it does not ask for the hosts within: routes with a wildcard
// domain are sent in full. They stay so in all scopes, since Envoy does not forget its requests. Patched routes and
// routes with repeated bodies are sent in full, too.
func (c *change) shareOnDemand(route string, r *sharedRoutes) (complete bool) {
	wild := c.routePatches != nil || len(r.repeated()) > 0 // patches are of all of them
	for domain := range c.domains[route] {
		wild = wild || model.IsWildcard(domain) && r.domains[domain] > 0
	}
	if !r.whole && c.fullRoutes.include(route, wild) {
		r.whole = true
		c.demand(route, slices.Collect(maps.Keys(r.domains)), nil)
	}
	if !r.whole {
		put(c.commits, c.scope.routes, translate.EntryOfBytes(route, xds.RouteURL, routesOnDemand(route)))
	}
	return r.whole
}

// shareHosts brings the virtual hosts that are asked for up to date.
func (c *change) shareHosts() {
	for route, domains := range c.domains {
		r := c.shared[route]
		for domain, v := range domains {
			switch {
			case model.IsWildcard(domain):
				continue
			case r == nil || r.whole || r.domains[domain] == 0:
				for _, authority := range authorities(route, domain) {
					remove(c.commits, c.virtualHosts, virtualHostName(route, authority))
				}
				continue
			case v == nil || r.domains[domain] > 1:
				v = r.owner(domain)
			}
			for _, e := range virtualHostsOf(v, route, domain) {
				put(c.commits, c.virtualHosts, e)
			}
		}
	}
}
