package envoy

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
)

// binding is where a listener is: what is connected to there is for the services that claim it.
type binding struct {
	address string
	port    uint32
}

// claim is a service's wish to be served at a binding.
type claim struct {
	place    place // of the port
	late     bool  // it takes what others leave
	protocol protocol
	chains   []chain // but of HTTP, which routes tell apart
}

func (c claim) equal(o claim) bool {
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

const (
	wildcard  = "0.0.0.0"
	localhost = "127.0.0.1"

	outboundPort = 15001 // to which an interceptor redirects connections
)

// claims returns where a port of the service is to be served to a sidecar of the profile. HTTP has one listener a port for all services,
// told apart by host. Without interception all listeners are on the loopback interface; with it those of other protocols
// have the addresses of the service, if it has some.
func (v *view) claims(p *port, client profile, found *findings) map[binding]claim {
	s, c := v.service, claim{place: p.place(), late: p.late, protocol: p.spoken, chains: v.chains(p, client, found)}
	if c.protocol == protocolTLS && !slices.ContainsFunc(c.chains, func(c chain) bool { return len(c.servers) > 0 }) {
		c.protocol = protocolTCP
	}
	switch {
	case p.bind != "":
		return map[binding]claim{{p.bind, p.number}: c}
	case !client.captures:
		return map[binding]claim{{localhost, p.number}: c}
	case p.spoken.http():
		return map[binding]claim{{wildcard, p.number}: c}
	}
	at := make(map[binding]claim)
	for _, a := range s.addresses {
		if resource.IsAddress(a) {
			at[binding{a, p.number}] = c
		}
	}
	if len(at) == 0 {
		at[binding{wildcard, p.number}] = c.within(s.ranges())
	}
	return at
}

// listener returns the listener of a binding for those who claim it, the oldest first, and what cannot be served of their claims. The
// oldest decides what is spoken there: HTTP, TLS that is told apart by server name, or TCP, of
// which one service has all that no other one has ranges of addresses for.
func (b binding) listener(claims claimants, by manner) (l *listenerv3.Listener, found findings) {
	l = &listenerv3.Listener{
		Name: listenerName(b.address, b.port), Address: socket(b.address, b.port), TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		ListenerFiltersTimeout: durationpb.New(0), ContinueOnListenerFiltersTimeout: true,
	}
	if by.captures {
		l.BindToPort = wrapperspb.Bool(false)
	}
	first := claims[0].claim.protocol
	same := func(c claim) bool {
		return c.late == claims[0].claim.late && (c.protocol == first || c.protocol.http() && first.http())
	}
	switch {
	case first.http():
		l.FilterChains = []*listenerv3.FilterChain{b.httpChain(by)}
		if by.captures { // what is not HTTP goes on
			l.ListenerFilters = []*listenerv3.ListenerFilter{listenerFilter("envoy.filters.listener.http_inspector", &inspectorv3.HttpInspector{})}
			l.FilterChains[0].FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer", ApplicationProtocols: []string{"http/1.1", "h2c"}}
			l.DefaultFilterChain = by.passOn()
		}
	case first == protocolTLS:
		used := make(matching)
		for i, c := range claims {
			chains := c.claim.chains
			if i == 0 && b.address != wildcard && !chains[0].named { // no server name, or an unknown one: the oldest service, as with istiod
				chains = slices.Clone(chains)
				chains[0].servers = nil
			}
			if same(c.claim) {
				l.FilterChains = append(l.FilterChains, filterChains(chains, used, by.seen, &found)...)
			}
		}
		if slices.ContainsFunc(l.GetFilterChains(), func(c *listenerv3.FilterChain) bool { return len(c.GetFilterChainMatch().GetServerNames()) > 0 }) {
			l.ListenerFilters = []*listenerv3.ListenerFilter{inspectTLS()}
		}
	default:
		used := make(matching)
		// Services whose addresses are ranges are told apart by these; one other service has the rest.
		sort := same
		rest := slices.IndexFunc(claims, func(c claimant) bool { return sort(c.claim) && !c.claim.isLimited() })
		same = func(c claim) bool { return sort(c) && (c.isLimited() || c.equal(claims[rest].claim)) }
		for _, c := range claims {
			if same(c.claim) {
				l.FilterChains = append(l.FilterChains, filterChains(c.claim.chains, used, by.seen, &found)...)
			}
		}
	}
	if by.captures && !slices.ContainsFunc(l.GetFilterChains(), func(c *listenerv3.FilterChain) bool { return c.GetFilterChainMatch() == nil }) {
		l.DefaultFilterChain = by.passOn()
	}
	for _, c := range claims[1:] {
		if !same(c.claim) {
			found.note(c.claim.place, "%s, which is older, has %s, and speaks %s there", claims[0].host, hostPort(b.address, b.port), first)
		}
	}
	return l, found
}

// chainTimeout is how long a connection may take to become one.
const chainTimeout = 15

func filterChains(chains []chain, used matching, seen *observation, found *findings) (all []*listenerv3.FilterChain) {
	for _, c := range chains {
		if f := c.filterChain(used, seen, found); f != nil {
			all = append(all, f)
		}
	}
	return all
}

func tcpProxy(cluster string, seen *observation) *listenerv3.Filter {
	return chain{stats: cluster, to: []share{{cluster, 1}}}.proxy(seen)
}

// manner is how listeners of a scope are, whatever they are for.
type manner struct {
	captures   bool         // connections are redirected to them
	intact     bool         // with the address that they were meant for
	restricted bool         // what nobody claims goes nowhere
	seen       *observation // what they log and trace
}

func (by manner) equal(o manner) bool {
	return by.captures == o.captures && by.intact == o.intact && by.restricted == o.restricted && by.seen.equal(o.seen)
}

// passOn sends on what nobody claims, or, if clients are restricted to what they know, nowhere.
func (by manner) passOn() *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		Name: "PassthroughFilterChain", FilterChainMatch: &listenerv3.FilterChainMatch{}, Filters: []*listenerv3.Filter{tcpProxy(otherwise(by.restricted), by.seen)},
	}
}

