package index

import (
	"cmp"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// servers returns the servers of the gateways that select a client, the oldest gateway's first. The first server at an
// address and port decides between plaintext and TLS there, and with plaintext between HTTP and TCP.
func (m *Mesh) servers(profile model.Profile, findings *model.Findings) (servers []model.Server) {
	labels := profile.LabelMap()
	var gateways []*model.Gateway
	for _, gateway := range m.Gateways {
		if model.SelectsLabels(gateway.Spec.GetSelector(), labels) {
			gateways = append(gateways, gateway)
		}
	}
	slices.SortFunc(gateways, func(a, b *model.Gateway) int {
		return cmp.Or(a.Created.Compare(b.Created), a.Key.Compare(b.Key))
	})
	byBinding := make(map[model.Binding]model.Server)
	ports := make(map[uint32]model.Server)
	for _, gateway := range gateways {
		unenforced := m.foreignPolicies(gateway, profile)
		for i, spec := range gateway.Spec.GetServers() {
			kind, _ := model.KindOf(spec)
			server := model.Server{
				Server: spec, Gateway: gateway, Place: model.PlaceIn(gateway.Key, "spec.servers[%d]", i),
				Kind: kind,
				Bind: model.AddressOf(cmp.Or(spec.GetBind(), model.Wildcard)),
			}
			if kind == model.ServerUnknown {
				continue
			}
			if len(unenforced) > 0 {
				server.Denial = security.Deny(unenforced, "")
				findings.Note(server.Place, "Envoys of namespace %s do not enforce %s: the server denies all; run its Envoys in "+
					"namespace %s",
					profile.Namespace, unenforced[0], gateway.Key.Namespace)
			}
			if server.NeedsIdentity() && profile.Identity == "" {
				findings.Note(server.Place.Subfield("tls.mode"), "the gateway has no identity: the server is left out")
				continue
			}
			port := spec.GetPort().GetNumber()
			first, taken := byBinding[model.Binding{Address: server.Bind, Port: port}]
			if taken && (first.Kind.Encrypted() != kind.Encrypted() ||
				!kind.Encrypted() && (first.Kind != kind || kind == model.ServerTCP)) {
				findings.Note(server.Place, "%s of Gateway %s has %s, and speaks something else there: the server is left out",
					first.Place.Field,
					first.Gateway.Key.FullName(), model.HostPort(server.Bind, port))
				continue
			}
			if previous, used := ports[port]; used && previous.Bind != server.Bind &&
				(previous.Bind == model.Wildcard || server.Bind == model.Wildcard) {
				findings.Note(server.Place, "%s of Gateway %s has %s, so that %s could not be bound: the server is left out",
					previous.Place.Field, previous.Gateway.Key.FullName(), model.HostPort(previous.Bind, port),
					model.HostPort(server.Bind, port))
				continue
			}
			if !taken {
				byBinding[model.Binding{Address: server.Bind, Port: port}] = server
			}
			ports[port] = server
			switch kind {
			case model.ServerHTTP:
				server.Route = "http." + model.RouteName(port)
			case model.ServerHTTPS:
				server.Route = "https." + model.RouteName(port) + "." + spec.GetPort().GetName() + "." + gateway.Key.Name + "." +
					gateway.Key.Namespace
			}
			if server.Route != "" && server.Bind != model.Wildcard {
				server.Route += "." + server.Bind
			}
			servers = append(servers, server)
		}
	}
	return servers
}

func (m *Mesh) setGateway(key resource.Key, object *resource.Resource, spec *networking.Gateway) {
	m.touched[model.GatewayPseudoHost] = true
	if old := m.Gateways[key]; old != nil {
		m.touchPorts(old)
		m.countNames(old, -1)
		delete(m.Gateways, key)
	}
	if spec != nil {
		gateway := &model.Gateway{
			Key: key, Created: object.Created(), Version: object.Version(), Spec: spec,
			Derived: object.Annotations()[resource.GatewaySemantics] == "gateway",
			Parents: object.Annotations()[resource.DerivedFrom],
		}
		m.Gateways[key] = gateway
		m.countNames(gateway, 1)
		m.touchPorts(gateway)
	}
}

// countNames adds delta to the counts of the hosts of a Gateway's servers.
func (m *Mesh) countNames(gateway *model.Gateway, delta int) {
	for name := range gateway.Names() {
		m.gatewayHosts[name] += delta
		if m.gatewayHosts[name] == 0 {
			delete(m.gatewayHosts, name)
		}
	}
}

// touchPorts adds the hosts that depend on a Gateway: those with routes on it, and on each Gateway with a port of it,
// because all Gateways with a port compete for it.
func (m *Mesh) touchPorts(gateway *model.Gateway) {
	gateway.Touch(m.touched)
	for _, spec := range gateway.Spec.GetServers() {
		port := spec.GetPort().GetNumber()
		pseudoHost := model.PortPrefix + model.RouteName(port)
		if m.touched[pseudoHost] {
			continue // earlier Gateways of the port are touched already, and later ones touched themselves
		}
		m.touched[pseudoHost] = true
		for _, competitor := range m.Gateways {
			if competitor.HasPort(port) {
				competitor.Touch(m.touched)
			}
		}
	}
}

// onGateways returns the view of a domain for gateways of a profile, or nil: the VirtualServices of the domain, those
// with the highest precedence first.
func (m *Mesh) onGateways(host string, profile model.Profile) *model.View {
	view := &model.View{Host: host, RouteTargets: make(map[string]model.Target)}
	view.Servers = m.servers(profile, &view.Findings)
	if host != model.GatewayPseudoHost {
		view.Findings = nil
	}
	for _, s := range view.Servers {
		view.Objects = append(view.Objects, s.Gateway.Key)
	}
	if host == model.GatewayPseudoHost {
		view.Observability = m.Observation(profile, nil)
		view.Objects = append(view.Objects, view.Observability.Objects...)
		view.Findings = append(view.Findings, view.Observability.Findings...)
		view.Security = m.Security(profile, nil)
		view.Objects = append(view.Objects, view.Security.Objects...)
		view.Findings = append(view.Findings, view.Security.Findings...)
	}
	bound := slices.Clone(m.Virtuals.exact[model.GatewayPseudoHost])
	if host != model.GatewayPseudoHost {
		bound = nil
		for _, virtualService := range m.Virtuals.forHost(host) {
			bound = append(bound, virtualService)
		}
		view.Service = m.service(host, profile, nil)
		m.applyPolicy(view, profile)
	}
	slices.SortFunc(bound, func(a, b *model.VirtualService) int {
		return cmp.Or(a.Precedence(profile.Namespace).Compare(b.Precedence(profile.Namespace)), model.OlderRule(a, b))
	})
	for _, virtualService := range slices.Compact(bound) {
		if slices.ContainsFunc(view.Servers, func(s model.Server) bool {
			return s.Bound(virtualService, profile) && (host == model.GatewayPseudoHost || s.Serves(virtualService, host))
		}) {
			view.BoundVirtualServices = append(view.BoundVirtualServices, m.follow(view, virtualService, profile, nil))
		}
	}
	redirects := slices.ContainsFunc(view.Servers, func(s model.Server) bool { return s.Redirects(host) })
	if view.Service == nil && len(view.BoundVirtualServices) == 0 && host != model.GatewayPseudoHost && !redirects {
		return nil
	}
	return completeView(view, profile)
}
