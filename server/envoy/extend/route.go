package extend

import (
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// Routes returns routes as the patches have them.
func (p *Patcher) Routes(r *routev3.RouteConfiguration) *routev3.RouteConfiguration {
	now, _ := apply(p, r, (*attempt).routes)
	return now
}

func (a *attempt) routes(r *routev3.RouteConfiguration) (keep bool) {
	is := func(p *model.Patch) bool { return matchesRoutes(p, a.context, r) }
	change(a, []*routev3.RouteConfiguration{r}, target[*routev3.RouteConfiguration]{to: networking.EnvoyFilter_ROUTE_CONFIGURATION, is: is},
		merging)
	hosts := target[*routev3.VirtualHost]{to: networking.EnvoyFilter_VIRTUAL_HOST, is: is, matches: matchesHost}
	r.VirtualHosts = change(a, r.GetVirtualHosts(), hosts, changing)
	for _, v := range r.GetVirtualHosts() {
		routes := target[*routev3.Route]{
			to: networking.EnvoyFilter_HTTP_ROUTE, matches: matchesRoute,
			is:    func(p *model.Patch) bool { return is(p) && matchesHost(p, v) },
			names: func(p *model.Patch) bool { return p.Match.GetRouteConfiguration().GetVhost().GetRoute() != nil },
		}
		v.Routes = change(a, change(a, v.GetRoutes(), routes, changing), routes, adding)
	}
	r.VirtualHosts = change(a, r.GetVirtualHosts(), hosts, adding)
	return true
}

func matchesRoutes(p *model.Patch, context networking.EnvoyFilter_PatchContext, r *routev3.RouteConfiguration) bool {
	m := p.Match.GetRouteConfiguration()
	port, portName, gateway := namesOf(r.GetName(), context)
	return (m.GetName() == "" || m.GetName() == r.GetName()) && (m.GetPortNumber() == 0 || m.GetPortNumber() == port) &&
		(context != networking.EnvoyFilter_GATEWAY ||
			(m.GetPortName() == "" || m.GetPortName() == portName) && (m.GetGateway() == "" || m.GetGateway() == gateway))
}

// namesOf returns what the name of routes says: PORT, inbound|PORT||, http.PORT, or https.PORT.PORTNAME.GATEWAY.NAMESPACE.
func namesOf(name string, context networking.EnvoyFilter_PatchContext) (port uint32, portName, gateway string) {
	number := name
	switch parts := strings.Split(name, "."); {
	case context == networking.EnvoyFilter_GATEWAY && parts[0] == "http" && len(parts) > 1:
		number = parts[1]
	case context == networking.EnvoyFilter_GATEWAY && parts[0] == "https" && len(parts) == 5:
		number, portName, gateway = parts[1], parts[2], parts[4]+"/"+parts[3]
	case strings.HasPrefix(name, "inbound|"):
		number = strings.Split(name, "|")[1]
	}
	n, _ := strconv.ParseUint(number, 10, 32)
	return uint32(n), portName, gateway
}

func matchesHost(p *model.Patch, v *routev3.VirtualHost) bool {
	m := p.Match.GetRouteConfiguration().GetVhost()
	return (m.GetName() == "" || m.GetName() == v.GetName()) &&
		(m.GetDomainName() == "" || slices.Contains(v.GetDomains(), m.GetDomainName()))
}

func matchesRoute(p *model.Patch, r *routev3.Route) bool {
	m := p.Match.GetRouteConfiguration().GetVhost().GetRoute()
	action := m.GetAction()
	switch r.GetAction().(type) {
	case *routev3.Route_Route:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE
	case *routev3.Route_Redirect:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT
	case *routev3.Route_DirectResponse:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE
	}
	return (m.GetName() == "" || m.GetName() == r.GetName()) &&
		(m.GetAction() == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY || m.GetAction() == action)
}