// otherwise is the cluster of what nobody claims.
func otherwise(restricted bool) string {
	if restricted {
		return blackHole
	}
	return passthrough
}

func (b binding) httpChain(by manner) *listenerv3.FilterChain {
	address := localhost
	if by.captures {
		address = wildcard
	}
	manager := httpManager(statName("outbound_"+listenerName(address, b.port)), routeName(b.port), by.seen)
	return &listenerv3.FilterChain{
		TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
		Filters:                       []*listenerv3.Filter{networkFilter("envoy.filters.network.http_connection_manager", manager)},
	}
}

func httpManager(stats, routes string, seen *observation) *hcmv3.HttpConnectionManager {
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:     stats,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: routes}},
		HttpFilters: []*hcmv3.HttpFilter{
			httpFilter("envoy.filters.http.grpc_stats", &grpcstatsv3.FilterConfig{
				EmitFilterState:        true,
				PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: wrapperspb.Bool(false)},
			}),
			httpFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
			httpFilter("envoy.filters.http.cors", &corsv3.Cors{}),
			httpFilter("envoy.filters.http.router", &routerv3.Router{}),
		},
		StreamIdleTimeout: durationpb.New(0), UseRemoteAddress: wrapperspb.Bool(false), Proxy_100Continue: true,
		NormalizePath: wrapperspb.Bool(true), PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
		UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
	}
	seen.ofRequests(m)
	return m
}

// virtualOutbound is the listener that redirected connections come to: it hands them to that of the address that they were meant for, or passes
// them on.
func (by manner) virtualOutbound() *listenerv3.Listener {
	const name = "virtualOutbound"
	l := &listenerv3.Listener{
		Name: name, Address: socket(wildcard, outboundPort), UseOriginalDst: wrapperspb.Bool(true), TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1),
		FilterChains: []*listenerv3.FilterChain{
			{
				Name:             name + "-blackhole", // a connection to this very port would go round in circles
				FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(outboundPort)},
				Filters:          []*listenerv3.Filter{tcpProxy(blackHole, nil)},
			},
			{Name: name + "-catchall-tcp", Filters: []*listenerv3.Filter{tcpProxy(otherwise(by.restricted), by.seen)}},
		},
	}
	if by.intact {
		l.Transparent = wrapperspb.Bool(true)
	}
	by.seen.ofStrays(l)
	return l
}

// grpcListener is what a gRPC client that dials name asks for.
func (s *service) grpcListener(p *port, name string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name, Address: socket(wildcard, p.number),
		ApiListener: &listenerv3.ApiListener{ApiListener: toAny(&hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: clusterName(p.number, "", s.host)}},
			HttpFilters: []*hcmv3.HttpFilter{
				httpFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
				httpFilter("envoy.filters.http.router", &routerv3.Router{}),
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
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: toAny(config)}}
}

func httpFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: toAny(config)}}
}

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: toAny(config)}}
}
