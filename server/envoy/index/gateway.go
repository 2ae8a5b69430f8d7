package index

import (
	"cmp"
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// servers returns the servers of the gateways that are for a client, the oldest gateway's first. What is at one address and port is of one
// sort: the first server there decides whether it is in the clear, and then whether it is HTTP.
func (m *Mesh) servers(p model.Profile, found *model.Findings) (all []model.Server) {
	labels := p.LabelMap()
	var list []*model.Gateway
	for _, g := range m.Gateways {
		if model.SelectsLabels(g.Spec.GetSelector(), labels) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *model.Gateway) int { return cmp.Or(a.Created.Compare(b.Created), a.Key.Compare(b.Key)) })
	at := make(map[model.Binding]model.Server)
	ports := make(map[uint32]model.Server)
	for _, g := range list {
		unenforced := m.foreignPolicies(g, p)
		for i, spec := range g.Spec.GetServers() {
			kind, _ := model.KindOf(spec)
			s := model.Server{
				Server: spec, Gateway: g, Place: model.Place{Of: g.Key, Field: fmt.Sprintf("spec.servers[%d]", i)}, Kind: kind,
				Bind: model.AddressOf(cmp.Or(spec.GetBind(), model.Wildcard)),
			}
			if kind == model.ServerUnknown {
				continue
			}
			if len(unenforced) > 0 {
				s.Denial = security.Deny(unenforced, "")
				found.Note(s.Place, "Envoys of namespace %s do not enforce %s: the server denies all; run its Envoys in namespace %s",
					p.Namespace, unenforced[0], g.Key.Namespace)
			}
			if s.NeedsIdentity() && p.Identity == "" {
				found.Note(s.Place.In("tls.mode"), "the gateway has no identity: the server is left out")
				continue
			}
			port := spec.GetPort().GetNumber()
			first, taken := at[model.Binding{Address: s.Bind, Port: port}]
			if taken && (first.Kind.Encrypted() != kind.Encrypted() || !kind.Encrypted() && (first.Kind != kind || kind == model.ServerTCP)) {
				found.Note(s.Place, "%s of Gateway %s has %s, and speaks something else there: the server is left out", first.Place.Field,
					first.Gateway.Key.FullName(), model.HostPort(s.Bind, port))
				continue
			}
			if other, used := ports[port]; used && other.Bind != s.Bind && (other.Bind == model.Wildcard || s.Bind == model.Wildcard) {
				found.Note(s.Place, "%s of Gateway %s has %s, so that %s could not be bound: the server is left out",
					other.Place.Field, other.Gateway.Key.FullName(), model.HostPort(other.Bind, port), model.HostPort(s.Bind, port))
				continue
			}
			if !taken {
				at[model.Binding{Address: s.Bind, Port: port}] = s
			}
			ports[port] = s
			switch kind {
			case model.ServerHTTP:
				s.Route = "http." + model.RouteName(port)
			case model.ServerHTTPS:
				s.Route = "https." + model.RouteName(port) + "." + spec.GetPort().GetName() + "." + g.Key.Name + "." + g.Key.Namespace
			}
			if s.Route != "" && s.Bind != model.Wildcard {
				s.Route += "." + s.Bind
			}
			all = append(all, s)
		}
	}
	return all
}

func (m *Mesh) setGateway(key resource.Key, r *resource.Resource, spec *networking.Gateway, touched map[string]struct{}) {
	touched[model.GatewayUnit] = struct{}{}
	if old := m.Gateways[key]; old != nil {
		m.touchPorts(old, touched)
		m.name(old, -1)
		delete(m.Gateways, key)
	}
	if spec != nil {
		g := &model.Gateway{
			Key: key, Created: r.Created(), Version: r.Version(), Spec: spec,
			Derived: r.Annotations()[resource.GatewaySemantics] == "gateway", Parents: r.Annotations()[resource.DerivedFrom],
		}
		m.Gateways[key] = g
		m.name(g, 1)
		m.touchPorts(g, touched)
	}
}

// name counts the hosts of a Gateway's servers as named once more, or less.
func (m *Mesh) name(g *model.Gateway, by int) {
	for name := range g.Names() {
		if m.named[name] += by; m.named[name] == 0 {
			delete(m.named, name)
		}
	}
}

// touchPorts adds what depends on a Gateway: what leads to it, and what leads to those that have a port of it, since who has a port depends
// on all who want it.
func (m *Mesh) touchPorts(g *model.Gateway, touched map[string]struct{}) {
	g.Touch(touched)
	for _, spec := range g.Spec.GetServers() {
		port := spec.GetPort().GetNumber()
		unit := model.PortPrefix + model.RouteName(port)
		if _, known := touched[unit]; known {
			continue // all that were there then were touched, and those that came since have touched themselves
		}
		touched[unit] = struct{}{}
		for _, other := range m.Gateways {
			if other.Wants(port) {
				other.Touch(touched)
			}
		}
	}
}

// onGateways returns what a domain is to gateways of a profile, or nil: the VirtualServices that have it, the senior first.
func (m *Mesh) onGateways(host string, p model.Profile) *model.View {
	v := &model.View{Host: host, Targets: make(map[string]model.Target)}
	if v.Servers = m.servers(p, &v.Findings); host != model.GatewayUnit {
		v.Findings = nil
	}
	for _, s := range v.Servers {
		v.Objects = append(v.Objects, s.Gateway.Key)
	}
	if host == model.GatewayUnit {
		v.Seen = m.Observation(p, nil)
		v.Objects = append(v.Objects, v.Seen.Objects...)
		v.Findings = append(v.Findings, v.Seen.Findings...)
		v.Secured = m.Security(p, nil)
		v.Objects = append(v.Objects, v.Secured.Objects...)
		v.Findings = append(v.Findings, v.Secured.Findings...)
	}
	bound := slices.Clone(m.Virtuals.exact[model.GatewayUnit])
	if host != model.GatewayUnit {
		bound = nil
		for _, r := range m.Virtuals.forHost(host) {
			bound = append(bound, r)
		}
		v.Service = m.service(host, p, nil)
		m.applyPolicy(v, p)
	}
	slices.SortFunc(bound, func(a, b *model.Rule[*networking.VirtualService]) int {
		return cmp.Or(a.Precedence(p.Namespace).Compare(b.Precedence(p.Namespace)), model.OlderRule(a, b))
	})
	for _, r := range slices.Compact(bound) {
		if slices.ContainsFunc(v.Servers, func(s model.Server) bool {
			return s.Bound(r, p) && (host == model.GatewayUnit || s.Serves(r, host))
		}) {
			v.Bound = append(v.Bound, m.follow(v, r, p, nil))
		}
	}
	redirects := slices.ContainsFunc(v.Servers, func(s model.Server) bool { return s.Redirects(host) })
	if v.Service == nil && len(v.Bound) == 0 && host != model.GatewayUnit && !redirects {
		return nil
	}
	return complete(v, p)
}
