package translate

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
)

// addIngress adds a gateway's resources of a host, or the gateway's listeners.
func (t *Translation) addIngress(v *model.View, client model.Profile) {
	if v.Host == model.GatewayPseudoHost {
		t.addListeners(v, client)
		return
	}
	byRoute := make(map[string][]*model.Server)
	for i := range v.Servers {
		if s := &v.Servers[i]; s.Route != "" {
			byRoute[s.Route] = append(byRoute[s.Route], s)
		}
	}
	for route, servers := range byRoute {
		if body := t.gatewayBody(v, servers, client); len(body.Bytes) > 0 {
			host := &routev3.VirtualHost{Name: model.HostPort(v.Host, servers[0].GetPort().GetNumber())}
			// No other virtual host has the domain.
			t.Hosts[route] = newVirtualHost(model.Place{}, []string{model.InURL(v.Host)}, host, body)
		}
	}
}

// gatewayBody returns the routes of a domain that servers of one port share. The oldest VirtualService's come first,
// but routes that match all come last.
func (t *Translation) gatewayBody(v *model.View, servers []*model.Server, client model.Profile) *Body {
	var key model.Digest
	for _, s := range servers {
		key.Object(s.Gateway.Key)
		key.Text(s.Gateway.Version, s.Place.Field)
		key.Flag(s.Denial != nil)
		key.Flag(s.Redirects(v.Host))
		for _, r := range v.BoundVirtualServices {
			key.Flag(s.Bound(r, client) && s.Serves(r, v.Host))
			key = append(key, ruleKey(r, s.GetPort().GetNumber())...)
		}
	}
	return t.body(key, func(findings *model.Findings) *routev3.VirtualHost {
		gateway := &gatewayHost{
			host: &routev3.VirtualHost{}, routesOf: make(map[*model.VirtualService][]*routev3.Route),
		}
		for _, s := range servers {
			gateway.add(v, s, client, findings)
		}
		slices.SortStableFunc(gateway.host.GetRoutes(), func(a, b *routev3.Route) int {
			return cmp.Compare(last(a), last(b))
		})
		return gateway.host
	})
}

// gatewayHost is the virtual host of a domain. Servers of one port may share it.
type gatewayHost struct {
	host     *routev3.VirtualHost
	routesOf map[*model.VirtualService][]*routev3.Route
}

// add adds the routes of the VirtualServices that are bound to a server.
func (g *gatewayHost) add(v *model.View, s *model.Server, client model.Profile, findings *model.Findings) {
	if s.Redirects(v.Host) {
		g.host.RequireTls = routev3.VirtualHost_ALL
	}
	for _, r := range v.BoundVirtualServices {
		if !s.Bound(r, client) || !s.Serves(r, v.Host) {
			continue
		}
		w := routeContext{
			view: v, rule: r, client: client, port: s.GetPort().GetNumber(), gateway: s.Gateway.Key.FullName(),
			findings: findings, tls: s.GetTls() != nil,
		}
		routes := w.routes()
		if len(routes) == 0 {
			continue
		}
		if s.Denial != nil { // Envoy takes routes at once, also for open connections
			for _, route := range routes {
				route.Action = directResponse(&networking.HTTPDirectResponse{Status: http.StatusForbidden})
			}
		}
		// Skip routes that another server of the port has added already.
		routes = slices.DeleteFunc(routes, func(next *routev3.Route) bool {
			return slices.ContainsFunc(g.routesOf[r], func(added *routev3.Route) bool { return proto.Equal(added, next) })
		})
		g.routesOf[r], g.host.Routes = append(g.routesOf[r], routes...), append(g.host.Routes, routes...)
		if s.GetTls().GetHttpsRedirect() {
			g.host.RequireTls = routev3.VirtualHost_ALL
		}
	}
}

func last(r *routev3.Route) int {
	if matchesAll(r.GetMatch()) {
		return 1
	}
	return 0
}

