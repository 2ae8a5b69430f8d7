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

// canOnDemand reports whether a client can request virtual hosts and single clusters: Envoy does so by delta only.
func canOnDemand(ctx context.Context) bool {
	method, _ := grpc.Method(ctx)
	return strings.Contains(method, "/Delta")
}

// collectionsOnDemand returns the collections that differ for on-demand clients. They request clusters and virtual
// hosts by name only, and a route needs no interim version for new clusters, since its traffic requests them.
func collectionsOnDemand(g *xds.Group) (clusters, routes, virtualHosts *xds.Collection) {
	cluster := TypeOf(xds.ClusterURL)
	cluster.NoWildcard = true
	route := TypeOf(xds.RouteURL)
	route.Preannounce = nil
	return g.Collection(cluster), g.Collection(route), g.Collection(xds.TypeOf(xds.VHostURL))
}

// routesOnDemand returns the routes of a port for clients that request its virtual hosts. The requested names may have
// a port.
func routesOnDemand(name string) []byte {
	head := translate.RoutesHead(name, model.Sidecar)
	head.IgnorePortInHostMatching = false
	// The first answer contains no virtual host, so Envoy need not wait for it: the routes are complete.
	from := translate.Ads()
	from.InitialFetchTimeout = durationpb.New(time.Millisecond)
	head.Vhds = &routev3.Vhds{ConfigSource: from}
	return model.MustMarshal(head)
}

// virtualHostsOf returns the entries of a virtual host for requests to a domain, with and without the port, each with
// that domain alone. Envoy finds a virtual host by the name of its resource.
func virtualHostsOf(virtualHost *translate.VirtualHost, route, domain string) []*xds.Entry {
	virtualHost.OnDemand.Mu.Lock()
	defer virtualHost.OnDemand.Mu.Unlock()
	if entries, cached := virtualHost.OnDemand.Entries[domain]; cached {
		return entries
	}
	_, _, name := protowire.ConsumeField(virtualHost.Rest) // the first field, replaced below
	var entries []*xds.Entry
	for _, authority := range authorities(route, domain) {
		var encoded []byte
		resourceName := virtualHostName(route, authority)
		encoded = protowire.AppendString(protowire.AppendTag(encoded, translate.FieldName, protowire.BytesType), resourceName)
		encoded = protowire.AppendString(protowire.AppendTag(encoded, translate.FieldDomains, protowire.BytesType), authority)
		body := slices.Concat(encoded, virtualHost.Rest[name:], virtualHost.Routes())
		entries = append(entries, translate.EntryOfBytes(resourceName, xds.VHostURL, body))
	}
	if virtualHost.OnDemand.Entries == nil {
		virtualHost.OnDemand.Entries = make(map[string][]*xds.Entry)
	}
	virtualHost.OnDemand.Entries[domain] = entries
	return entries
}

// virtualHostName is the resource name that Envoy requests for the virtual host of a host.
func virtualHostName(route, host string) string { return route + "/" + host }

func authorities(route, domain string) []string { return []string{domain, domain + ":" + route} }

// owner returns the virtual host of a domain, or nil.
func (routes *sharedRoutes) owner(domain string) (owner *translate.VirtualHost) {
	if routes == nil || routes.domains[domain] == 0 {
		return nil
	}
	routes.hosts.Scan(func(_ string, virtualHost *translate.VirtualHost) bool {
		if slices.Contains(virtualHost.Domains, domain) {
			owner = virtualHost
		}
		return owner == nil
	})
	return owner
}

// noteDemand notes that domains of some routes may have a new virtual host: the argument, unless several hosts have the
// domain.
func (c *change) noteDemand(route string, domains []string, virtualHost *translate.VirtualHost) {
	if !c.profile.OnDemand {
		return
	}
	if c.domains[route] == nil {
		c.domains[route] = make(map[string]*translate.VirtualHost)
	}
	for _, domain := range domains {
		c.domains[route][domain] = virtualHost
	}
}

// fullRoutes has the names of the routes that on-demand clients, too, get in full. They are ports, so there are not
// many.
type fullRoutes struct{ names sync.Map }

// add makes routes sent in full from now on.
func (f *fullRoutes) add(route string) { f.names.Store(route, true) }

// contains reports whether routes are sent in full.
func (f *fullRoutes) contains(route string) bool {
	_, contains := f.names.Load(route)
	return contains
}

// includeFullRoutes re-encodes routes that another scope began to send in full: its clients may move to this scope.
func (c *change) includeFullRoutes() {
	if !c.profile.OnDemand {
		return
	}
	for route, routes := range c.shared {
		if !routes.inFull && c.fullRoutes.contains(route) {
			c.routes[route] = true
		}
	}
}

// shareOnDemand encodes the routes of a port for on-demand clients, and reports whether they are sent in full. That is
// the case for routes with a wildcard domain: a client cannot request its virtual host, and if it has one, does not
// request the hosts that it covers. They stay so in all scopes, since Envoy does not forget its requests. Patched
// routes and routes with repeated bodies are sent in full, too.
func (c *change) shareOnDemand(route string, routes *sharedRoutes) (complete bool) {
	needFull := c.routePatches != nil || len(routes.repeated()) > 0
	for domain := range c.domains[route] {
		needFull = needFull || model.IsWildcard(domain) && routes.domains[domain] > 0
	}
	if needFull {
		c.fullRoutes.add(route)
	}
	if !routes.inFull && c.fullRoutes.contains(route) {
		routes.inFull = true
		c.noteDemand(route, slices.Collect(maps.Keys(routes.domains)), nil)
	}
	if !routes.inFull {
		c.put(c.scope.routes, translate.EntryOfBytes(route, xds.RouteURL, routesOnDemand(route)))
	}
	return routes.inFull
}

// shareHosts updates the virtual hosts that clients request.
func (c *change) shareHosts() {
	for route, domains := range c.domains {
		routes := c.shared[route]
		for domain, virtualHost := range domains {
			switch {
			case model.IsWildcard(domain):
				continue
			case routes == nil || routes.inFull || routes.domains[domain] == 0:
				for _, authority := range authorities(route, domain) {
					c.remove(c.virtualHosts, virtualHostName(route, authority))
				}
				continue
			case virtualHost == nil || routes.domains[domain] > 1:
				virtualHost = routes.owner(domain)
			}
			for _, entry := range virtualHostsOf(virtualHost, route, domain) {
				c.put(c.virtualHosts, entry)
			}
		}
	}
}
