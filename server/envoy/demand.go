package envoy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	demandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// canOnDemand says whether a client can: Envoy asks for virtual hosts and single clusters by delta only.
func canOnDemand(ctx context.Context) bool {
	method, _ := grpc.Method(ctx)
	return strings.Contains(method, "/Delta")
}

// collectionsOnDemand returns the collections that are served otherwise to such a client: of clusters and virtual hosts by name only; and
// the clusters of a route need no interim version: its requests ask for them.
func collectionsOnDemand(g *xds.Group) (clusters, routes, virtualHosts *xds.Collection) {
	cluster, route := TypeOf(xds.ClusterURL), TypeOf(xds.RouteURL)
	cluster.NoWildcard, route.Preannounce = true, nil
	return g.Collection(cluster), g.Collection(route), g.Collection(xds.TypeOf(xds.VHostURL))
}

// routesOnDemand are the routes of a port of which the virtual hosts are asked for. Hosts are compared as they are asked for, which may be
// with the port.
func routesOnDemand(name string) []byte {
	head := translate.RoutesHead(name, model.Sidecar)
	head.IgnorePortInHostMatching = false
	// The first answer is about no virtual host, so none is worth waiting for: the routes are complete.
	from := translate.Ads()
	from.InitialFetchTimeout = durationpb.New(time.Millisecond)
	head.Vhds = &routev3.Vhds{ConfigSource: from}
	return model.MustMarshal(head)
}

// singles returns the entries of the virtual host for those who ask for a domain among some routes, each with one domain, as
// it may be asked for: alone, or with the port. Envoy knows a virtual host that goes by the name of the resource.
func singles(v *translate.VirtualHost, route, domain string) []*xds.Entry {
	v.OnDemand.Mu.Lock()
	defer v.OnDemand.Mu.Unlock()
	if entries, ok := v.OnDemand.Entries[domain]; ok {
		return entries
	}
	_, _, name := protowire.ConsumeField(v.Rest) // the first field, which singles have otherwise
	var entries []*xds.Entry
	for _, asked := range askedAs(route, domain) {
		var b []byte
		b = protowire.AppendString(protowire.AppendTag(b, translate.FieldName, protowire.BytesType), single(route, asked))
		b = protowire.AppendString(protowire.AppendTag(b, translate.FieldDomains, protowire.BytesType), asked)
		entries = append(entries, translate.EntryOfBytes(single(route, asked), xds.VHostURL, append(b, v.Rest[name:]...)))
	}
	if v.OnDemand.Entries == nil {
		v.OnDemand.Entries = make(map[string][]*xds.Entry)
	}
	v.OnDemand.Entries[domain] = entries
	return entries
}

// single is under which name Envoy asks for the virtual host of a host.
func single(route, host string) string { return route + "/" + host }

func askedAs(route, domain string) []string { return []string{domain, domain + ":" + route} }

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

// demand notes that the virtual host of a domain among some routes may be another one now: v, if nobody else has the domain.
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

// include says whether routes are among them, as they are from now on if they are to be sent in full.
func (w *fullRoutes) include(route string, whole bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.names[route]; known || !whole {
		return known
	}
	if w.names == nil {
		w.names = make(map[string]struct{})
	}
	w.names[route] = struct{}{}
	return true
}

// shareWholes encodes those routes again that were sent in full to others meanwhile: their clients may come here.
func (c *change) shareWholes() {
	if !c.profile.OnDemand {
		return
	}
	for route, r := range c.shared {
		if !r.whole && c.fullRoutes.include(route, false) {
			c.routes[route] = true
		}
	}
}

// shareOnDemand puts together the routes of a port for those who ask for virtual hosts. Nobody could ask for one that stands for several
// hosts, and one that is there keeps Envoy from asking for those: routes with such a host are sent in full, and stay so, in whatever scope,
// since Envoy does not forget what it asked for.
func (c *change) shareOnDemand(route string, r *sharedRoutes) (whole bool) {
	wild := false
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
				for _, asked := range askedAs(route, domain) {
					remove(c.commits, c.virtualHosts, single(route, asked))
				}
				continue
			case v == nil || r.domains[domain] > 1:
				v = r.owner(domain)
			}
			for _, e := range singles(v, route, domain) {
				put(c.commits, c.virtualHosts, e)
			}
		}
	}
}

// onDemandTimeout is how long a request or connection waits for a cluster that it asked for.
const onDemandTimeout = 5 * time.Second

// onDemand makes a listener one whose filters ask for what they lack.
func onDemand(l *listenerv3.Listener) {
	for _, chain := range append(l.GetFilterChains(), l.GetDefaultFilterChain()) {
		for _, f := range chain.GetFilters() {
			m, err := f.GetTypedConfig().UnmarshalNew()
			if err != nil {
				continue // it is none of ours
			}
			switch m := m.(type) {
			case *hcmv3.HttpConnectionManager:
				ask := translate.HTTPFilter("envoy.filters.http.on_demand",
					&demandv3.OnDemand{Odcds: &demandv3.OnDemandCds{Source: translate.Ads(), Timeout: durationpb.New(onDemandTimeout)}})
				m.HttpFilters = append([]*hcmv3.HttpFilter{ask}, m.GetHttpFilters()...)
			case *tcpv3.TcpProxy:
				m.OnDemand = &tcpv3.TcpProxy_OnDemand{OdcdsConfig: translate.Ads(), Timeout: durationpb.New(onDemandTimeout)}
			default:
				continue
			}
			f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: model.ToAny(m)}
		}
	}
}
