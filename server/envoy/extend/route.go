package extend

import (
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// Routes returns routes as the patches have them.
func (p *Patcher) Routes(r *routev3.RouteConfiguration) *routev3.RouteConfiguration {
	now, _ := apply(p, r, ToRoutes, (*step).routes)
	return now
}

func (s *step) routes(r *routev3.RouteConfiguration) (keep bool) {
	switch {
	case !s.matchesRoutes(r):
	case s.ApplyTo == networking.EnvoyFilter_ROUTE_CONFIGURATION:
		s.merge(r)
	case s.ApplyTo == networking.EnvoyFilter_VIRTUAL_HOST:
		r.VirtualHosts = edit(s, r.GetVirtualHosts(), false, s.matchesHost, nil)
	default:
		named := s.Match.GetRouteConfiguration().GetVhost().GetRoute() != nil
		for _, v := range r.GetVirtualHosts() {
			if s.matchesHost(v) {
				v.Routes = edit(s, v.GetRoutes(), named, s.matchesRoute, nil)
			}
		}
	}
	return true
}

func (s *step) matchesRoutes(r *routev3.RouteConfiguration) bool {
	m, gateways := s.Match.GetRouteConfiguration(), s.context == networking.EnvoyFilter_GATEWAY
	port, portName, gateway := namesOf(r.GetName(), gateways)
	return is(m.GetName(), r.GetName()) && is(m.GetPortNumber(), port) &&
		(!gateways || is(m.GetPortName(), portName) && is(m.GetGateway(), gateway))
}

// namesOf returns what the name of routes says: PORT, inbound|PORT||, and of gateways http.PORT, or https.PORT.PORTNAME.GATEWAY.NAMESPACE.
func namesOf(name string, gateways bool) (port uint32, portName, gateway string) {
	number := name
	switch parts := strings.Split(name, "."); {
	case gateways && parts[0] == "http" && len(parts) > 1:
		number = parts[1]
	case gateways && parts[0] == "https" && len(parts) == 5:
		number, portName, gateway = parts[1], parts[2], parts[4]+"/"+parts[3]
	case strings.HasPrefix(name, "inbound|"):
		number = strings.Split(name, "|")[1]
	}
	n, _ := strconv.ParseUint(number, 10, 32)
	return uint32(n), portName, gateway
}

func (s *step) matchesHost(v *routev3.VirtualHost) bool {
	m := s.Match.GetRouteConfiguration().GetVhost()
	return is(m.GetName(), v.GetName()) && (m.GetDomainName() == "" || slices.Contains(v.GetDomains(), m.GetDomainName()))
}

func (s *step) matchesRoute(r *routev3.Route) bool {
	m := s.Match.GetRouteConfiguration().GetVhost().GetRoute()
	action := m.GetAction()
	switch r.GetAction().(type) {
	case *routev3.Route_Route:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE
	case *routev3.Route_Redirect:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT
	case *routev3.Route_DirectResponse:
		action = networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE
	}
	return is(m.GetName(), r.GetName()) && is(m.GetAction(), action) // ANY is zero
}
