package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
)

// l4Route routes connections for some server names or to some addresses, or all if it has neither.
type l4Route struct {
	place              model.Place // of its definition
	servers            []string    // of a TLS handshake; *. in front matches all subdomains
	subnets            []string
	stats              string
	clusters           []weightedCluster
	options            tcpOptions
	fromVirtualService bool // of a VirtualService, which the metadata names, as istiod does at sidecars
}

// tcpOptions are a policy's settings for TCP connections.
type tcpOptions struct {
	idleTimeout, maxDuration time.Duration // 0 for Envoy's own default
	bySource                 bool          // connections of one address go to one endpoint
}

func tcpOptionsOf(trafficPolicy *networking.TrafficPolicy) tcpOptions {
	tcp := trafficPolicy.GetConnectionPool().GetTcp()
	return tcpOptions{
		idleTimeout: model.Shortened(tcp.GetIdleTimeout()).AsDuration(),
		maxDuration: model.Shortened(tcp.GetMaxConnectionDuration()).AsDuration(),
		bySource:    trafficPolicy.GetLoadBalancer().GetConsistentHash().GetUseSourceIp(),
	}
}

// weightedCluster is a cluster and its share of the connections.
type weightedCluster struct {
	cluster string
	weight  uint32
}

func (r l4Route) equal(o l4Route) bool {
	return r.place == o.place && r.stats == o.stats && r.options == o.options &&
		r.fromVirtualService == o.fromVirtualService &&
		slices.Equal(r.servers, o.servers) && slices.Equal(r.subnets, o.subnets) && slices.Equal(r.clusters, o.clusters)
}

func (r l4Route) proxy(seen *model.Observation) *listenerv3.Filter {
	proxy := &tcpv3.TcpProxy{StatPrefix: r.stats, AccessLog: telemetry.ConnectionLogs(seen)}
	if len(r.clusters) == 1 {
		proxy.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: r.clusters[0].cluster}
	} else {
		weighted := &tcpv3.TcpProxy_WeightedCluster{}
		for _, target := range r.clusters {
			weighted.Clusters = append(weighted.Clusters,
				&tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: target.cluster, Weight: target.weight})
		}
		proxy.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: weighted}
	}
	if r.options.idleTimeout > 0 {
		proxy.IdleTimeout = durationpb.New(r.options.idleTimeout)
	}
	if r.options.maxDuration > 0 {
		proxy.MaxDownstreamConnectionDuration = durationpb.New(r.options.maxDuration)
	}
	if r.options.bySource {
		proxy.HashPolicy = []*typev3.HashPolicy{
			{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}},
		}
	}
	return model.NetworkFilter("envoy.filters.network.tcp_proxy", proxy)
}

// usedMatches has the matches of a listener's filter chains. Envoy refuses a listener with two equal matches.
type usedMatches map[[2]string]bool // server name and range of addresses

// add returns the match of a route for those server names and address ranges that no other route has, or false if there
// are none.
func (m usedMatches) add(servers, subnets []string) (*listenerv3.FilterChainMatch, bool) {
	filterChainMatch := &listenerv3.FilterChainMatch{}
	var ranges []netip.Prefix
	for _, s := range subnets {
		if p, ok := prefixOf(s); ok && !slices.Contains(ranges, p) {
			ranges = append(ranges, p)
		}
	}
	if len(servers) == 0 || slices.Contains(servers, "*") {
		servers = []string{""}
	}
	for _, name := range servers {
		matches := [][2]string{{name, ""}}
		if len(subnets) > 0 {
			matches = matches[:0]
			for _, p := range ranges {
				matches = append(matches, [2]string{name, p.String()})
			}
		}
		if len(matches) == 0 || strings.Contains(strings.TrimPrefix(name, "*."), "*") ||
			slices.ContainsFunc(matches, func(w [2]string) bool { return m[w] }) {
			continue
		}
		for _, w := range matches {
			m[w] = true
		}
		filterChainMatch.ServerNames = append(filterChainMatch.ServerNames, name)
	}
	if len(filterChainMatch.GetServerNames()) == 0 {
		return nil, false
	}
	if filterChainMatch.GetServerNames()[0] == "" {
		filterChainMatch.ServerNames = nil
	}
	for _, p := range ranges {
		filterChainMatch.PrefixRanges = append(filterChainMatch.PrefixRanges, &corev3.CidrRange{
			AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits())),
		})
	}
	return filterChainMatch, true
}

func prefixOf(text string) (netip.Prefix, bool) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Masked(), true
	}
	address, _ := netip.ParseAddr(text)
	return netip.PrefixFrom(address, address.BitLen()), resource.IsAddress(text)
}

