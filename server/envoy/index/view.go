package index

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// View returns the view of a host for the clients of a profile, or nil. secured is the result of Security for them.
func (m *Mesh) View(host string, profile model.Profile, sidecar *Sidecar, secured *model.Security) *model.View {
	if profile.Role == model.Ingress {
		return m.onGateways(host, profile)
	}
	if host == model.InboundPseudoHost {
		return m.inbound(profile, sidecar, secured)
	}
	if model.IsPseudoHost(host) {
		return nil
	}
	view := &model.View{
		Host: host, Service: m.service(host, profile, sidecar),
		RouteTargets: make(map[string]model.Target),
	}
	view.RoutesByListener = make(map[int]*model.VirtualService)
	for i, listener := range sidecar.egressListeners() {
		if virtualService := m.virtualServiceFor(view, profile, listener); virtualService != nil {
			view.RoutesByListener[i] = virtualService
		}
	}
	view.UnregisteredRoutes = m.unregistered(view, profile, sidecar)
	if view.UnregisteredRoutes == nil && view.Service == nil {
		return nil
	}
	if sidecar != nil {
		view.Objects = append(view.Objects, sidecar.key)
	}
	m.applyPolicy(view, profile)
	followed := make(map[*model.VirtualService]*model.VirtualService)
	for i := range sidecar.egressListeners() {
		virtualService := view.RoutesByListener[i]
		if virtualService == nil {
			continue
		}
		if followed[virtualService] == nil {
			followed[virtualService] = m.follow(view, virtualService, profile, sidecar)
		}
		view.RoutesByListener[i] = followed[virtualService]
	}
	if view.UnregisteredRoutes != nil {
		view.UnregisteredRoutes = followed[view.UnregisteredRoutes]
	}
	return completeView(view, profile)
}

// applyPolicy adds the policy of the view's service.
func (m *Mesh) applyPolicy(view *model.View, profile model.Profile) {
	if view.Service == nil {
		return
	}
	view.Policy = m.policy(view.Service, profile.Namespace)
	view.Mutual = m.mutual(view.Service, &view.Policy, profile)
	view.Objects = append(append(view.Objects, view.Service.Objects...), view.Policy.Objects...)
}

// follow returns a VirtualService with the routes of its delegates, and adds the services that it leads to.
func (m *Mesh) follow(
	view *model.View, virtualService *model.VirtualService, profile model.Profile, sidecar *Sidecar,
) *model.VirtualService {
	dependsOn := virtualService.DependsOn
	view.Objects = append(view.Objects, virtualService.Key)
	for _, delegate := range m.delegates(virtualService) {
		view.Objects = append(view.Objects, delegate.Key)
		dependsOn = append(slices.Clip(dependsOn), delegate.DependsOn...)
	}
	for _, destination := range dependsOn {
		service := m.service(destination, profile, sidecar)
		if service == nil {
			continue
		}
		target := model.Target{Policy: m.policy(service, profile.Namespace)}
		for _, port := range service.Ports {
			target.Ports = append(target.Ports, port.Number)
		}
		view.RouteTargets[destination] = target
		view.Objects = append(view.Objects, target.Policy.Objects...)
	}
	return m.withDelegates(virtualService, &view.Findings)
}

// unregistered returns the VirtualService with routes of the view's host if no service has the host, or nil. The
// services that a wildcard stands for have its routes.
func (m *Mesh) unregistered(view *model.View, profile model.Profile, sidecar *Sidecar) *model.VirtualService {
	virtualService := view.RoutesByListener[sidecar.listenerIndex(model.UnregisteredPort)]
	if virtualService == nil || !slices.Contains(virtualService.Hosts, view.Host) {
		return nil
	}
	if sidecar == nil {
		if view.Service != nil || m.matchesVisible(view.Host, profile.Namespace) {
			return nil
		}
		return virtualService
	}
	if view.Service.IsReached(model.UnregisteredPort) {
		return nil
	}
	if !model.IsWildcard(view.Host) {
		return virtualService
	}
	for registered := range m.Hosts {
		if model.Matches(view.Host, registered) && m.service(registered, profile, sidecar).IsReached(model.UnregisteredPort) {
			return nil
		}
	}
	return virtualService
}

// matchesVisible reports whether a wildcard stands for a host that clients in a namespace see: that host has its
// routes.
func (m *Mesh) matchesVisible(host, namespace string) bool {
	if !model.IsWildcard(host) {
		return false
	}
	for registered, entries := range m.Hosts {
		if !model.Matches(host, registered) {
			continue
		}
		for _, e := range entries {
			if e.VisibleTo(namespace) {
				return true
			}
		}
	}
	return false
}

// MatchesAny reports whether a wildcard stands for an existing host.
func MatchesAny(host string, hosts map[string]map[resource.Key]*entry) bool {
	if !model.IsWildcard(host) {
		return false
	}
	for registered := range hosts {
		if model.Matches(host, registered) {
			return true
		}
	}
	return false
}

// virtualServiceFor returns the VirtualService with the routes of the view's host for the clients of a profile, or nil:
// the one with the highest precedence that names the host, else that of the narrowest wildcard. Routes of the Gateway
// API apply to a service that they name, in the namespace of the service, and elsewhere only to clients of their own
// namespace.
func (m *Mesh) virtualServiceFor(
	view *model.View, profile model.Profile, listener *egress,
) (first *model.VirtualService) {
	namespace := profile.Namespace
	var matched string
	var candidates []*model.VirtualService
	for name, virtualService := range m.Virtuals.forHost(view.Host) {
		if first != nil && name != matched {
			break
		}
		owner := virtualService.Key.Namespace
		if !model.VisibleTo(virtualService.ExportTo, owner, namespace) || !forMesh(virtualService.Spec) ||
			!listener.importsRoutes(virtualService, namespace) {
			continue
		}
		if virtualService.Derived == model.DerivedGateway &&
			(model.IsWildcard(name) || view.Service == nil || owner != view.Service.Namespace && owner != namespace) {
			continue
		}
		matched = name
		candidates = append(candidates, virtualService)
		if first == nil || virtualService.Precedence(namespace).Compare(first.Precedence(namespace)) < 0 {
			first = virtualService
		}
	}
	for _, virtualService := range candidates {
		if virtualService != first {
			view.Findings.Note(model.PlaceIn(virtualService.Key, "spec.hosts"), "VirtualService %s comes first for %s",
				first.Key.FullName(), view.Host)
		}
	}
	return first
}

func forMesh(spec *networking.VirtualService) bool {
	return len(spec.GetGateways()) == 0 || slices.Contains(spec.GetGateways(), model.MeshGateway)
}
