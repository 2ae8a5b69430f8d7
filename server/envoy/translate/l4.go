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

// chain is where connections go that ask for some server names, or are made to some addresses, or all if it names none.
type chain struct {
	place   model.Place // of what says so
	servers []string    // in a TLS handshake; with an asterisk in front for all below a name
	subnets []string
	stats   string
	to      []share
	conduct conduct
	named   bool // the VirtualService that says so is named, as istiod does it at sidecars
}

// conduct is what a policy says of connections that are passed on as they are.
type conduct struct {
	idle, whole time.Duration // how long one may be without a byte, and how long there may be one; 0 for Envoy's own default
	bySource    bool          // those of one address go to one endpoint
}

func conductOf(p *networking.TrafficPolicy) conduct {
	tcp := p.GetConnectionPool().GetTcp()
	return conduct{
		idle: tcp.GetIdleTimeout().AsDuration(), whole: tcp.GetMaxConnectionDuration().AsDuration(),
		bySource: p.GetLoadBalancer().GetConsistentHash().GetUseSourceIp(),
	}
}

// share is a cluster and how much of what goes there it gets.
type share struct {
	cluster string
	weight  uint32
}

func (c chain) equal(o chain) bool {
	return c.place == o.place && c.named == o.named && c.stats == o.stats && c.conduct == o.conduct && slices.Equal(c.servers, o.servers) &&
		slices.Equal(c.subnets, o.subnets) && slices.Equal(c.to, o.to)
}

func (c chain) proxy(seen *model.Observation) *listenerv3.Filter {
	p := &tcpv3.TcpProxy{StatPrefix: c.stats, AccessLog: telemetry.OfConnections(seen)}
	if len(c.to) == 1 {
		p.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: c.to[0].cluster}
	} else {
		weighted := &tcpv3.TcpProxy_WeightedCluster{}
		for _, s := range c.to {
			weighted.Clusters = append(weighted.Clusters, &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: s.cluster, Weight: s.weight})
		}
		p.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: weighted}
	}
	if c.conduct.idle > 0 {
		p.IdleTimeout = durationpb.New(c.conduct.idle)
	}
	if c.conduct.whole > 0 {
		p.MaxDownstreamConnectionDuration = durationpb.New(c.conduct.whole)
	}
	if c.conduct.bySource {
		p.HashPolicy = []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}}
	}
	return networkFilter("envoy.filters.network.tcp_proxy", p)
}

// matching notes what the filter chains of a listener are for. Envoy refuses all of a listener in which two are for the same.
type matching map[[2]string]bool // server name and range of addresses

// add returns what is left for a chain that wants some server names and ranges of addresses, or false if nothing is.
func (m matching) add(servers, subnets []string) (*listenerv3.FilterChainMatch, bool) {
	out := &listenerv3.FilterChainMatch{}
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
		wants := [][2]string{{name, ""}}
		if len(subnets) > 0 {
			wants = wants[:0]
			for _, p := range ranges {
				wants = append(wants, [2]string{name, p.String()})
			}
		}
		if len(wants) == 0 || strings.Contains(strings.TrimPrefix(name, "*."), "*") ||
			slices.ContainsFunc(wants, func(w [2]string) bool { return m[w] }) {
			continue
		}
		for _, w := range wants {
			m[w] = true
		}
		out.ServerNames = append(out.ServerNames, name)
	}
	if len(out.GetServerNames()) == 0 {
		return nil, false
	}
	if out.GetServerNames()[0] == "" {
		out.ServerNames = nil
	}
	for _, p := range ranges {
		out.PrefixRanges = append(out.PrefixRanges, &corev3.CidrRange{
			AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits())),
		})
	}
	return out, true
}

func prefixOf(s string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked(), true
	}
	a, _ := netip.ParseAddr(s)
	return netip.PrefixFrom(a, a.BitLen()), resource.IsAddress(s)
}