// filterChain returns the filter chain of the route, or nil if other routes take all its connections.
func (r l4Route) filterChain(m usedMatches, seen *model.Observation, findings *model.Findings) *listenerv3.FilterChain {
	match, ok := m.add(r.servers, r.subnets)
	if !ok {
		findings.Note(r.place, "other routes already take all its connections")
		return nil
	}
	filterChain := &listenerv3.FilterChain{
		TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
		Filters:                       []*listenerv3.Filter{r.proxy(seen)},
	}
	if len(match.GetServerNames())+len(match.GetPrefixRanges()) > 0 {
		filterChain.FilterChainMatch = match
	}
	if r.fromVirtualService {
		filterChain.Metadata = virtualServiceMetadata(r.place.Object)
	}
	return filterChain
}

// l4Route returns a route to the destinations at a place.
func (r routeContext) l4Route(routes []*networking.RouteDestination, place model.Place) l4Route {
	route := l4Route{place: place}
	for i, destination := range routes {
		if destination.GetDestination() != nil && (destination.GetWeight() > 0 || len(routes) == 1) {
			if len(route.clusters) == 0 {
				route.options = tcpOptionsOf(r.policyOf(destination.GetDestination()))
			}
			route.clusters = append(route.clusters, weightedCluster{
				r.clusterName(destination.GetDestination(), place.Subfield("route[%d].destination", i)),
				uint32(max(destination.GetWeight(), 1)),
			})
		}
	}
	switch len(route.clusters) {
	case 0:
		route.clusters = []weightedCluster{{model.BlackHole, 1}}
		route.stats = model.BlackHole
	case 1:
		route.stats = route.clusters[0].cluster
	default:
		route.stats = fmt.Sprintf("%s.%s", r.virtualService.Key.Name, r.virtualService.Key.Namespace)
	}
	return route
}

// tlsRoutes returns the VirtualService's routes of TLS connections, by server name.
func (r routeContext) tlsRoutes() (routes []l4Route) {
	for i, tlsRoute := range r.virtualService.Spec.GetTls() {
		for _, match := range tlsRoute.GetMatch() {
			if r.applies(match) {
				route := r.l4Route(tlsRoute.GetRoute(), model.PlaceIn(r.virtualService.Key, "spec.tls[%d]", i))
				for _, serverName := range match.GetSniHosts() {
					route.servers = append(route.servers, strings.ToLower(serverName))
				}
				route.subnets = match.GetDestinationSubnets()
				routes = append(routes, route)
			}
		}
	}
	return routes
}

// tcpRoutes returns the VirtualService's routes of TCP connections.
func (r routeContext) tcpRoutes() (routes []l4Route) {
	for i, tcpRoute := range r.virtualService.Spec.GetTcp() {
		place := model.PlaceIn(r.virtualService.Key, "spec.tcp[%d]", i)
		if len(tcpRoute.GetMatch()) == 0 {
			return append(routes, r.l4Route(tcpRoute.GetRoute(), place))
		}
		for _, m := range tcpRoute.GetMatch() {
			if r.applies(m) {
				c := r.l4Route(tcpRoute.GetRoute(), place)
				c.subnets = m.GetDestinationSubnets()
				routes = append(routes, c)
			}
		}
	}
	return routes
}

// l4Routes returns the routes of connections to a port of the service.
func l4Routes(view *model.View, port *model.Port, findings *model.Findings) (routes []l4Route) {
	cluster := model.ClusterName(port.Number, "", view.Service.Host)
	byDefault := l4Route{
		place: port.Place(), stats: cluster, clusters: []weightedCluster{{cluster, 1}},
		options: tcpOptionsOf(view.Policy.On(port.Number, nil)),
	}
	context := routeContext{
		view: view, virtualService: view.RoutesByListener[port.Part], port: port.Number, findings: findings,
	}
	mark := func(routes []l4Route) []l4Route {
		for i := range routes {
			routes[i].fromVirtualService = true
		}
		return routes
	}
	switch {
	case port.Spoken == model.ProtocolTLS:
		if context.virtualService != nil {
			routes = mark(context.tlsRoutes())
		}
		if len(routes) == 0 {
			// A captured address identifies the service without a server name.
			if !view.Client.Captures || !slices.ContainsFunc(view.Service.Addresses, resource.IsAddress) {
				byDefault.servers = []string{view.Service.Host}
			}
			routes = []l4Route{byDefault}
		}
	case port.Spoken.HTTP():
	default:
		if context.virtualService != nil {
			routes = mark(context.tcpRoutes())
		}
		if !slices.ContainsFunc(routes, func(route l4Route) bool { return len(route.subnets) == 0 }) {
			routes = append(routes, byDefault)
		}
	}
	return routes
}
