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

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
)

// claim is a service's wish to be served at a binding.
type claim struct {
	place    model.Place // of the port
	late     bool        // it takes what others leave
	protocol model.Protocol
	chains   []chain // but of HTTP, which routes tell apart
}

func (c claim) Equal(o claim) bool {
	return c.place == o.place && c.late == o.late && c.protocol == o.protocol && slices.EqualFunc(c.chains, o.chains, chain.equal)
}

// isLimited says whether the claim is for some ranges of addresses only.
func (c claim) isLimited() bool {
	return !slices.ContainsFunc(c.chains, func(c chain) bool { return len(c.subnets) == 0 })
}

// within returns the claim for connections to some ranges of addresses only, where it does not say to which itself.
func (c claim) within(ranges []string) claim {
	c.chains = slices.Clone(c.chains)
	for i := range c.chains {
		if len(c.chains[i].subnets) == 0 {
			c.chains[i].subnets = ranges
		}
	}
	return c
}

// claimsOf returns where a port of the service is to be served to a sidecar of the profile. HTTP has one listener a port for all services,
// told apart by host. Without interception all listeners are on the loopback interface; with it those of other protocols
// have the addresses of the service, if it has some.
func claimsOf(v *model.View, p *model.Port, client model.Profile, found *model.Findings) map[model.Binding]claim {
	s, c := v.Service, claim{place: p.Place(), late: p.Late, protocol: p.Spoken, chains: chains(v, p, client, found)}
	if c.protocol == model.ProtocolTLS && !slices.ContainsFunc(c.chains, func(c chain) bool { return len(c.servers) > 0 }) {
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

// Listener returns the listener of a binding for those who claim it, the oldest first, and what cannot be served of their claims. The
// oldest decides what is spoken there: HTTP, TLS that is told apart by server name, or TCP, of
// which one service has all that no other one has ranges of addresses for.
func Listener(b model.Binding, claims []claimant, by ListenerOptions) (l *listenerv3.Listener, found model.Findings) {
	l = &listenerv3.Listener{
		Name: model.ListenerName(b.Address, b.Port), Address: socket(b.Address, b.Port), TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		ListenerFiltersTimeout: durationpb.New(0), ContinueOnListenerFiltersTimeout: true,
	}
	if by.Captures {
		l.BindToPort = wrapperspb.Bool(false)
	}
	first := claims[0].claim.protocol
	same := func(c claim) bool {
		return c.late == claims[0].claim.late && (c.protocol == first || c.protocol.HTTP() && first.HTTP())
	}
	switch {
	case first.HTTP():
		l.FilterChains = []*listenerv3.FilterChain{HTTPChain(b, by)}
		if by.Captures { // what is not HTTP goes on
			l.ListenerFilters = []*listenerv3.ListenerFilter{listenerFilter("envoy.filters.listener.http_inspector", &inspectorv3.HttpInspector{})}
			l.FilterChains[0].FilterChainMatch = &listenerv3.FilterChainMatch{
				TransportProtocol:    "raw_buffer",
				ApplicationProtocols: []string{"http/1.1", "h2c"},
			}
			l.DefaultFilterChain = by.PassOn()
		}
	case first == model.ProtocolTLS:
		used := make(matching)
		for i, c := range claims {
			chains := c.claim.chains
			if i == 0 && b.Address != model.Wildcard && !chains[0].named { // no server name, or an unknown one: the oldest service, as with istiod
				chains = slices.Clone(chains)
				chains[0].servers = nil
			}
			if same(c.claim) {
				l.FilterChains = append(l.FilterChains, filterChains(chains, used, by.Seen, &found)...)
			}
		}
		if slices.ContainsFunc(l.GetFilterChains(), func(c *listenerv3.FilterChain) bool {
			return len(c.GetFilterChainMatch().GetServerNames()) > 0
		}) {
			l.ListenerFilters = []*listenerv3.ListenerFilter{inspectTLS()}
		}
	default:
		used := make(matching)
		// Services whose addresses are ranges are told apart by these; one other service has the rest.
		sort := same
		rest := slices.IndexFunc(claims, func(c claimant) bool { return sort(c.claim) && !c.claim.isLimited() })
		same = func(c claim) bool { return sort(c) && (c.isLimited() || c.Equal(claims[rest].claim)) }
		for _, c := range claims {
			if same(c.claim) {
				l.FilterChains = append(l.FilterChains, filterChains(c.claim.chains, used, by.Seen, &found)...)
			}
		}
	}
	if by.Captures && !slices.ContainsFunc(l.GetFilterChains(),
		func(c *listenerv3.FilterChain) bool { return c.GetFilterChainMatch() == nil }) {
		l.DefaultFilterChain = by.PassOn()
	}
	for _, c := range claims[1:] {
		if !same(c.claim) {
			found.Note(c.claim.place, "%s, which is older, has %s, and speaks %s there", claims[0].host, model.HostPort(b.Address, b.Port), first)
		}
	}
	return l, found
}

// chainTimeout is how long a connection may take to become one.
const chainTimeout = 15

func filterChains(chains []chain, used matching, seen *model.Observation, found *model.Findings) (all []*listenerv3.FilterChain) {
	for _, c := range chains {
		if f := c.filterChain(used, seen, found); f != nil {
			all = append(all, f)
		}
	}
	return all
}

func tcpProxy(cluster string, seen *model.Observation) *listenerv3.Filter {
	return chain{stats: cluster, to: []share{{cluster, 1}}}.proxy(seen)
}

// ListenerOptions is how listeners of a scope are, whatever they are for.
type ListenerOptions struct {
	Captures   bool               // connections are redirected to them
	Intact     bool               // with the address that they were meant for
	Restricted bool               // what nobody claims goes nowhere
	Seen       *model.Observation // what they log and trace
}

// Equal says whether listeners are the same with both.
func (by ListenerOptions) Equal(o ListenerOptions) bool {
	return by.Captures == o.Captures && by.Intact == o.Intact && by.Restricted == o.Restricted && by.Seen.Equal(o.Seen)
}

// PassOn sends on what nobody claims, or, if clients are restricted to what they know, nowhere.
func (by ListenerOptions) PassOn() *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		Name: "PassthroughFilterChain", FilterChainMatch: &listenerv3.FilterChainMatch{},
		Filters: []*listenerv3.Filter{tcpProxy(otherwise(by.Restricted), by.Seen)},
	}
}

