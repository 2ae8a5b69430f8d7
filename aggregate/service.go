package aggregate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// member is a ServiceEntry as one source has it.
type member struct {
	from *contributor
	res  *resource.Resource
	spec *networking.ServiceEntry // nil if it cannot be decoded
}

// service is what becomes of members with the same ports: one ServiceEntry.
type service struct {
	family     family
	members    []*member // in order of precedence; the first one leads
	refused    []refusal // in order of precedence
	listed     []*listing
	served     []*listing // those of listed that are not on standby
	resolution networking.ServiceEntry_Resolution
}

// refusal is a member that claims a port of a service, and does not fit.
type refusal struct {
	*member
	reason string
}

// divide makes services of the members of a family, which are in order of precedence. A member joins the first service
// with which it has a port in common. If it has none with any, it is another service of the host, as istiod sees it too. Who
// serves something is heard before who does not, so that what cannot stand together costs no endpoint that is the only one.
func divide(f family, members []*member) (services []*service) {
	byTurn := func(a, b *member) int { return cmp.Compare(a.turn(), b.turn()) }
	for _, m := range slices.SortedStableFunc(slices.Values(members), byTurn) {
		i := slices.IndexFunc(services, func(s *service) bool { return overlap(s.members[0].spec, m.spec) })
		if i < 0 {
			services = append(services, &service{family: f, members: []*member{m}})
			continue
		}
		if s := services[i]; s.misfit(m) == "" {
			s.members = append(s.members, m)
		} else {
			s.refuse(m, s.misfit(m))
		}
	}
	order := make(map[*member]int, len(members))
	for i, m := range members {
		order[m] = i
	}
	for _, s := range services {
		slices.SortFunc(s.members, func(a, b *member) int { return cmp.Compare(order[a], order[b]) })
		s.gather()
		s.resolve()
	}
	services = resolveAlike(services)
	slices.SortFunc(services, func(a, b *service) int { return cmp.Compare(order[a.members[0]], order[b.members[0]]) })
	for _, s := range services {
		slices.SortFunc(s.refused, func(a, b refusal) int { return cmp.Compare(order[a.member], order[b.member]) })
	}
	return services
}

func (s *service) refuse(m *member, reason string) {
	if !m.from.former { // such a one fills gaps, and is never a loser
		s.refused = append(s.refused, refusal{m, reason})
	}
}

// turn orders the members of a family by how much would be lost if they were not served.
func (m *member) turn() int {
	switch {
	case m.from.former:
		return 3
	case idle(m.spec):
		return 2
	case leftToDNS(m.spec) && hostOf(m.spec) == "":
		return 1
	default:
		return 0
	}
}

// idle reports whether an entry serves nothing: no instance is healthy.
func idle(se *networking.ServiceEntry) bool {
	return se.GetResolution() == networking.ServiceEntry_STATIC && len(se.GetEndpoints()) == 0 && se.GetWorkloadSelector() == nil
}

// leftToDNS reports whether an entry has no endpoints since its host is one.
func leftToDNS(se *networking.ServiceEntry) bool {
	return byName(se) && len(se.GetEndpoints()) == 0 && se.GetWorkloadSelector() == nil
}

// byName reports whether the endpoints of an entry may be names.
func byName(se *networking.ServiceEntry) bool {
	return se.GetResolution() == networking.ServiceEntry_DNS || se.GetResolution() == networking.ServiceEntry_DNS_ROUND_ROBIN
}

// hostOf returns the host of an entry if it has one only, and that can be an endpoint. Of several each would be the endpoint of
// one service, which cannot be written in the list that they share.
func hostOf(se *networking.ServiceEntry) string {
	if hosts := se.GetHosts(); len(hosts) == 1 && !strings.HasPrefix(hosts[0], "*") {
		return hosts[0]
	}
	return ""
}

// lists returns the endpoints of a member. A host that is left to DNS is one.
func (m *member) lists() []*networking.WorkloadEntry {
	if host := hostOf(m.spec); host != "" && leftToDNS(m.spec) {
		return []*networking.WorkloadEntry{{Address: host}}
	}
	return m.spec.GetEndpoints()
}

// itself reports whether the endpoint is the host, by the word of somebody who left that to DNS.
func (l *listing) itself() bool { return leftToDNS(l.spec) }

// misfit says why the endpoints of m cannot be those of the service, or nothing.
func (s *service) misfit(m *member) string {
	a, b := s.members[0].spec, m.spec
	if a == nil || b == nil {
		return "it cannot be decoded"
	}
	differ := func(what string, ours, theirs any) string {
		if ours, theirs := fmt.Sprint(ours), fmt.Sprint(theirs); ours != theirs {
			return fmt.Sprintf("%s: %s, not %s", what, theirs, ours)
		}
		return ""
	}
	all := []*networking.ServiceEntry{b}
	for _, m := range s.members {
		all = append(all, m.spec)
	}
	return cmp.Or(
		differ("ports differ", portList(a), portList(b)),
		differ("location differs", a.Location, b.Location),
		differ("exportTo differs", exports(a), exports(b)),
		differ("subjectAltNames differ", slices.Sorted(slices.Values(a.SubjectAltNames)), slices.Sorted(slices.Values(b.SubjectAltNames))),
		unmergeable(all),
	)
}

