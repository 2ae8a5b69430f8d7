package translate

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
)

// claim is what a service needs served at a binding.
type claim struct {
	place    model.Place // of the port
	late     bool        // served only where no other claim holds the binding
	protocol model.Protocol
	routes   []l4Route // none for HTTP
}

func (c claim) Equal(o claim) bool {
	return c.place == o.place && c.late == o.late && c.protocol == o.protocol && slices.EqualFunc(c.routes, o.routes, l4Route.equal)
}

// isLimited reports whether the claim is for some ranges of addresses only.
func (c claim) isLimited() bool {
	return !slices.ContainsFunc(c.routes, func(r l4Route) bool { return len(r.subnets) == 0 })
}

// within returns the claim limited to some ranges of addresses, except for routes that have their own.
func (c claim) within(ranges []string) claim {
	c.routes = slices.Clone(c.routes)
	for i := range c.routes {
		if len(c.routes[i].subnets) == 0 {
			c.routes[i].subnets = ranges
		}
	}
	return c
}

// claimsOf returns the claims of a port of the service for sidecars of the profile. HTTP has one listener a port for all services, told
// apart by host. Without interception all listeners are on the loopback interface; with it, those of other protocols have the addresses
// of the service, if it has any.
func claimsOf(v *model.View, p *model.Port, client model.Profile, found *model.Findings) map[model.Binding]claim {
	s, c := v.Service, claim{place: p.Place(), late: p.Late, protocol: p.Spoken, routes: l4Routes(v, p, client, found)}
	if c.protocol == model.ProtocolTLS && !slices.ContainsFunc(c.routes, func(r l4Route) bool { return len(r.servers) > 0 }) {
		c.protocol = model.ProtocolTCP
	}
	switch {
	case p.Bind != "":
		return map[model.Binding]claim{{Address: p.Bind, Port: p.Number}: c}
	case !client.Captures:
		return map[model.Binding]claim{{Address: model.Localhost, Port: p.Number}: c}
	case p.Spoken.HTTP():
		return map[model.Binding]claim{{Address: model.Wildcard, Port: p.Number}: c}
	}
	at := make(map[model.Binding]claim)
	for _, a := range s.Addresses {
		if resource.IsAddress(a) {
			at[model.Binding{Address: a, Port: p.Number}] = c
		}
	}
	if len(at) == 0 {
		at[model.Binding{Address: model.Wildcard, Port: p.Number}] = c.within(s.Ranges())
	}
	return at
}

// Listener builds the listener of a binding from its claims, highest precedence first, and returns what cannot be served. The first claim
// decides the protocol. For TCP one service takes what no address range of another covers.
func Listener(b model.Binding, claims []claimant, opts ListenerOptions) (l *listenerv3.Listener, found model.Findings) {
	l = &listenerv3.Listener{
		Name: model.ListenerName(b.Address, b.Port), Address: socket(b.Address, b.Port), TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		ListenerFiltersTimeout: durationpb.New(0), ContinueOnListenerFiltersTimeout: true,
	}
	if opts.Captures {
		l.BindToPort = wrapperspb.Bool(false)
	}
	first := claims[0].claim.protocol
	sameProtocol := func(c claim) bool {
		return c.late == claims[0].claim.late && (c.protocol == first || c.protocol.HTTP() && first.HTTP())
	}
	served := sameProtocol
	switch {
	case first.HTTP():
		l.FilterChains = []*listenerv3.FilterChain{HTTPChain(b, opts)}
		if opts.Captures { // other protocols pass
			l.ListenerFilters = []*listenerv3.ListenerFilter{listenerFilter("envoy.filters.listener.http_inspector", &inspectorv3.HttpInspector{})}
			l.FilterChains[0].FilterChainMatch = &listenerv3.FilterChainMatch{
				TransportProtocol:    "raw_buffer",
				ApplicationProtocols: []string{"http/1.1", "h2c"},
			}
			l.DefaultFilterChain = opts.PassOn()
		}
	case first == model.ProtocolTLS:
		used := make(usedMatches)
		for i, c := range claims {
			routes := c.claim.routes
			if i == 0 && b.Address != model.Wildcard && !routes[0].fromRule { // no server name, or an unknown one: the first service, as with istiod
				routes = slices.Clone(routes)
				routes[0].servers = nil
			}
			if served(c.claim) {
				l.FilterChains = append(l.FilterChains, filterChains(routes, used, opts.Observation, &found)...)
			}
		}
		if slices.ContainsFunc(l.GetFilterChains(), func(c *listenerv3.FilterChain) bool {
			return len(c.GetFilterChainMatch().GetServerNames()) > 0
		}) {
			l.ListenerFilters = []*listenerv3.ListenerFilter{inspectTLS()}
		}
	default:
		used := make(usedMatches)
		// Services with address ranges are told apart by these; one other service has the rest.
		rest := slices.IndexFunc(claims, func(c claimant) bool { return sameProtocol(c.claim) && !c.claim.isLimited() })
		served = func(c claim) bool { return sameProtocol(c) && (c.isLimited() || c.Equal(claims[rest].claim)) }
		for _, c := range claims {
			if served(c.claim) {
				l.FilterChains = append(l.FilterChains, filterChains(c.claim.routes, used, opts.Observation, &found)...)
			}
		}
	}
	for _, c := range l.GetFilterChains() {
		c.Filters = extend.WithPlugins(opts.Extension, c.GetFilters(), typev1beta1.WorkloadMode_CLIENT, b.Port)
	}
	if opts.Captures && !slices.ContainsFunc(l.GetFilterChains(),
		func(c *listenerv3.FilterChain) bool { return c.GetFilterChainMatch() == nil }) {
		l.DefaultFilterChain = opts.PassOn()
	}
	for _, c := range claims[1:] {
		if !served(c.claim) {
			found.Note(c.claim.place, "%s, which has precedence, speaks %s on %s", claims[0].host, first, model.HostPort(b.Address, b.Port))
		}
	}
	return l, found
}

