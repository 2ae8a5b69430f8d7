package envoy

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// view is what a host is to the clients of a profile: the service, if there is one, and the rules that apply to it. It is not modified once it
// was made. A translation is made of nothing else, and key tells it from all others.
type view struct {
	host    string
	service *service // nil for a host that only has routes
	policy  policy
	rules   map[int]*rule[*networking.VirtualService] // that apply, by part of the clients' Sidecar
	own     *rule[*networking.VirtualService]         // that has routes of the host where no service has it; nil if there is none
	targets map[string]target                         // to which the routes lead, by the name of the host

	servers []server                            // of a gateway
	bound   []*rule[*networking.VirtualService] // to these
	seen    *observation                        // by all listeners of a gateway

	client   profile        // without what does not bear on the rest
	objects  []resource.Key // of which it was made
	findings findings
}

// target is what routes have to know of a host to which they lead.
type target struct {
	ports  []uint32 // empty if there is no such service
	policy policy
}

// view returns what host is to the clients of a profile, or nil.
func (m *mesh) view(host string, p profile, only *sidecarRule) *view {
	if p.role == ingress {
		return m.onGateways(host, p)
	}
	if isUnit(host) {
		return nil
	}
	v := &view{host: host, service: m.service(host, p, only), targets: make(map[string]target)}
	v.rules = make(map[int]*rule[*networking.VirtualService])
	for i, part := range only.parts() {
		if r := m.virtual(host, p, part, &v.findings); r != nil {
			v.rules[i] = r
		}
	}
	if v.own = m.unregistered(v, p, only); v.own == nil && v.service == nil {
		return nil
	}
	if only != nil {
		v.objects = append(v.objects, only.key)
	}
	m.applyPolicy(v, p)
	whole := make(map[*rule[*networking.VirtualService]]*rule[*networking.VirtualService])
	for i := range only.parts() {
		r := v.rules[i]
		if r == nil {
			continue
		}
		if whole[r] == nil {
			whole[r] = m.follow(v, r, p, only)
		}
		v.rules[i] = whole[r]
	}
	if v.own != nil {
		v.own = whole[v.own]
	}
	return v.close(p)
}

// applyPolicy adds the policy of the view's service, if there is one.
func (m *mesh) applyPolicy(v *view, p profile) {
	if v.service == nil {
		return
	}
	v.policy = m.policy(v.service, p.namespace)
	v.objects = append(append(v.objects, v.service.objects...), v.policy.objects...)
}

// follow returns a VirtualService with what it delegates, and adds the services to which it leads.
func (m *mesh) follow(v *view, r *rule[*networking.VirtualService], p profile, only *sidecarRule) *rule[*networking.VirtualService] {
	leadsTo := r.leadsTo
	v.objects = append(v.objects, r.key)
	for _, d := range m.delegates(r) {
		v.objects = append(v.objects, d.key)
		leadsTo = append(slices.Clip(leadsTo), d.leadsTo...)
	}
	for _, to := range leadsTo {
		s := m.service(to, p, only)
		if s == nil {
			continue
		}
		t := target{policy: m.policy(s, p.namespace)}
		for _, port := range s.ports {
			t.ports = append(t.ports, port.number)
		}
		v.targets[to] = t
		v.objects = append(v.objects, t.policy.objects...)
	}
	return m.whole(r, &v.findings)
}

// unregistered returns the VirtualService that has routes of the view's host where no service has it, or nil. The routes of a wildcard that stands for
// services are with these.
func (m *mesh) unregistered(v *view, p profile, only *sidecarRule) *rule[*networking.VirtualService] {
	r := v.rules[only.part(unregisteredPort)]
	if r == nil || !slices.Contains(r.hosts, v.host) {
		return nil
	}
	if only == nil {
		if v.service != nil || m.standsForSome(v.host, p.namespace) {
			return nil
		}
		return r
	}
	if v.service.isReached(unregisteredPort) {
		return nil
	}
	if !isWildcard(v.host) {
		return r
	}
	for known := range m.hosts {
		if matches(v.host, known) && m.service(known, p, only).isReached(unregisteredPort) {
			return nil
		}
	}
	return r
}

// isReached says whether clients reach a port of the service, if there is one, by the routes of the port.
func (s *service) isReached(number uint32) bool {
	return s != nil && slices.ContainsFunc(s.ports, func(p port) bool { return p.number == number && !p.unreached && !p.late })
}

// standsForSome says whether a wildcard stands for a host that clients in a namespace see: its routes are then with that.
func (m *mesh) standsForSome(host, namespace string) bool {
	if !isWildcard(host) {
		return false
	}
	for known, entries := range m.hosts {
		if !matches(host, known) {
			continue
		}
		for _, e := range entries {
			if e.visibleTo(namespace) {
				return true
			}
		}
	}
	return false
}

// matchesSome says whether a wildcard stands for a host that there is.
func matchesSome(host string, hosts map[string]map[resource.Key]*entry) bool {
	if !isWildcard(host) {
		return false
	}
	for known := range hosts {
		if matches(host, known) {
			return true
		}
	}
	return false
}

// virtual returns the VirtualService that has the routes of a host to the clients in a namespace, or nil: the most senior one that names the
// host, else that of the narrowest wildcard.
func (m *mesh) virtual(host string, p profile, part *egress, found *findings) (first *rule[*networking.VirtualService]) {
	namespace := p.namespace
	var by string
	var others []*rule[*networking.VirtualService]
	for name, r := range m.virtuals.of(host) {
		if first != nil && name != by {
			break
		}
		if !visibleTo(r.exportTo, r.key.Namespace, namespace) || !forMesh(r.spec) || !part.routes(r, namespace) {
			continue
		}
		if others, by = append(others, r), name; first == nil || r.seniority(namespace).compare(first.seniority(namespace)) < 0 {
			first = r
		}
	}
	for _, r := range others {
		if r != first {
			found.note(place{r.key, "spec.hosts"}, "VirtualService %s comes first for %s", first.key.FullName(), host)
		}
	}
	return first
}

// meshGateway is the name of the gateway that stands for all sidecars.
const meshGateway = "mesh"

func forMesh(spec *networking.VirtualService) bool {
	return len(spec.GetGateways()) == 0 || slices.Contains(spec.GetGateways(), meshGateway)
}

// tellsApart says whether the routes differ by who asks.
func tellsApart(spec *networking.VirtualService) bool {
	for _, h := range spec.GetHttp() {
		if slices.ContainsFunc(h.GetMatch(), ofSome[*networking.HTTPMatchRequest]) {
			return true
		}
	}
	for _, r := range spec.GetTls() {
		if slices.ContainsFunc(r.GetMatch(), ofSome[*networking.TLSMatchAttributes]) {
			return true
		}
	}
	for _, r := range spec.GetTcp() {
		if slices.ContainsFunc(r.GetMatch(), ofSome[*networking.L4MatchAttributes]) {
			return true
		}
	}
	return false
}

// ofSome says whether a match is one for some clients only.
func ofSome[M attributes](m M) bool {
	return len(m.GetSourceLabels()) > 0 || m.GetSourceNamespace() != ""
}