// unmergeable says what of several entries that are otherwise alike does not let their endpoints stand in one. Addresses and
// names do stand in one: it is resolved by DNS, to which an address is a name that is known.
func unmergeable(all []*networking.ServiceEntry) string {
	none := func(se *networking.ServiceEntry) bool { return se.Resolution == networking.ServiceEntry_NONE }
	some := func(se *networking.ServiceEntry) bool { return !none(se) }
	names := slices.ContainsFunc(all, byName)
	for _, se := range all {
		switch {
		case se.WorkloadSelector != nil:
			return "endpoints are chosen by a workload selector"
		case none(se) && slices.ContainsFunc(all, some):
			return "one of them has resolution NONE, which lists no endpoints"
		case names && notForDNS(se) != "":
			return "one of them has names for endpoints, and another " + notForDNS(se)
		case leftToDNS(se) && hostOf(se) == "" && slices.ContainsFunc(all, func(se *networking.ServiceEntry) bool { return len(se.Endpoints) > 0 }):
			return "one of them leaves several hosts to DNS"
		}
	}
	return ""
}

// notForDNS names what of an entry cannot be in one that is resolved by DNS.
func notForDNS(se *networking.ServiceEntry) string {
	for _, address := range se.GetAddresses() {
		if strings.Contains(address, "/") {
			return "the network " + address
		}
	}
	for _, e := range se.GetEndpoints() {
		switch {
		case e.Address == "":
			return "an endpoint without an address"
		case strings.HasPrefix(e.Address, "unix://"):
			return "the socket " + e.Address
		}
	}
	return ""
}

// resolve finds the resolution of what is served. Members that serve nothing have no say in it.
func (s *service) resolve() {
	s.resolution = s.members[0].spec.GetResolution()
	var all []networking.ServiceEntry_Resolution
	for _, l := range s.served {
		all = append(all, l.spec.Resolution)
	}
	if len(s.served) == 0 {
		for _, m := range s.members {
			if !idle(m.spec) {
				all = append(all, m.spec.GetResolution())
			}
		}
	}
	switch all = slices.Compact(slices.Sorted(slices.Values(all))); {
	case len(all) > 1, slices.Contains(all, networking.ServiceEntry_DNS_ROUND_ROBIN) && len(s.served) > 1:
		s.resolution = networking.ServiceEntry_DNS
	case len(all) == 1:
		s.resolution = all[0]
	}
}

// resolveAlike gives the services of a host that istiod may join one resolution, since it joins no others: the ports of all but one
// would be lost. One that has nothing to serve is left out beside one that is resolved by DNS, as with DNS and without endpoints
// the host itself would be its endpoint.
func resolveAlike(services []*service) []*service {
	i := slices.IndexFunc(services, func(s *service) bool { return s.resolution == networking.ServiceEntry_DNS })
	if i < 0 {
		return services
	}
	byDNS := services[i]
	return slices.DeleteFunc(services, func(s *service) bool {
		switch {
		case s == byDNS || !s.mayJoin(byDNS):
		case len(s.served) > 0:
			s.resolution = networking.ServiceEntry_DNS
		case idle(s.members[0].spec) && s.resolution == networking.ServiceEntry_STATIC:
			for _, m := range s.members {
				byDNS.refuse(m, "it has no endpoints, and those of other ports of the host are names")
			}
			for _, r := range s.refused {
				byDNS.refuse(r.member, r.reason)
			}
			return true
		}
		return false
	})
}

// mayJoin reports whether istiod would join the ports of the services, were their resolution one.
func (s *service) mayJoin(o *service) bool {
	a, b := s.members[0], o.members[0]
	return maps.Equal(a.res.Labels(), b.res.Labels()) && slices.Equal(exports(a.spec), exports(b.spec)) &&
		a.spec.GetWorkloadSelector() == nil && b.spec.GetWorkloadSelector() == nil &&
		!slices.ContainsFunc(s.members, func(m *member) bool { return notForDNS(m.spec) != "" })
}

// overlap reports whether two entries of a host claim a port both. Those without ports do.
func overlap(a, b *networking.ServiceEntry) bool {
	if len(a.GetPorts()) == 0 && len(b.GetPorts()) == 0 {
		return true
	}
	return slices.ContainsFunc(a.GetPorts(), func(p *networking.ServicePort) bool {
		return slices.ContainsFunc(b.GetPorts(), func(q *networking.ServicePort) bool { return p.Number == q.Number })
	})
}

// portList returns the ports of an entry, without their names, in order.
func portList(se *networking.ServiceEntry) (ports []string) {
	byNumber := func(a, b *networking.ServicePort) int { return cmp.Compare(a.Number, b.Number) }
	for _, p := range slices.SortedFunc(slices.Values(se.Ports), byNumber) {
		ports = append(ports, fmt.Sprintf("%d/%s", p.Number, strings.ToUpper(p.Protocol)))
	}
	return ports
}

// exports returns the namespaces that see an entry, in order.
func exports(se *networking.ServiceEntry) []string {
	if len(se.GetExportTo()) == 0 {
		return []string{"*"}
	}
	return slices.Compact(slices.Sorted(slices.Values(se.ExportTo)))
}