// otherwise is the cluster of what nobody claims.
func otherwise(restricted bool) string {
	if restricted {
		return model.BlackHole
	}
	return model.Passthrough
}

// HTTPChain returns the filter chain for the requests of a binding.
func HTTPChain(b model.Binding, by ListenerOptions) *listenerv3.FilterChain {
	address := model.Localhost
	if by.Captures {
		address = model.Wildcard
	}
	manager := httpManager(model.StatName("outbound_"+model.ListenerName(address, b.Port)), model.RouteName(b.Port), by.Seen)
	return &listenerv3.FilterChain{
		TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
		Filters:                       []*listenerv3.Filter{networkFilter("envoy.filters.network.http_connection_manager", manager)},
	}
}

func httpManager(stats, routes string, seen *model.Observation) *hcmv3.HttpConnectionManager {
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:     stats,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: Ads(), RouteConfigName: routes}},
		HttpFilters: []*hcmv3.HttpFilter{
			HTTPFilter("envoy.filters.http.grpc_stats", &grpcstatsv3.FilterConfig{
				EmitFilterState:        true,
				PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: wrapperspb.Bool(false)},
			}),
			HTTPFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
			HTTPFilter("envoy.filters.http.cors", &corsv3.Cors{}),
			HTTPFilter("envoy.filters.http.router", &routerv3.Router{}),
		},
		StreamIdleTimeout: durationpb.New(0), UseRemoteAddress: wrapperspb.Bool(false), Proxy_100Continue: true,
		NormalizePath: wrapperspb.Bool(true), PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
		UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
	}
	telemetry.OfRequests(seen, m)
	return m
}

// VirtualOutbound is the listener that redirected connections come to: it hands them to that of the address that they were meant for, or
// passes them on.
func (by ListenerOptions) VirtualOutbound() *listenerv3.Listener {
	const name = "virtualOutbound"
	l := &listenerv3.Listener{
		Name: name, Address: socket(model.Wildcard, model.OutboundPort), UseOriginalDst: wrapperspb.Bool(true),
		TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
		MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1),
		FilterChains: []*listenerv3.FilterChain{
			{
				Name:             name + "-blackhole", // a connection to this very port would go round in circles
				FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(model.OutboundPort)},
				Filters:          []*listenerv3.Filter{tcpProxy(model.BlackHole, nil)},
			},
			{Name: name + "-catchall-tcp", Filters: []*listenerv3.Filter{tcpProxy(otherwise(by.Restricted), by.Seen)}},
		},
	}
	if by.Intact {
		l.Transparent = wrapperspb.Bool(true)
	}
	telemetry.OfStrays(by.Seen, l)
	return l
}

// grpcListener is what a gRPC client that dials name asks for.
func grpcListener(s *model.Service, p *model.Port, name string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name, Address: socket(model.Wildcard, p.Number),
		ApiListener: &listenerv3.ApiListener{ApiListener: model.ToAny(&hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
				ConfigSource:    Ads(),
				RouteConfigName: model.ClusterName(p.Number, "", s.Host),
			}},
			HttpFilters: []*hcmv3.HttpFilter{
				HTTPFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
				HTTPFilter("envoy.filters.http.router", &routerv3.Router{}),
			},
		})},
	}
}

func socket(address string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: model.ToAny(config)}}
}

// HTTPFilter returns a filter of HTTP connection managers.
func HTTPFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: model.ToAny(config)}}
}

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: model.ToAny(config)}}
}
