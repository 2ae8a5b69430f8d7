package envoy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/xds"
)

// gRPC clients are preannounced the clusters of a RouteConfiguration, which is a resource of its own or in the ApiListener of a
// Listener.

// TypeOf returns the type of an Envoy resource, with Preannounce and Needs for gRPC clients, and Fallback for Envoys.
func TypeOf(typeURL string) xds.Type {
	t := xds.TypeOf(typeURL)
	switch typeURL {
	case xds.ClusterURL:
		t.Needs = clustersWithin
	case xds.ListenerURL:
		t.Preannounce, t.Fallback = preannounceListener, fallbackListener
	case xds.RouteURL:
		t.Preannounce = preannounceRoutes
	}
	return t
}

// preannounceRoutes is Type.Preannounce of RouteConfigurations.
func preannounceRoutes(has, next *xds.Entry) (interim *xds.Entry, dependencies []xds.Dependency) {
	var from, to routev3.RouteConfiguration
	if !decode(has, &from) || !decode(next, &to) {
		return nil, nil
	}
	if dependencies = preannounceClusters(&from, &to); len(dependencies) == 0 {
		return nil, nil
	}
	return with(next, &from), dependencies
}

// preannounceListener is Type.Preannounce of Listeners. A change to a RouteConfiguration of another name is not preannounced.
func preannounceListener(has, next *xds.Entry) (interim *xds.Entry, dependencies []xds.Dependency) {
	from, fromHTTP := apiListener(has)
	to, toHTTP := apiListener(next)
	if from == nil || to == nil {
		return nil, nil
	}
	if dependencies = preannounceClusters(fromHTTP.GetRouteConfig(), toHTTP.GetRouteConfig()); len(dependencies) == 0 {
		return nil, nil
	}
	inner := from.ApiListener.ApiListener
	if err := anypb.MarshalFrom(inner, fromHTTP, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, nil
	}
	return with(next, from), dependencies
}

// apiListener returns the Listener that an entry is, and what it has for gRPC; nil if it is none, or has nothing.
func apiListener(e *xds.Entry) (*listenerv3.Listener, *hcmv3.HttpConnectionManager) {
	var l listenerv3.Listener
	var http hcmv3.HttpConnectionManager
	if !decode(e, &l) || l.GetApiListener().GetApiListener().UnmarshalTo(&http) != nil || http.GetRouteConfig() == nil {
		return nil, nil
	}
	return &l, &http
}

// clustersWithin is Type.Needs of Clusters: the clusters of which an aggregate cluster consists.
func clustersWithin(e *xds.Entry) []string {
	var c clusterv3.Cluster
	var within aggregatev3.ClusterConfig
	if e.Child != "" || !decode(e, &c) || c.GetClusterType().GetTypedConfig().UnmarshalTo(&within) != nil {
		return nil
	}
	return within.GetClusters()
}

// decode reports whether e is a message of the type of m, which it fills in.
func decode(e *xds.Entry, m proto.Message) bool {
	var body anypb.Any
	return proto.Unmarshal(e.Any, &body) == nil && body.MessageIs(m) && body.UnmarshalTo(m) == nil
}

// with returns e with another message for content, or nil.
func with(e *xds.Entry, m proto.Message) *xds.Entry {
	changed, err := xds.NewEntry(m)
	if err != nil {
		return nil
	}
	changed.Name, changed.Child = e.Name, e.Child
	return changed
}

