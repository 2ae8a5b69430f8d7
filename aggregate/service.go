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
	alike      alike     // what a member must have in common with the first
	traits     traits    // of all members
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
	byPort := make(map[uint32]int) // to the place of the first service that claims the port
	for _, m := range slices.SortedStableFunc(slices.Values(members), byTurn) {
		ports := claimed(m.spec)
		if f.hosts == "" {
			ports = []uint32{0} // they would all be served under one name
		}
		first := len(services)
		for _, port := range ports {
			if i, ok := byPort[port]; ok {
				first = min(first, i)
			}
		}
		if first == len(services) {
			services = append(services, newService(f, m))
			for _, port := range ports {
				byPort[port] = first
			}
			continue
		}
		if reason := services[first].misfit(m); reason == "" {
			services[first].join(m)
		} else {
			services[first].refuse(m, reason)
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

// refuse takes note that m is not served.
func (s *service) refuse(m *member, reason string) {
	if !m.from.retired { // such a one fills gaps, and is never a loser
		s.refused = append(s.refused, refusal{m, reason})
	}
}

// outdo refuses what others would serve under the name of s.
func (s *service) outdo(others []*service) {
	for _, o := range others {
		if o.key() != s.key() {
			continue
		}
		all := o.members
		for _, r := range o.refused {
			all = append(all, r.member)
		}
		for _, m := range all {
			s.refuse(m, "its name is that of "+s.family.String())
		}
	}
	slices.SortStableFunc(s.refused, func(a, b refusal) int { return cmp.Compare(a.from.rank, b.from.rank) })
}

// turn orders the members of a family by how much would be lost if they were not served.
func (m *member) turn() int {
	switch {
	case m.from.retired:
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

// newService returns the service of which m is the first member.
func newService(f family, m *member) *service {
	return &service{family: f, members: []*member{m}, alike: alikeOf(m.spec), traits: traitsOf(m.spec)}
}

// join makes m, which is no misfit, a member.
func (s *service) join(m *member) {
	s.members = append(s.members, m)
	s.traits = s.traits.and(traitsOf(m.spec))
}

// alike is what the members of a service have in common, as text.
type alike struct{ ports, location, exportTo, names string }

func alikeOf(se *networking.ServiceEntry) alike {
	if se == nil {
		return alike{}
	}
	return alike{
		fmt.Sprint(portList(se)), se.Location.String(), fmt.Sprint(exports(se)),
		fmt.Sprint(slices.Sorted(slices.Values(se.SubjectAltNames))),
	}
}

// misfit says why the endpoints of m cannot be those of the service, or nothing.
func (s *service) misfit(m *member) string {
	if s.members[0].spec == nil || m.spec == nil {
		return "it cannot be decoded"
	}
	differ := func(what, ours, theirs string) string {
		if ours != theirs {
			return fmt.Sprintf("%s: %s, not %s", what, theirs, ours)
		}
		return ""
	}
	ours, theirs := s.alike, alikeOf(m.spec)
	return cmp.Or(
		differ("ports differ", ours.ports, theirs.ports),
		differ("location differs", ours.location, theirs.location),
		differ("exportTo differs", ours.exportTo, theirs.exportTo),
		differ("subjectAltNames differ", ours.names, theirs.names),
		s.traits.and(traitsOf(m.spec)).unmergeable(),
	)
}

// traits are what of entries that are otherwise alike may keep their endpoints from standing in one.
type traits struct {
	selector, none, some, names, lists bool
	severalToDNS                       bool
	notForDNS                          string
}

func traitsOf(se *networking.ServiceEntry) traits {
	return traits{
		selector: se.GetWorkloadSelector() != nil,
		none:     se.GetResolution() == networking.ServiceEntry_NONE, some: se.GetResolution() != networking.ServiceEntry_NONE,
		names: byName(se), lists: len(se.GetEndpoints()) > 0,
		severalToDNS: leftToDNS(se) && hostOf(se) == "", notForDNS: notForDNS(se),
	}
}

// and returns the traits of both.
func (t traits) and(o traits) traits {
	return traits{
		selector: t.selector || o.selector, none: t.none || o.none, some: t.some || o.some,
		names: t.names || o.names, lists: t.lists || o.lists,
		severalToDNS: t.severalToDNS || o.severalToDNS, notForDNS: cmp.Or(o.notForDNS, t.notForDNS),
	}
}

// unmergeable says what of several entries does not let their endpoints stand in one. Addresses and names do stand in one: it is
// resolved by DNS, to which an address is a name that is known.
func (t traits) unmergeable() string {
	switch {
	case t.selector:
		return "endpoints are chosen by a workload selector"
	case t.none && t.some:
		return "one of them has resolution NONE, which lists no endpoints"
	case t.names && t.notForDNS != "":
		return "one of them has names for endpoints, and another " + t.notForDNS
	case t.severalToDNS && t.lists:
		return "one of them leaves several hosts to DNS"
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
	var names []*service // that are resolved by DNS
	for _, s := range services {
		if s.resolution == networking.ServiceEntry_DNS {
			names = append(names, s)
		}
	}
	return slices.DeleteFunc(services, func(s *service) bool {
		i := slices.IndexFunc(names, func(o *service) bool { return o != s && s.mayJoin(o) })
		if i < 0 {
			return false
		}
		byDNS := names[i]
		switch {
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

// claimed returns the ports that an entry claims. One without any claims 0.
func claimed(se *networking.ServiceEntry) (ports []uint32) {
	for _, p := range se.GetPorts() {
		ports = append(ports, p.Number)
	}
	if ports == nil {
		return []uint32{0}
	}
	return ports
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
