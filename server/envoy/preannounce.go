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

// gRPC clients get the clusters of a RouteConfiguration before its routes. The RouteConfiguration is a separate
// resource, or part of the ApiListener of a Listener.

// TypeOf returns the type of an Envoy resource, with Preannounce and Needs for gRPC clients, and Fallback for Envoys.
func TypeOf(typeURL string) xds.Type {
	rules := xds.TypeOf(typeURL)
	switch typeURL {
	case xds.ClusterURL:
		rules.Needs = aggregatedClusters
	case xds.ListenerURL:
		rules.Preannounce = preannounceListener
		rules.Fallback = fallbackListener
	case xds.RouteURL:
		rules.Preannounce = preannounceRoutes
	}
	return rules
}

// preannounceRoutes is Type.Preannounce of RouteConfigurations.
func preannounceRoutes(current, next *xds.Entry) (interim *xds.Entry, dependencies []xds.Dependency) {
	var from, routeConfiguration routev3.RouteConfiguration
	if !decode(current, &from) || !decode(next, &routeConfiguration) {
		return nil, nil
	}
	dependencies = preannounceClusters(&from, &routeConfiguration)
	if len(dependencies) == 0 {
		return nil, nil
	}
	return withMessage(next, &from), dependencies
}

// preannounceListener is Type.Preannounce of Listeners. A RouteConfiguration with a new name is not preannounced.
func preannounceListener(current, next *xds.Entry) (interim *xds.Entry, dependencies []xds.Dependency) {
	from, fromHTTP := apiListener(current)
	to, toHTTP := apiListener(next)
	if from == nil || to == nil {
		return nil, nil
	}
	dependencies = preannounceClusters(fromHTTP.GetRouteConfig(), toHTTP.GetRouteConfig())
	if len(dependencies) == 0 {
		return nil, nil
	}
	inner := from.ApiListener.ApiListener
	if err := anypb.MarshalFrom(inner, fromHTTP, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, nil
	}
	return withMessage(next, from), dependencies
}

// apiListener decodes a Listener and its HTTP connection manager for gRPC. It returns nil for another resource, or for
// a Listener without inline routes for gRPC.
func apiListener(entry *xds.Entry) (*listenerv3.Listener, *hcmv3.HttpConnectionManager) {
	var listener listenerv3.Listener
	var http hcmv3.HttpConnectionManager
	if !decode(entry, &listener) || listener.GetApiListener().GetApiListener().UnmarshalTo(&http) != nil ||
		http.GetRouteConfig() == nil {
		return nil, nil
	}
	return &listener, &http
}

// aggregatedClusters is Type.Needs of Clusters: the members of an aggregate cluster.
func aggregatedClusters(entry *xds.Entry) []string {
	var c clusterv3.Cluster
	var aggregate aggregatev3.ClusterConfig
	if entry.Child != "" || !decode(entry, &c) || c.GetClusterType().GetTypedConfig().UnmarshalTo(&aggregate) != nil {
		return nil
	}
	return aggregate.GetClusters()
}

// decode decodes an entry into a message, and reports whether it has the type of the message.
func decode(entry *xds.Entry, message proto.Message) bool {
	var body anypb.Any
	return proto.Unmarshal(entry.Any, &body) == nil && body.MessageIs(message) && body.UnmarshalTo(message) == nil
}

// withMessage returns an entry with the name of another one and a new content, or nil.
func withMessage(entry *xds.Entry, message proto.Message) *xds.Entry {
	changed, err := xds.NewEntry(message)
	if err != nil {
		return nil
	}
	changed.Name = entry.Name
	changed.Child = entry.Child
	return changed
}