// preannounceClusters adds to from, for each virtual host, routes to the clusters that its clients will use with the configuration
// to, and do not use yet. No request takes these routes.
func preannounceClusters(from, to *routev3.RouteConfiguration) (dependencies []xds.Dependency) {
	hosts, next := hostsOf(from), hostsOf(to)
	become := make(map[*routev3.VirtualHost][]*routev3.VirtualHost) // the virtual hosts that clients of one will have instead
	for domain, vh := range hosts.domains {
		become[vh] = append(become[vh], next.find(domain))
	}
	for domain, vh := range next.domains {
		if was := hosts.find(domain); was != nil {
			become[was] = append(become[was], vh)
		}
	}
	for _, vh := range from.GetVirtualHosts() {
		used, will := make(map[string]struct{}), make(map[string]struct{})
		addClusters(used, vh)
		for _, n := range become[vh] {
			addClusters(will, n)
		}
		maps.DeleteFunc(will, func(name string, _ struct{}) bool { _, ok := used[name]; return ok })
		if len(used) == 0 || len(will) == 0 { // no request got anywhere, or none gets anywhere new
			continue
		}
		l := xds.Dependency{From: slices.Sorted(maps.Keys(used)), To: slices.Sorted(maps.Keys(will))}
		for _, cluster := range l.To {
			vh.Routes = append(vh.Routes, idleRoute(cluster))
		}
		dependencies = append(dependencies, l)
	}
	return dependencies
}

// idleRoute is a route that no request takes, since no header is both there and not there.
func idleRoute(cluster string) *routev3.Route {
	present := func(present bool) *routev3.HeaderMatcher {
		return &routev3.HeaderMatcher{Name: "x-introduced", HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: present}}
	}
	return &routev3.Route{
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_Prefix{}, Headers: []*routev3.HeaderMatcher{present(true), present(false)},
		},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
	}
}

// addClusters adds the clusters that requests to a virtual host go to. Clients of gRPC do not take routes that look at the
// parameters of a query, nor send anything to mirrors.
func addClusters(clusters map[string]struct{}, vh *routev3.VirtualHost) {
	for _, r := range vh.GetRoutes() {
		if len(r.GetMatch().GetQueryParameters()) > 0 {
			continue
		}
		if name := r.GetRoute().GetCluster(); name != "" {
			clusters[name] = struct{}{}
		}
		for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
			if c.GetWeight().GetValue() > 0 {
				clusters[c.GetName()] = struct{}{}
			}
		}
	}
}

// hosts are the virtual hosts of a RouteConfiguration by their domains.
type hosts struct {
	domains   map[string]*routev3.VirtualHost
	wildcards []string // the wildcard domains, the most specific first
}

func hostsOf(c *routev3.RouteConfiguration) *hosts {
	h := &hosts{domains: make(map[string]*routev3.VirtualHost)}
	for _, vh := range c.GetVirtualHosts() {
		for _, domain := range vh.GetDomains() {
			if _, ok := h.domains[domain]; ok {
				continue
			}
			h.domains[domain] = vh
			if kindOf(domain) != oneDomain {
				h.wildcards = append(h.wildcards, domain)
			}
		}
	}
	slices.SortFunc(h.wildcards, func(a, b string) int { // endings before beginnings, the longer first
		return cmp.Or(cmp.Compare(kindOf(a), kindOf(b)), cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return h
}

// find returns the virtual host for a domain, or nil. For a wildcard domain it is the one that most of its hosts have.
func (h *hosts) find(domain string) *routev3.VirtualHost {
	if vh := h.domains[domain]; vh != nil {
		return vh
	}
	for _, w := range h.wildcards {
		if covers(w, domain) {
			return h.domains[w]
		}
	}
	return nil
}

// The kinds of domains, in the order in which they are looked at.
const (
	oneDomain = iota
	ending    // *.example.com
	beginning // www.*
	anyDomain
)

func kindOf(domain string) int {
	switch {
	case domain == "*":
		return anyDomain
	case strings.HasPrefix(domain, "*"):
		return ending
	case strings.HasSuffix(domain, "*"):
		return beginning
	}
	return oneDomain
}

// covers says whether wildcard matches all that domain matches.
func covers(wildcard, domain string) bool {
	of := kindOf(domain)
	switch kindOf(wildcard) {
	case anyDomain:
		return true
	case ending:
		return (of == oneDomain || of == ending) && strings.HasSuffix(domain, wildcard[1:])
	case beginning:
		return (of == oneDomain || of == beginning) && strings.HasPrefix(domain, wildcard[:len(wildcard)-1])
	}
	return false
}
