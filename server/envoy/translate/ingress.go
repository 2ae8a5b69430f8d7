package translate

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

	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
)

// addIngress adds the resources of a gateway for a host, or its listeners.
func (t *Translation) addIngress(v *model.View, client model.Profile) {
	if v.Host == model.GatewayUnit {
		t.addListeners(v, client)
		return
	}
	byRoute := make(map[string]*admission)
	for _, s := range v.Servers {
		if s.Route == "" {
			continue
		}
		in := byRoute[s.Route]
		if in == nil {
			in = &admission{
				host: &routev3.VirtualHost{Name: model.HostPort(v.Host, s.GetPort().GetNumber()), IncludeRequestAttemptCount: true},
				by:   make(map[*model.Rule[*networking.VirtualService]][]*routev3.Route),
			}
			byRoute[s.Route] = in
		}
		in.add(v, &s, client, &t.Findings)
	}
	for route, in := range byRoute {
		if len(in.host.GetRoutes()) == 0 && in.host.GetRequireTls() != routev3.VirtualHost_ALL {
			continue
		}
		// Of several VirtualServices the oldest one's routes come first, but what matches all comes last.
		slices.SortStableFunc(in.host.GetRoutes(), func(a, b *routev3.Route) int { return cmp.Compare(last(a), last(b)) })
		t.Hosts[route] = newVirtualHost(model.Place{}, []string{model.InURL(v.Host)}, in.host) // no other one has the domain
	}
}

// admission is what a domain is among the routes of one name, which servers of one port may share.
type admission struct {
	host *routev3.VirtualHost
	by   map[*model.Rule[*networking.VirtualService]][]*routev3.Route // those that it has
}

// add adds what a server admits of the VirtualServices that are bound to it. One that has no routes there has no part in it.
func (in *admission) add(v *model.View, s *model.Server, client model.Profile, found *model.Findings) {
	if s.Redirects(v.Host) {
		in.host.RequireTls = routev3.VirtualHost_ALL
	}
	for _, r := range v.Bound {
		if !s.Bound(r, client) || !s.Serves(r, v.Host) {
			continue
		}
		w := routeContext{view: v, rule: r, client: client, port: s.GetPort().GetNumber(), gateway: s.Gateway.Key.FullName(), found: found}
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

// Nobody is the virtual host of a port of a gateway that has no other one: 404.
func Nobody(route string) *VirtualHost {
	port := strings.Split(route, ".")[1]
	return newVirtualHost(model.Place{}, []string{"*"}, &routev3.VirtualHost{Name: "blackhole:" + port})
}

// addListeners adds the listeners of all servers, and their routes, which are there even if they lead nowhere.
func (t *Translation) addListeners(v *model.View, client model.Profile) {
	at := make(map[model.Binding]*listenerv3.Listener)
	used := make(map[model.Binding]matching)
	var order []model.Binding
	for _, s := range v.Servers {
		b := model.Binding{Address: s.Bind, Port: s.GetPort().GetNumber()}
		if at[b] == nil {
			order = append(order, b)
			used[b] = make(matching)
			at[b] = &listenerv3.Listener{
				Name: model.ListenerName(b.Address, b.Port), Address: socket(b.Address, b.Port), TrafficDirection: corev3.TrafficDirection_OUTBOUND,
				MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1),
			}
			telemetry.OfStrays(v.Seen, at[b])
			if s.Kind.Encrypted() {
				at[b].ListenerFilters = []*listenerv3.ListenerFilter{inspectTLS()}
			}
		}
		at[b].FilterChains = append(at[b].FilterChains, t.serverChains(v, &s, client, used[b])...)
		if s.Route != "" && t.Hosts[s.Route] == nil {
			t.Hosts[s.Route] = newVirtualHost(model.Place{}, nil, &routev3.VirtualHost{})
		}
	}
	for _, b := range order {
		if len(at[b].GetFilterChains()) > 0 {
			t.Listeners = append(t.Listeners, EntryOf(at[b]))
		}
	}
}

// serverChains returns what a listener has for a server. What others of its chains are for is left out.
func (t *Translation) serverChains(v *model.View, s *model.Server, client model.Profile, used matching) (chains []*listenerv3.FilterChain) {
	switch s.Kind {
	case model.ServerHTTP:
		if _, ok := used.add(nil, nil); ok {
			chains = append(chains, httpChain(s, v.Seen))
		}
	case model.ServerHTTPS:
		match, ok := used.add(s.Names(), nil)
		if !ok {
			t.Findings.Note(s.Place.In("hosts"), "other servers of the port have them")
			return nil
		}
		c := httpChain(s, v.Seen)
		if len(match.GetServerNames()) > 0 {
			c.FilterChainMatch = match
		}
		c.TransportSocket = t.terminate(s.GetTls(), client, []string{"h2", "http/1.1"})
		chains = append(chains, c)
	case model.ServerTLS:
		match, ok := used.add(s.Names(), nil)
		if !ok {
			t.Findings.Note(s.Place.In("hosts"), "other servers of the port have them")
			return nil
		}
		to := chain{stats: model.BlackHole, to: []share{{model.BlackHole, 1}}}
		if all := connections(s, v, client, &t.Findings, routeContext.tcpChains); len(all) > 0 {
			to = all[0]
			for _, c := range all[1:] {
				t.Findings.Note(c.place, "others have all connections that it is for")
			}
		}
		chains = append(chains, &listenerv3.FilterChain{
			FilterChainMatch: match, TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
			TransportSocket: t.terminate(s.GetTls(), client, nil), Filters: []*listenerv3.Filter{to.proxy(v.Seen)},
		})
	case model.ServerPass, model.ServerTCP:
		with := routeContext.tcpChains
		if s.Kind == model.ServerPass {
			with = routeContext.tlsChains
		}
		for _, c := range connections(s, v, client, &t.Findings, with) {
			if f := c.filterChain(used, v.Seen, &t.Findings); f != nil {
				chains = append(chains, f)
			}
		}
	}
	return chains
}

// connections returns where the VirtualServices that are bound to the server send connections.
func connections(s *model.Server, v *model.View, client model.Profile, found *model.Findings,
	with func(routeContext) []chain,
) (all []chain) {
	for _, r := range v.Bound {
		if !s.Bound(r, client) {
			continue
		}
		admitted := slices.ContainsFunc(r.Hosts, func(h string) bool { return !model.IsUnit(h) && s.Meets(h, r.Key.Namespace) })
		if admitted {
			all = append(all, with(routeContext{
				view: v, rule: r, client: client, port: s.GetPort().GetNumber(), gateway: s.Gateway.Key.FullName(),
				found: found,
			})...)
		}
	}
	return all
}

func httpChain(s *model.Server, seen *model.Observation) *listenerv3.FilterChain {
	m := httpManager(model.StatName("outbound_"+model.ListenerName(s.Bind, s.GetPort().GetNumber())), s.Route, seen)
	m.UseRemoteAddress = wrapperspb.Bool(true)
	m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
	m.ServerName = "istio-envoy"
	m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
	m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
		Subject: wrapperspb.Bool(true), Cert: true,
		Dns: true, Uri: true,
	}
	return &listenerv3.FilterChain{
		TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
		Filters:                       []*listenerv3.Filter{networkFilter("envoy.filters.network.http_connection_manager", m)},
	}
}
