package extend

import (
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// Routes returns routes as the patches have them.
func (p *Patcher) Routes(r *routev3.RouteConfiguration) *routev3.RouteConfiguration {
	now, _ := apply(p, r, func(a *attempt, r *routev3.RouteConfiguration) bool {
		p.patchRoutes(a, r)
		return true
	}, refusedRoutes)
	return now
}

func (p *Patcher) patchRoutes(a *attempt, r *routev3.RouteConfiguration) {
	for patch := range a.to(networking.EnvoyFilter_ROUTE_CONFIGURATION) {
		if matchesRoutes(patch, p.context, r) {
			merge(r, patch.Value)
			a.used[patch] = true
		}
	}
	removed := make(map[string]bool)
	for i := range r.GetVirtualHosts() {
		if !p.patchHost(a, r, i) {
			removed[r.GetVirtualHosts()[i].GetName()] = true
		}
	}
	for patch := range a.to(networking.EnvoyFilter_VIRTUAL_HOST) {
		if patch.Operation == networking.EnvoyFilter_Patch_ADD && matchesRoutes(patch, p.context, r) {
			r.VirtualHosts = append(r.VirtualHosts, proto.Clone(patch.Value).(*routev3.VirtualHost))
			a.used[patch] = true
		}
	}
	r.VirtualHosts = slices.DeleteFunc(r.GetVirtualHosts(), func(v *routev3.VirtualHost) bool { return removed[v.GetName()] })
}

// patchHost patches a virtual host of some routes, and says whether there is still one.
func (p *Patcher) patchHost(a *attempt, r *routev3.RouteConfiguration, i int) (keep bool) {
	for patch := range a.to(networking.EnvoyFilter_VIRTUAL_HOST) {
		if patch.Operation == networking.EnvoyFilter_Patch_ADD || !matchesRoutes(patch, p.context, r) || !matchesHost(patch, r.VirtualHosts[i]) {
			continue
		}
		switch a.used[patch] = true; patch.Operation {
		case networking.EnvoyFilter_Patch_REMOVE:
			return false
		case networking.EnvoyFilter_Patch_MERGE:
			merge(r.VirtualHosts[i], patch.Value)
		case networking.EnvoyFilter_Patch_REPLACE:
			r.VirtualHosts[i] = proto.Clone(patch.Value).(*routev3.VirtualHost)
		}
	}
	v := r.VirtualHosts[i]
	matching := func(yield func(*model.Patch) bool) {
		for patch := range a.to(networking.EnvoyFilter_HTTP_ROUTE) {
			if matchesRoutes(patch, p.context, r) && matchesHost(patch, v) && !yield(patch) {
				return
			}
		}
	}
	v.Routes = slices.DeleteFunc(v.GetRoutes(), func(route *routev3.Route) bool {
		for patch := range matching {
			if remove := patch.Operation == networking.EnvoyFilter_Patch_REMOVE; matchesRoute(patch, route) &&
				(remove || patch.Operation == networking.EnvoyFilter_Patch_MERGE) {
				if a.used[patch] = true; remove {
					return true
				}
				merge(route, patch.Value)
			}
		}
		return false
	})
	for patch := range matching {
		named := patch.Match.GetRouteConfiguration().GetVhost().GetRoute() != nil
		matches := func(route *routev3.Route) bool { return matchesRoute(patch, route) }
		switch patch.Operation {
		case networking.EnvoyFilter_Patch_MERGE, networking.EnvoyFilter_Patch_REMOVE:
			continue
		case networking.EnvoyFilter_Patch_INSERT_FIRST:
			if named && !slices.ContainsFunc(v.GetRoutes(), matches) {
				continue
			}
		}
		v.Routes = edit(a, patch, v.GetRoutes(), named, matches)
	}
	return true
}

func matchesRoutes(p *model.Patch, context networking.EnvoyFilter_PatchContext, r *routev3.RouteConfiguration) bool {
	m := p.Match.GetRouteConfiguration()
	if m == nil {
		return true
	}
	port, portName, gateway := namesOf(r.GetName(), context)
	if context == networking.EnvoyFilter_GATEWAY &&
		(m.GetPortName() != "" && m.GetPortName() != portName || m.GetGateway() != "" && m.GetGateway() != gateway) {
		return false
	}
	return (m.GetName() == "" || m.GetName() == r.GetName()) && (m.GetPortNumber() == 0 || m.GetPortNumber() == port)
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
	if m.GetName() != "" && m.GetName() != r.GetName() {
		return false
	}
	want := m.GetAction()
	if want == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY {
		return true
	}
	switch r.GetAction().(type) {
	case *routev3.Route_Route:
		return want == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE
	case *routev3.Route_Redirect:
		return want == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT
	case *routev3.Route_DirectResponse:
		return want == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE
	}
	return true
}
