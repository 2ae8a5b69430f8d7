package envoy

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// addIngress adds what a gateway is told of a host, or of its listeners.
func (t *told) addIngress(v *view, client profile) {
	if v.host == gatewayUnit {
		t.addListeners(v, client)
		return
	}
	byRoute := make(map[string]*admission)
	for _, s := range v.servers {
		if s.route == "" {
			continue
		}
		in := byRoute[s.route]
		if in == nil {
			in = &admission{host: &routev3.VirtualHost{Name: hostPort(v.host, s.GetPort().GetNumber()), IncludeRequestAttemptCount: true}, by: make(map[*rule[*networking.VirtualService]][]*routev3.Route)}
			byRoute[s.route] = in
		}
		in.add(v, &s, client, &t.findings)
	}
	for route, in := range byRoute {
		if len(in.host.GetRoutes()) == 0 && in.host.GetRequireTls() != routev3.VirtualHost_ALL {
			continue
		}
		// Of several VirtualServices the oldest one's routes come first, but what matches all comes last.
		slices.SortStableFunc(in.host.GetRoutes(), func(a, b *routev3.Route) int { return cmp.Compare(last(a), last(b)) })
		t.hosts[route] = newVirtualHost(place{}, []string{inURL(v.host)}, in.host) // no other one has the domain
	}
}

// admission is what a domain is among the routes of one name, which servers of one port may share.
type admission struct {
	host *routev3.VirtualHost
	by   map[*rule[*networking.VirtualService]][]*routev3.Route // those that it has
}

// add adds what a server admits of the VirtualServices that are bound to it. One that has no routes there has no part in it.
func (in *admission) add(v *view, s *server, client profile, found *findings) {
	if s.redirects(v.host) {
		in.host.RequireTls = routev3.VirtualHost_ALL
	}
	for _, r := range v.bound {
		if !s.bound(r, client) || !s.serves(r, v.host) {
			continue
		}
		w := way{view: v, rule: r, client: client, port: s.GetPort().GetNumber(), gateway: s.gateway.key.FullName(), found: found}
		routes := w.routes()
		if len(routes) == 0 {
			continue
		}
		// Another server of the port may have admitted the same ones, but for those that are for one of their Gateways.
		routes = slices.DeleteFunc(routes, func(more *routev3.Route) bool {
			return slices.ContainsFunc(in.by[r], func(had *routev3.Route) bool { return proto.Equal(had, more) })
		})
		in.by[r], in.host.Routes = append(in.by[r], routes...), append(in.host.Routes, routes...)
		if s.GetTls().GetHttpsRedirect() {
			in.host.RequireTls = routev3.VirtualHost_ALL
		}
	}
}

func last(r *routev3.Route) int {
	if matchesAll(r.GetMatch()) {
		return 1
	}
	return 0
}

// nobody is the virtual host of a port of a gateway that has no other one: 404.
func nobody(route string) *virtualHost {
	port := strings.Split(route, ".")[1]
	return newVirtualHost(place{}, []string{"*"}, &routev3.VirtualHost{Name: "blackhole:" + port})
}

// addListeners adds the listeners of all servers, and their routes, which are there even if they lead nowhere.
func (t *told) addListeners(v *view, client profile) {
	at := make(map[binding]*listenerv3.Listener)
	used := make(map[binding]matching)
	var order []binding
	for _, s := range v.servers {
		b := binding{s.bind, s.GetPort().GetNumber()}
		if at[b] == nil {
			order = append(order, b)
			used[b] = make(matching)
			at[b] = &listenerv3.Listener{
				Name: listenerName(b.address, b.port), Address: socket(b.address, b.port), TrafficDirection: corev3.TrafficDirection_OUTBOUND,
				MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1),
			}
			v.seen.ofStrays(at[b])
			if s.kind.encrypted() {
				at[b].ListenerFilters = []*listenerv3.ListenerFilter{inspectTLS()}
			}
		}
		at[b].FilterChains = append(at[b].FilterChains, t.serverChains(v, &s, client, used[b])...)
		if s.route != "" && t.hosts[s.route] == nil {
			t.hosts[s.route] = newVirtualHost(place{}, nil, &routev3.VirtualHost{})
		}
	}
	for _, b := range order {
		if len(at[b].GetFilterChains()) > 0 {
			t.listeners = append(t.listeners, entryOf(at[b]))
		}
	}
}

// serverChains returns what a listener has for a server. What others of its chains are for is left out.
func (t *told) serverChains(v *view, s *server, client profile, used matching) (chains []*listenerv3.FilterChain) {
	switch s.kind {
	case serverHTTP:
		if _, ok := used.add(nil, nil); ok {
			chains = append(chains, s.httpChain(v.seen))
		}
	case serverHTTPS:
		match, ok := used.add(s.names(), nil)
		if !ok {
			t.findings.note(s.place.in("hosts"), "other servers of the port have them")
			return nil
		}
		c := s.httpChain(v.seen)
		if len(match.GetServerNames()) > 0 {
			c.FilterChainMatch = match
		}
		c.TransportSocket = t.terminate(s.GetTls(), client, []string{"h2", "http/1.1"})
		chains = append(chains, c)
	case serverTLS:
		match, ok := used.add(s.names(), nil)
		if !ok {
			t.findings.note(s.place.in("hosts"), "other servers of the port have them")
			return nil
		}
		to := chain{stats: blackHole, to: []share{{blackHole, 1}}}
		if all := s.connections(v, client, &t.findings, way.tcpChains); len(all) > 0 {
			to = all[0]
			for _, c := range all[1:] {
				t.findings.note(c.place, "others have all connections that it is for")
			}
		}
		chains = append(chains, &listenerv3.FilterChain{
			FilterChainMatch: match, TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
			TransportSocket: t.terminate(s.GetTls(), client, nil), Filters: []*listenerv3.Filter{to.proxy(v.seen)},
		})
	case serverPass, serverTCP:
		with := way.tcpChains
		if s.kind == serverPass {
			with = way.tlsChains
		}
		for _, c := range s.connections(v, client, &t.findings, with) {
			if f := c.filterChain(used, v.seen, &t.findings); f != nil {
				chains = append(chains, f)
			}
		}
	}
	return chains
}

// connections returns where the VirtualServices that are bound to the server send connections.
func (s *server) connections(v *view, client profile, found *findings, with func(way) []chain) (all []chain) {
	for _, r := range v.bound {
		if !s.bound(r, client) {
			continue
		}
		admitted := slices.ContainsFunc(r.hosts, func(h string) bool { return !isUnit(h) && s.meets(h, r.key.Namespace) })
		if admitted {
			all = append(all, with(way{view: v, rule: r, client: client, port: s.GetPort().GetNumber(), gateway: s.gateway.key.FullName(), found: found})...)
		}
	}
	return all
}

func (s *server) httpChain(seen *observation) *listenerv3.FilterChain {
	m := httpManager(statName("outbound_"+listenerName(s.bind, s.GetPort().GetNumber())), s.route, seen)
	m.UseRemoteAddress = wrapperspb.Bool(true)
	m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
	m.ServerName = "istio-envoy"
	m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
	m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Subject: wrapperspb.Bool(true), Cert: true, Dns: true, Uri: true}
	return &listenerv3.FilterChain{
		TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
		Filters:                       []*listenerv3.Filter{networkFilter("envoy.filters.network.http_connection_manager", m)},
	}
}
