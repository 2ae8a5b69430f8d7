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
func (t *Translation) addIngress(view *model.View) {
	if view.Host == model.GatewayPseudoHost {
		t.addListeners(view)
		return
	}
	byRoute := make(map[string][]*model.Server)
	for i := range view.Servers {
		if s := &view.Servers[i]; s.Route != "" {
			byRoute[s.Route] = append(byRoute[s.Route], s)
		}
	}
	for route, servers := range byRoute {
		if body := t.gatewayBody(view, servers); len(body.Bytes) > 0 {
			host := &routev3.VirtualHost{Name: model.HostPort(view.Host, servers[0].GetPort().GetNumber())}
			// No other virtual host has the domain.
			t.Hosts[route] = newVirtualHost(model.Place{}, []string{model.InURL(view.Host)}, host, body)
		}
	}
}

// gatewayBody returns the routes of a domain that servers of one port share. Those of the oldest VirtualService come
// first, but routes that match all requests come last.
func (t *Translation) gatewayBody(view *model.View, servers []*model.Server) *Body {
	var key model.Digest
	for _, server := range servers {
		key.Object(server.Gateway.Key)
		key.Text(server.Gateway.Version, server.Place.Field)
		key.Flag(server.Denial != nil)
		key.Flag(server.Redirects(view.Host))
		for _, virtualService := range view.BoundVirtualServices {
			key.Flag(server.Bound(virtualService, view.Client) && server.Serves(virtualService, view.Host))
			key = append(key, virtualServiceKey(virtualService, server.GetPort().GetNumber())...)
		}
	}
	return t.body(key, func(findings *model.Findings) *routev3.VirtualHost {
		gateway := &gatewayHost{
			host: &routev3.VirtualHost{}, routesOf: make(map[*model.VirtualService][]*routev3.Route),
		}
		for _, s := range servers {
			gateway.add(view, s, findings)
		}
		slices.SortStableFunc(gateway.host.GetRoutes(), func(a, b *routev3.Route) int {
			return cmp.Compare(sortsLast(a), sortsLast(b))
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
func (g *gatewayHost) add(view *model.View, server *model.Server, findings *model.Findings) {
	if server.Redirects(view.Host) {
		g.host.RequireTls = routev3.VirtualHost_ALL
	}
	for _, virtualService := range view.BoundVirtualServices {
		if !server.Bound(virtualService, view.Client) || !server.Serves(virtualService, view.Host) {
			continue
		}
		context := routeContext{
			view:           view,
			virtualService: virtualService,
			port:           server.GetPort().GetNumber(),
			gateway:        server.Gateway.Key.FullName(),
			findings:       findings,
			tls:            server.GetTls() != nil,
		}
		routes := context.routes()
		if len(routes) == 0 {
			continue
		}
		if server.Denial != nil { // Envoy takes routes at once, also for open connections
			for _, route := range routes {
				route.Action = directResponse(&networking.HTTPDirectResponse{Status: http.StatusForbidden})
			}
		}
		// Skip routes that another server of the port has added already.
		routes = slices.DeleteFunc(routes, func(next *routev3.Route) bool {
			return slices.ContainsFunc(g.routesOf[virtualService],
				func(added *routev3.Route) bool { return proto.Equal(added, next) })
		})
		g.routesOf[virtualService] = append(g.routesOf[virtualService], routes...)
		g.host.Routes = append(g.host.Routes, routes...)
		if server.GetTls().GetHttpsRedirect() {
			g.host.RequireTls = routev3.VirtualHost_ALL
		}
	}
}

// sortsLast returns 1 for a route that matches all requests: it comes after all others. For others it returns 0.
func sortsLast(r *routev3.Route) int {
	if matchesAllRequests(r.GetMatch()) {
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
func misdirected(server *model.Server, servers []model.Server) *VirtualHost {
	var domains, narrower, covered []string
	names := server.Names()
	port := server.GetPort().GetNumber()
	for _, sibling := range servers {
		if server.Gateway.Derived && server.Kind == model.ServerHTTPS && sibling.Kind == model.ServerHTTPS &&
			sibling.Bind == server.Bind && sibling.GetPort().GetNumber() == port {
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
func (t *Translation) addListeners(view *model.View) {
	listeners := make(map[model.Binding]*listenerv3.Listener)
	used := make(map[model.Binding]usedMatches)
	var order []model.Binding
	for _, server := range view.Servers {
		binding := model.Binding{Address: server.Bind, Port: server.GetPort().GetNumber()}
		if listeners[binding] == nil {
			order = append(order, binding)
			used[binding] = make(usedMatches)
			listeners[binding] = &listenerv3.Listener{
				Name: model.ListenerName(binding.Address, binding.Port), Address: socket(binding.Address, binding.Port),
				TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
				MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1),
			}
			telemetry.ObserveUnmatched(view.Observability, listeners[binding])
			if server.Kind.Encrypted() {
				listeners[binding].ListenerFilters = []*listenerv3.ListenerFilter{inspectTLS()}
			}
		}
		for _, c := range t.serverChains(view, &server, used[binding]) {
			c.Filters = extend.WithPlugins(view.Patches, c.GetFilters(), typev1beta1.WorkloadMode_CLIENT, binding.Port)
			listeners[binding].FilterChains = append(listeners[binding].FilterChains, c)
		}
		if server.Route != "" && t.Hosts[server.Route] == nil {
			t.Hosts[server.Route] = misdirected(&server, view.Servers)
		}
	}
	patches := extend.New(view.Patches, networking.EnvoyFilter_GATEWAY, &t.Findings)
	for _, binding := range order {
		if len(listeners[binding].GetFilterChains()) == 0 {
			continue
		}
		if listener, served := patches.Listener(listeners[binding]); served {
			t.Listeners = append(t.Listeners, EntryOf(listener))
		}
	}
}

// serverChains returns a listener's filter chains of a server, without matches that its other chains have.
func (t *Translation) serverChains(
	view *model.View, server *model.Server, used usedMatches,
) (chains []*listenerv3.FilterChain) {
	secured := cmp.Or(server.Denial, view.Security).TCP
	switch server.Kind {
	case model.ServerHTTP:
		if _, ok := used.add(nil, nil); ok {
			chains = append(chains, httpChain(server, view))
		}
	case model.ServerHTTPS, model.ServerTLS:
		match, ok := used.add(server.Names(), nil)
		if !ok {
			t.Findings.Note(server.Place.Subfield("hosts"), "all of these hosts belong to other servers of the port")
			return nil
		}
		if server.Kind == model.ServerHTTPS {
			connection := httpChain(server, view)
			if len(match.GetServerNames()) > 0 {
				connection.FilterChainMatch = match
			}
			connection.TransportSocket = t.downstreamTLS(server.GetTls(), view.Client, view.Security.Domains,
				[]string{"h2", "http/1.1"})
			return []*listenerv3.FilterChain{connection}
		}
		route := l4Route{stats: model.BlackHole, clusters: []weightedCluster{{model.BlackHole, 1}}}
		if routes := connections(server, view, &t.Findings, routeContext.tcpRoutes); len(routes) > 0 {
			route = routes[0]
			for _, ignored := range routes[1:] {
				t.Findings.Note(ignored.place, "other routes already take all its connections")
			}
		}
		chains = append(chains, &listenerv3.FilterChain{
			FilterChainMatch: match, TransportSocketConnectTimeout: &durationpb.Duration{Seconds: chainTimeout},
			TransportSocket: t.downstreamTLS(server.GetTls(), view.Client, view.Security.Domains, nil),
			Filters:         append(slices.Clip(secured), route.proxy(view.Observability)),
		})
	case model.ServerPass, model.ServerTCP:
		routesOf := routeContext.tcpRoutes
		if server.Kind == model.ServerPass {
			routesOf = routeContext.tlsRoutes
		}
		for _, connection := range connections(server, view, &t.Findings, routesOf) {
			if chain := connection.filterChain(used, view.Observability, &t.Findings); chain != nil {
				chain.Filters = slices.Concat(secured, chain.GetFilters())
				chains = append(chains, chain)
			}
		}
	}
	return chains
}

// connections returns the routes of the VirtualServices that are bound to the server.
func connections(server *model.Server, view *model.View, findings *model.Findings,
	routesOf func(routeContext) []l4Route,
) (routes []l4Route) {
	for _, virtualService := range view.BoundVirtualServices {
		if !server.Bound(virtualService, view.Client) {
			continue
		}
		admitted := slices.ContainsFunc(virtualService.Hosts, func(host string) bool {
			return !model.IsPseudoHost(host) && server.Meets(host, virtualService.Key.Namespace)
		})
		if admitted {
			routes = append(routes, routesOf(routeContext{
				view:           view,
				virtualService: virtualService,
				port:           server.GetPort().GetNumber(),
				gateway:        server.Gateway.Key.FullName(),
				findings:       findings,
			})...)
		}
	}
	return routes
}

func httpChain(server *model.Server, view *model.View) *listenerv3.FilterChain {
	stats := model.StatName("outbound_" + model.ListenerName(server.Bind, server.GetPort().GetNumber()))
	manager := httpManager(stats, server.Route, view.Observability)
	secureHTTP(view, manager, typev1beta1.WorkloadMode_CLIENT, server.GetPort().GetNumber())
	manager.UseRemoteAddress = wrapperspb.Bool(true)
	manager.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
	manager.ServerName = "istio-envoy"
	manager.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
	manager.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
		Subject: wrapperspb.Bool(true), Cert: true, Dns: true, Uri: true,
	}
	return managed(manager)
}
