package index

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// View returns what host is to the clients of a profile, or nil. secured is what Security returns for these, for inbound listeners.
func (m *Mesh) View(host string, p model.Profile, only *SidecarRule, secured *model.Security) *model.View {
	if p.Role == model.Ingress {
		return m.onGateways(host, p)
	}
	if host == model.InboundUnit {
		return m.inbound(p, only, secured)
	}
	if model.IsUnit(host) {
		return nil
	}
	v := &model.View{Host: host, Service: m.service(host, p, only), Targets: make(map[string]model.Target)}
	v.Rules = make(map[int]*model.Rule[*networking.VirtualService])
	for i, part := range only.parts() {
		if r := m.virtual(v, p, part); r != nil {
			v.Rules[i] = r
		}
	}
	if v.Own = m.unregistered(v, p, only); v.Own == nil && v.Service == nil {
		return nil
	}
	if only != nil {
		v.Objects = append(v.Objects, only.key)
	}
	m.applyPolicy(v, p)
	whole := make(map[*model.Rule[*networking.VirtualService]]*model.Rule[*networking.VirtualService])
	for i := range only.parts() {
		r := v.Rules[i]
		if r == nil {
			continue
		}
		if whole[r] == nil {
			whole[r] = m.follow(v, r, p, only)
		}
		v.Rules[i] = whole[r]
	}
	if v.Own != nil {
		v.Own = whole[v.Own]
	}
	return complete(v, p)
}

// applyPolicy adds the policy of the view's service, if there is one.
func (m *Mesh) applyPolicy(v *model.View, p model.Profile) {
	if v.Service == nil {
		return
	}
	v.Policy = m.policy(v.Service, p.Namespace)
	v.Mutual = m.mutual(v.Service, &v.Policy, p)
	v.Objects = append(append(v.Objects, v.Service.Objects...), v.Policy.Objects...)
}

// follow returns a VirtualService with what it delegates, and adds the services to which it leads.
func (m *Mesh) follow(v *model.View, r *model.Rule[*networking.VirtualService], p model.Profile,
	only *SidecarRule,
) *model.Rule[*networking.VirtualService] {
	leadsTo := r.LeadsTo
	v.Objects = append(v.Objects, r.Key)
	for _, d := range m.delegates(r) {
		v.Objects = append(v.Objects, d.Key)
		leadsTo = append(slices.Clip(leadsTo), d.LeadsTo...)
	}
	for _, to := range leadsTo {
		s := m.service(to, p, only)
		if s == nil {
			continue
		}
		t := model.Target{Policy: m.policy(s, p.Namespace)}
		for _, port := range s.Ports {
			t.Ports = append(t.Ports, port.Number)
		}
		v.Targets[to] = t
		v.Objects = append(v.Objects, t.Policy.Objects...)
	}
	return m.withDelegates(r, &v.Findings)
}

// unregistered returns the VirtualService that has routes of the view's host where no service has it, or nil. The routes of a wildcard that
// stands for services are with these.
func (m *Mesh) unregistered(v *model.View, p model.Profile, only *SidecarRule) *model.Rule[*networking.VirtualService] {
	r := v.Rules[only.part(model.UnregisteredPort)]
	if r == nil || !slices.Contains(r.Hosts, v.Host) {
		return nil
	}
	if only == nil {
		if v.Service != nil || m.standsForSome(v.Host, p.Namespace) {
			return nil
		}
		return r
	}
	if v.Service.IsReached(model.UnregisteredPort) {
		return nil
	}
	if !model.IsWildcard(v.Host) {
		return r
	}
	for known := range m.Hosts {
		if model.Matches(v.Host, known) && m.service(known, p, only).IsReached(model.UnregisteredPort) {
			return nil
		}
	}
	return r
}

// standsForSome says whether a wildcard stands for a host that clients in a namespace see: its routes are then with that.
func (m *Mesh) standsForSome(host, namespace string) bool {
	if !model.IsWildcard(host) {
		return false
	}
	for known, entries := range m.Hosts {
		if !model.Matches(host, known) {
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

// MatchesSome says whether a wildcard stands for a host that there is.
func MatchesSome(host string, hosts map[string]map[resource.Key]*entry) bool {
	if !model.IsWildcard(host) {
		return false
	}
	for known := range hosts {
		if model.Matches(host, known) {
			return true
		}
	}
	return false
}

// virtual returns the VirtualService that has the routes of the view's host to the clients in a namespace, or nil: the most senior one that
// names the host, else that of the narrowest wildcard. One of Gateway API is for a service that it names, and for clients in its own
// namespace unless that is the service's.
func (m *Mesh) virtual(v *model.View, p model.Profile, part *egress) (first *model.Rule[*networking.VirtualService]) {
	namespace := p.Namespace
	var by string
	var others []*model.Rule[*networking.VirtualService]
	for name, r := range m.Virtuals.forHost(v.Host) {
		if first != nil && name != by {
			break
		}
		if !model.VisibleTo(r.ExportTo, r.Key.Namespace, namespace) || !forMesh(r.Spec) || !part.importsRoutes(r, namespace) {
			continue
		}
		if of := r.Key.Namespace; r.Derived == model.DerivedGateway &&
			(model.IsWildcard(name) || v.Service == nil || of != v.Service.Namespace && of != namespace) {
			continue
		}
		if others, by = append(others, r), name; first == nil || r.Precedence(namespace).Compare(first.Precedence(namespace)) < 0 {
			first = r
		}
	}
	for _, r := range others {
		if r != first {
			v.Findings.Note(model.Place{Of: r.Key, Field: "spec.hosts"}, "VirtualService %s comes first for %s", first.Key.FullName(), v.Host)
		}
	}
	return first
}

func forMesh(spec *networking.VirtualService) bool {
	return len(spec.GetGateways()) == 0 || slices.Contains(spec.GetGateways(), model.MeshGateway)
}