// chainTimeout, in seconds, bounds the transport handshake.
const chainTimeout = 15

func filterChains(routes []l4Route, used usedMatches, seen *model.Observation, found *model.Findings) (all []*listenerv3.FilterChain) {
	for _, r := range routes {
		if f := r.filterChain(used, seen, found); f != nil {
			all = append(all, f)
		}
	}
	return all
}

func tcpProxy(cluster string, seen *model.Observation) *listenerv3.Filter {
	return l4Route{stats: cluster, to: []share{{cluster, 1}}}.proxy(seen)
}

// ListenerOptions are the settings all listeners of a scope share.
type ListenerOptions struct {
	Captures    bool               // connections are redirected to them
	Transparent bool               // redirection keeps the original addresses
	Restricted  bool               // unclaimed connections go to the BlackHole cluster
	Observation *model.Observation // logs and traces
	Extension   *model.Extension   // by EnvoyFilters and WasmPlugins
}

// Equal reports whether both are the same.
func (opts ListenerOptions) Equal(o ListenerOptions) bool {
	return opts.Captures == o.Captures && opts.Transparent == o.Transparent && opts.Restricted == o.Restricted &&
		opts.Observation.Equal(o.Observation) && opts.Extension.Equal(o.Extension)
}

// PassOn returns the filter chain of unclaimed connections: to their original address or, if restricted, to the BlackHole cluster.
func (opts ListenerOptions) PassOn() *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		Name: "PassthroughFilterChain", FilterChainMatch: &listenerv3.FilterChainMatch{},
		Filters: []*listenerv3.Filter{tcpProxy(unclaimedCluster(opts.Restricted), opts.Observation)},
	}
}

func unclaimedCluster(restricted bool) string {
	if restricted {
		return model.BlackHole
	}
	return model.Passthrough
}

// HTTPChain returns the filter chain for the requests of a binding.
func HTTPChain(b model.Binding, opts ListenerOptions) *listenerv3.FilterChain {
	address := model.Localhost
	if opts.Captures {
		address = model.Wildcard
	}
	manager := httpManager(model.StatName("outbound_"+model.ListenerName(address, b.Port)), model.RouteName(b.Port), opts.Observation)
	manager.HttpFilters = extend.WithPlugins(opts.Extension, manager.GetHttpFilters(), typev1beta1.WorkloadMode_CLIENT, b.Port)
	return managed(manager)
}

// managed returns a filter chain of requests.
func managed(m *hcmv3.HttpConnectionManager) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
		Filters:                       []*listenerv3.Filter{model.NetworkFilter("envoy.filters.network.http_connection_manager", m)},
	}
}

func httpManager(stats, routes string, seen *model.Observation) *hcmv3.HttpConnectionManager {
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:     stats,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: Ads(), RouteConfigName: routes}},
		HttpFilters: []*hcmv3.HttpFilter{
			model.HTTPFilter("envoy.filters.http.grpc_stats", &grpcstatsv3.FilterConfig{
				EmitFilterState:        true,
				PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: wrapperspb.Bool(false)},
			}),
			model.HTTPFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
			model.HTTPFilter("envoy.filters.http.cors", &corsv3.Cors{}),
			model.HTTPFilter("envoy.filters.http.router", &routerv3.Router{}),
		},
		StreamIdleTimeout: durationpb.New(0), UseRemoteAddress: wrapperspb.Bool(false), Proxy_100Continue: true,
		NormalizePath: wrapperspb.Bool(true), PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
		UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
	}
	telemetry.OfRequests(seen, m)
	return m
}

// VirtualOutbound returns the listener of redirected connections, which hands them to that of their original address or passes them on.
func (opts ListenerOptions) VirtualOutbound() *listenerv3.Listener {
	const name = "virtualOutbound"
	l := &listenerv3.Listener{
		Name: name, Address: socket(model.Wildcard, model.OutboundPort), UseOriginalDst: wrapperspb.Bool(true),
		TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
		MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1),
		FilterChains: []*listenerv3.FilterChain{
			refusing(name+"-blackhole", model.OutboundPort), // a connection to this port would loop
			{Name: name + "-catchall-tcp", Filters: []*listenerv3.Filter{tcpProxy(unclaimedCluster(opts.Restricted), opts.Observation)}},
		},
	}
	if opts.Transparent {
		l.Transparent = wrapperspb.Bool(true)
	}
	telemetry.OfStrays(opts.Observation, l)
	return l
}

// grpcListener returns the listener for gRPC clients that dial name.
func grpcListener(s *model.Service, p *model.Port, name string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name, Address: socket(model.Wildcard, p.Number),
		ApiListener: &listenerv3.ApiListener{ApiListener: model.ToAny(&hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
				ConfigSource:    Ads(),
				RouteConfigName: model.ClusterName(p.Number, "", s.Host),
			}},
			HttpFilters: []*hcmv3.HttpFilter{
				model.HTTPFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
				model.HTTPFilter("envoy.filters.http.router", &routerv3.Router{}),
			},
		})},
	}
}

func socket(address string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: model.ToAny(config)}}
}