// NotFoundHost answers 404 on a gateway port without routes.
func NotFoundHost(route string) *VirtualHost {
	port := strings.Split(route, ".")[1]
	return newVirtualHost(model.Place{}, []string{"*"}, &routev3.VirtualHost{Name: "blackhole:" + port}, nil)
}

// misdirected returns a virtual host of the names that other HTTPS listeners of the same address and port have, without
// domains if there are none. Gateway API wants 421 for their requests on a connection to this listener. Names of this
// listener that have no routes stay 404, even if a wider name of another listener covers them.
func misdirected(s *model.Server, servers []model.Server) *VirtualHost {
	var domains, narrower, covered []string
	names, port := s.Names(), s.GetPort().GetNumber()
	for _, sibling := range servers {
		if s.Gateway.Derived && s.Kind == model.ServerHTTPS && sibling.Kind == model.ServerHTTPS &&
			sibling.Bind == s.Bind && sibling.GetPort().GetNumber() == port {
			domains = append(domains, sibling.Names()...)
		}
	}
	domains = slices.DeleteFunc(domains, func(domain string) bool { return slices.Contains(names, domain) })
	slices.Sort(domains)
	domains = slices.Compact(domains)
	for _, name := range names {
		for _, domain := range domains {
			if model.Matches(domain, name) {
				covered = append(covered, name)
			} else if model.Matches(name, domain) {
				narrower = append(narrower, domain)
			}
		}
	}
	host := &routev3.VirtualHost{Name: model.HostPort("misdirected", port)}
	if len(covered) > 0 {
		host.Routes = answerHosts(http.StatusMisdirectedRequest, narrower)
		host.Routes = append(host.Routes, answerHosts(http.StatusNotFound, covered)...)
	}
	host.Routes = append(host.Routes, answerHosts(http.StatusMisdirectedRequest, []string{"*"})...)
	return newVirtualHost(model.Place{}, domains, host, nil)
}

// answerHosts returns a route that answers the requests for hosts, which may be wildcards, with a status; none without
// hosts.
func answerHosts(status uint32, hosts []string) []*routev3.Route {
	match := model.AnyPath()
	var patterns []string
	for _, host := range hosts {
		patterns = append(patterns, strings.Replace(regexp.QuoteMeta(host), `\*`, ".+", 1))
	}
	switch {
	case len(hosts) == 0:
		return nil
	case !slices.Contains(hosts, "*"):
		match.Headers = []*routev3.HeaderMatcher{{
			Name: ":authority",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
					Regex: "(?i)(" + strings.Join(patterns, "|") + ")(:[0-9]+)?",
				}},
			}},
		}}
	}
	return []*routev3.Route{{Match: match, Action: directResponse(&networking.HTTPDirectResponse{Status: status})}}
}

// addListeners adds the listeners of all servers, and their routes, even if those are empty.
func (t *Translation) addListeners(v *model.View, client model.Profile) {
	listeners := make(map[model.Binding]*listenerv3.Listener)
	used := make(map[model.Binding]usedMatches)
	var order []model.Binding
	for _, s := range v.Servers {
		b := model.Binding{Address: s.Bind, Port: s.GetPort().GetNumber()}
		if listeners[b] == nil {
			order = append(order, b)
			used[b] = make(usedMatches)
			listeners[b] = &listenerv3.Listener{
				Name: model.ListenerName(b.Address, b.Port), Address: socket(b.Address, b.Port),
				TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
				MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1),
			}
			telemetry.ObserveUnmatched(v.Observability, listeners[b])
			if s.Kind.Encrypted() {
				listeners[b].ListenerFilters = []*listenerv3.ListenerFilter{inspectTLS()}
			}
		}
		for _, c := range t.serverChains(v, &s, client, used[b]) {
			c.Filters = extend.WithPlugins(v.Patches, c.GetFilters(), typev1beta1.WorkloadMode_CLIENT, b.Port)
			listeners[b].FilterChains = append(listeners[b].FilterChains, c)
		}
		if s.Route != "" && t.Hosts[s.Route] == nil {
			t.Hosts[s.Route] = misdirected(&s, v.Servers)
		}
	}
	patches := extend.New(v.Patches, networking.EnvoyFilter_GATEWAY, &t.Findings)
	for _, b := range order {
		if len(listeners[b].GetFilterChains()) == 0 {
			continue
		}
		if listener, served := patches.Listener(listeners[b]); served {
			t.Listeners = append(t.Listeners, EntryOf(listener))
		}
	}
}