// preannounceClusters adds routes to each virtual host of from: to the clusters that its clients will use with the
// configuration to, and do not use yet. No request matches these routes.
func preannounceClusters(from, to *routev3.RouteConfiguration) (dependencies []xds.Dependency) {
	hosts, next := indexHosts(from), indexHosts(to)
	// by virtual host of from: those of to that will serve its clients
	successors := make(map[*routev3.VirtualHost][]*routev3.VirtualHost)
	for domain, host := range hosts.domains {
		successors[host] = append(successors[host], next.find(domain))
	}
	for domain, host := range next.domains {
		if previous := hosts.find(domain); previous != nil {
			successors[previous] = append(successors[previous], host)
		}
	}
	for _, host := range from.GetVirtualHosts() {
		used, upcoming := make(map[string]bool), make(map[string]bool)
		addClusters(used, host)
		for _, successor := range successors[host] {
			addClusters(upcoming, successor)
		}
		maps.DeleteFunc(upcoming, func(name string, _ bool) bool { return used[name] })
		if len(used) == 0 || len(upcoming) == 0 { // no cluster served requests, or no new cluster will
			continue
		}
		dependency := xds.Dependency{From: slices.Sorted(maps.Keys(used)), To: slices.Sorted(maps.Keys(upcoming))}
		for _, cluster := range dependency.To {
			host.Routes = append(host.Routes, idleRoute(cluster))
		}
		dependencies = append(dependencies, dependency)
	}
	return dependencies
}

// idleRoute is a route that no request matches, since no header is both present and absent.
func idleRoute(cluster string) *routev3.Route {
	present := func(present bool) *routev3.HeaderMatcher {
		return &routev3.HeaderMatcher{
			Name: "x-introduced", HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: present},
		}
	}
	return &routev3.Route{
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_Prefix{}, Headers: []*routev3.HeaderMatcher{present(true), present(false)},
		},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		}},
	}
}

// addClusters adds the clusters that serve requests to a virtual host. gRPC clients ignore mirrors and routes that
// match query parameters.
func addClusters(clusters map[string]bool, host *routev3.VirtualHost) {
	for _, route := range host.GetRoutes() {
		if len(route.GetMatch().GetQueryParameters()) > 0 {
			continue
		}
		if name := route.GetRoute().GetCluster(); name != "" {
			clusters[name] = true
		}
		for _, c := range route.GetRoute().GetWeightedClusters().GetClusters() {
			if c.GetWeight().GetValue() > 0 {
				clusters[c.GetName()] = true
			}
		}
	}
}

// hostIndex has the virtual hosts of a RouteConfiguration by their domains.
type hostIndex struct {
	domains   map[string]*routev3.VirtualHost
	wildcards []string // the wildcard domains, the most specific first
}

func indexHosts(config *routev3.RouteConfiguration) *hostIndex {
	result := &hostIndex{domains: make(map[string]*routev3.VirtualHost)}
	for _, host := range config.GetVirtualHosts() {
		for _, domain := range host.GetDomains() {
			if _, ok := result.domains[domain]; ok {
				continue
			}
			result.domains[domain] = host
			if domainKind(domain) != exactDomain {
				result.wildcards = append(result.wildcards, domain)
			}
		}
	}
	slices.SortFunc(result.wildcards, func(a, b string) int { // endings before beginnings, the longer first
		return cmp.Or(cmp.Compare(domainKind(a), domainKind(b)), cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return result
}

// find returns the virtual host for a domain, or nil. For a wildcard domain it returns the one that covers it.
func (h *hostIndex) find(domain string) *routev3.VirtualHost {
	if host := h.domains[domain]; host != nil {
		return host
	}
	for _, w := range h.wildcards {
		if wildcardCovers(w, domain) {
			return h.domains[w]
		}
	}
	return nil
}

// The kinds of domains, in the order of matching.
const (
	exactDomain  = iota
	suffixDomain // *.example.com
	prefixDomain // www.*
	anyDomain
)

func domainKind(domain string) int {
	switch {
	case domain == "*":
		return anyDomain
	case strings.HasPrefix(domain, "*"):
		return suffixDomain
	case strings.HasSuffix(domain, "*"):
		return prefixDomain
	}
	return exactDomain
}

// wildcardCovers reports whether wildcard matches every name that domain matches.
func wildcardCovers(wildcard, domain string) bool {
	kind := domainKind(domain)
	switch domainKind(wildcard) {
	case anyDomain:
		return true
	case suffixDomain:
		return (kind == exactDomain || kind == suffixDomain) && strings.HasSuffix(domain, wildcard[1:])
	case prefixDomain:
		return (kind == exactDomain || kind == prefixDomain) && strings.HasPrefix(domain, wildcard[:len(wildcard)-1])
	}
	return false
}