// filterChain returns the chain as part of a listener, or nil if others are for all that it is for.
func (c chain) filterChain(m matching, seen *model.Observation, found *model.Findings) *listenerv3.FilterChain {
	match, ok := m.add(c.servers, c.subnets)
	if !ok {
		found.Note(c.place, "others have all connections that it is for")
		return nil
	}
	out := &listenerv3.FilterChain{
		TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout}, Filters: []*listenerv3.Filter{c.proxy(seen)},
	}
	if len(match.GetServerNames())+len(match.GetPrefixRanges()) > 0 {
		out.FilterChainMatch = match
	}
	if c.named {
		out.Metadata = ofVirtualService(c.place.Of)
	}
	return out
}

// to returns a chain that leads to the destinations of a route that stands at a place.
func (w routeContext) to(routes []*networking.RouteDestination, at model.Place) chain {
	c := chain{place: at}
	for i, r := range routes {
		if r.GetDestination() != nil && (r.GetWeight() > 0 || len(routes) == 1) {
			if len(c.to) == 0 {
				c.conduct = conductOf(w.policyOf(r.GetDestination()))
			}
			c.to = append(c.to, share{w.cluster(r.GetDestination(), at.In("route[%d].destination", i)), uint32(max(r.GetWeight(), 1))})
		}
	}
	switch len(c.to) {
	case 0:
		c.to, c.stats = []share{{model.BlackHole, 1}}, model.BlackHole
	case 1:
		c.stats = c.to[0].cluster
	default:
		c.stats = fmt.Sprintf("%s.%s", w.rule.Key.Name, w.rule.Key.Namespace)
	}
	return c
}

// tlsChains returns where the VirtualService sends TLS connections, by the server name for which they ask.
func (w routeContext) tlsChains() (all []chain) {
	for i, r := range w.rule.Spec.GetTls() {
		for _, m := range r.GetMatch() {
			if w.applies(m) {
				c := w.to(r.GetRoute(), model.Place{Of: w.rule.Key, Field: fmt.Sprintf("spec.tls[%d]", i)})
				for _, s := range m.GetSniHosts() {
					c.servers = append(c.servers, strings.ToLower(s))
				}
				c.subnets = m.GetDestinationSubnets()
				all = append(all, c)
			}
		}
	}
	return all
}

// tcpChains returns where the VirtualService sends connections.
func (w routeContext) tcpChains() (all []chain) {
	for i, r := range w.rule.Spec.GetTcp() {
		at := model.Place{Of: w.rule.Key, Field: fmt.Sprintf("spec.tcp[%d]", i)}
		if len(r.GetMatch()) == 0 {
			return append(all, w.to(r.GetRoute(), at))
		}
		for _, m := range r.GetMatch() {
			if w.applies(m) {
				c := w.to(r.GetRoute(), at)
				c.subnets = m.GetDestinationSubnets()
				all = append(all, c)
			}
		}
	}
	return all
}

// chains returns where connections go that are made to a port of the service.
func chains(v *model.View, p *model.Port, client model.Profile, found *model.Findings) (all []chain) {
	cluster := model.ClusterName(p.Number, "", v.Service.Host)
	otherwise := chain{place: p.Place(), stats: cluster, to: []share{{cluster, 1}}, conduct: conductOf(v.Policy.On(p.Number, nil))}
	w := routeContext{view: v, rule: v.Rules[p.Part], client: client, port: p.Number, found: found}
	ofRule := func(chains []chain) []chain {
		for i := range chains {
			chains[i].named = true
		}
		return chains
	}
	switch {
	case p.Spoken == model.ProtocolTLS:
		if w.rule != nil {
			all = ofRule(w.tlsChains())
		}
		if len(all) == 0 {
			if !client.Captures || !slices.ContainsFunc(v.Service.Addresses, resource.IsAddress) { // else the address tells which service is meant
				otherwise.servers = []string{v.Service.Host}
			}
			all = []chain{otherwise}
		}
	case p.Spoken.HTTP():
	default:
		if w.rule != nil {
			all = ofRule(w.tcpChains())
		}
		if !slices.ContainsFunc(all, func(c chain) bool { return len(c.subnets) == 0 }) {
			all = append(all, otherwise)
		}
	}
	return all
}