// serverChains returns a listener's filter chains of a server, without matches that its other chains have.
func (t *Translation) serverChains(
	v *model.View, s *model.Server, client model.Profile, used usedMatches,
) (chains []*listenerv3.FilterChain) {
	secured := cmp.Or(s.Denial, v.Security).TCP
	switch s.Kind {
	case model.ServerHTTP:
		if _, ok := used.add(nil, nil); ok {
			chains = append(chains, httpChain(s, v))
		}
	case model.ServerHTTPS, model.ServerTLS:
		match, ok := used.add(s.Names(), nil)
		if !ok {
			t.Findings.Note(s.Place.Subfield("hosts"), "all of these hosts belong to other servers of the port")
			return nil
		}
		if s.Kind == model.ServerHTTPS {
			c := httpChain(s, v)
			if len(match.GetServerNames()) > 0 {
				c.FilterChainMatch = match
			}
			c.TransportSocket = t.downstreamTLS(s.GetTls(), client, v.Security.Domains, []string{"h2", "http/1.1"})
			return []*listenerv3.FilterChain{c}
		}
		to := l4Route{stats: model.BlackHole, to: []share{{model.BlackHole, 1}}}
		if routes := connections(s, v, client, &t.Findings, routeContext.tcpRoutes); len(routes) > 0 {
			to = routes[0]
			for _, r := range routes[1:] {
				t.Findings.Note(r.place, "other routes already take all its connections")
			}
		}
		chains = append(chains, &listenerv3.FilterChain{
			FilterChainMatch: match, TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
			TransportSocket: t.downstreamTLS(s.GetTls(), client, v.Security.Domains, nil),
			Filters:         append(slices.Clip(secured), to.proxy(v.Observability)),
		})
	case model.ServerPass, model.ServerTCP:
		routesOf := routeContext.tcpRoutes
		if s.Kind == model.ServerPass {
			routesOf = routeContext.tlsRoutes
		}
		for _, c := range connections(s, v, client, &t.Findings, routesOf) {
			if f := c.filterChain(used, v.Observability, &t.Findings); f != nil {
				f.Filters = slices.Concat(secured, f.GetFilters())
				chains = append(chains, f)
			}
		}
	}
	return chains
}

// connections returns the routes of the VirtualServices that are bound to the server.
func connections(s *model.Server, v *model.View, client model.Profile, findings *model.Findings,
	routesOf func(routeContext) []l4Route,
) (routes []l4Route) {
	for _, r := range v.BoundVirtualServices {
		if !s.Bound(r, client) {
			continue
		}
		admitted := slices.ContainsFunc(r.Hosts, func(host string) bool {
			return !model.IsPseudoHost(host) && s.Meets(host, r.Key.Namespace)
		})
		if admitted {
			routes = append(routes, routesOf(routeContext{
				view: v, rule: r, client: client, port: s.GetPort().GetNumber(), gateway: s.Gateway.Key.FullName(),
				findings: findings,
			})...)
		}
	}
	return routes
}

func httpChain(s *model.Server, v *model.View) *listenerv3.FilterChain {
	m := httpManager(model.StatName("outbound_"+model.ListenerName(s.Bind, s.GetPort().GetNumber())), s.Route,
		v.Observability)
	secureHTTP(v, m, typev1beta1.WorkloadMode_CLIENT, s.GetPort().GetNumber())
	m.UseRemoteAddress = wrapperspb.Bool(true)
	m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
	m.ServerName = "istio-envoy"
	m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
	m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
		Subject: wrapperspb.Bool(true), Cert: true,
		Dns: true, Uri: true,
	}
	return managed(m)
}
