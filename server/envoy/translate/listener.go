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

	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
)

// Listener builds the listener of a binding from its claims, highest precedence first, and returns findings
// for the claims that it does not serve.
func Listener(binding model.Binding, claims []claimant, opts ListenerOptions) (listener *listenerv3.Listener,
	findings model.Findings,
) {
	listener = &listenerv3.Listener{
		Name: model.ListenerName(binding.Address, binding.Port), Address: socket(binding.Address, binding.Port),
		TrafficDirection:       corev3.TrafficDirection_OUTBOUND,
		ListenerFiltersTimeout: durationpb.New(0), ContinueOnListenerFiltersTimeout: true,
	}
	if opts.Captures {
		listener.BindToPort = wrapperspb.Bool(false)
	}
	merged, used := mergeClaims(binding, claims), make(usedMatches)
	for i, c := range merged.connections {
		routes := c.claim.routes
		if i == 0 && c.claim.protocol == model.ProtocolTLS && binding.Address != model.Wildcard &&
			!routes[0].fromVirtualService {
			routes = slices.Clone(routes) // no server name, or an unknown one: the first service, as with istiod
			routes[0].servers = nil
		}
		listener.FilterChains = append(listener.FilterChains, filterChains(routes, used, opts.Observation, &findings)...)
	}
	if slices.ContainsFunc(listener.GetFilterChains(), func(c *listenerv3.FilterChain) bool {
		return len(c.GetFilterChainMatch().GetServerNames()) > 0
	}) {
		listener.ListenerFilters = append(listener.ListenerFilters, inspectTLS())
	}
	if merged.routes != "" {
		chain := HTTPChain(binding, merged.routes, opts)
		if merged.detects {
			listener.ListenerFilters = append(listener.ListenerFilters, inspectHTTP())
			chain.FilterChainMatch = &listenerv3.FilterChainMatch{
				TransportProtocol: transportPlain, ApplicationProtocols: plainHTTP,
			}
		}
		listener.FilterChains = append(listener.FilterChains, chain)
	}
	for _, c := range listener.GetFilterChains() {
		c.Filters = extend.WithPlugins(opts.Extension, c.GetFilters(), typev1beta1.WorkloadMode_CLIENT, binding.Port)
	}
	extend.NotePlugins(opts.Extension, binding.Port, merged.routes != "", &findings)
	matchAll := slices.IndexFunc(listener.GetFilterChains(),
		func(c *listenerv3.FilterChain) bool { return c.GetFilterChainMatch() == nil })
	switch {
	case matchAll >= 0 && len(listener.GetFilterChains()) > 1 && (opts.Captures || merged.routes != ""):
		listener.DefaultFilterChain = listener.GetFilterChains()[matchAll]
		listener.FilterChains = slices.Delete(listener.GetFilterChains(), matchAll, matchAll+1)
	case matchAll < 0 && opts.Captures:
		listener.DefaultFilterChain = opts.PassOn()
	}
	for _, c := range merged.refused {
		findings.Note(c.claim.place, "%s, which has precedence, speaks %s on %s",
			claims[0].host, claims[0].claim.protocol, model.HostPort(binding.Address, binding.Port))
	}
	return listener, findings
}

// chainTimeout, in seconds, bounds the transport handshake.
const chainTimeout = 15

func filterChains(routes []l4Route, used usedMatches, seen *model.Observation,
	findings *model.Findings,
) (chains []*listenerv3.FilterChain) {
	for _, r := range routes {
		if f := r.filterChain(used, seen, findings); f != nil {
			chains = append(chains, f)
		}
	}
	return chains
}

func tcpProxy(cluster string, seen *model.Observation) *listenerv3.Filter {
	return l4Route{stats: cluster, clusters: []weightedCluster{{cluster, 1}}}.proxy(seen)
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

// PassOn returns the filter chain of unclaimed connections: to their original address or, if restricted, to the
// BlackHole cluster.
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
func HTTPChain(b model.Binding, routes string, opts ListenerOptions) *listenerv3.FilterChain {
	manager := httpManager(model.StatName("outbound_"+model.ListenerName(b.Address, b.Port)), routes, opts.Observation)
	manager.HttpFilters = extend.WithPlugins(opts.Extension, manager.GetHttpFilters(), typev1beta1.WorkloadMode_CLIENT,
		b.Port)
	return managed(manager)
}

// managed returns a filter chain of requests.
func managed(manager *hcmv3.HttpConnectionManager) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
		Filters: []*listenerv3.Filter{
			model.NetworkFilter("envoy.filters.network.http_connection_manager", manager),
		},
	}
}

func httpManager(stats, routes string, seen *model.Observation) *hcmv3.HttpConnectionManager {
	manager := &hcmv3.HttpConnectionManager{
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
	telemetry.ObserveRequests(seen, manager)
	return manager
}

// VirtualOutbound returns the listener of redirected connections, which hands them to that of their original address or
// passes them on.
func (opts ListenerOptions) VirtualOutbound() *listenerv3.Listener {
	const name = "virtualOutbound"
	listener := &listenerv3.Listener{
		Name: name, Address: socket(model.Wildcard, model.OutboundCapturePort), UseOriginalDst: wrapperspb.Bool(true),
		TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
		MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1),
		FilterChains: []*listenerv3.FilterChain{
			refusing(name+"-blackhole", model.OutboundCapturePort), // a connection to this port would loop
			{Name: name + "-catchall-tcp", Filters: []*listenerv3.Filter{tcpProxy(unclaimedCluster(opts.Restricted),
				opts.Observation)}},
		},
	}
	if opts.Transparent {
		listener.Transparent = wrapperspb.Bool(true)
	}
	telemetry.ObserveUnmatched(opts.Observation, listener)
	return listener
}

// grpcListener returns the listener for gRPC clients that dial name.
func grpcListener(service *model.Service, port *model.Port, name string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name, Address: socket(model.Wildcard, port.Number),
		ApiListener: &listenerv3.ApiListener{ApiListener: model.ToAny(&hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
				ConfigSource:    Ads(),
				RouteConfigName: model.ClusterName(port.Number, "", service.Host),
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

func inspectHTTP() *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.http_inspector", &inspectorv3.HttpInspector{})
}

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{
		Name:       name,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: model.ToAny(config)},
	}
}
