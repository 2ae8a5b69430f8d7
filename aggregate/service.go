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

// member is one source's ServiceEntry.
type member struct {
	from *contributor
	res  *resource.Resource
	spec *networking.ServiceEntry // nil if it cannot be decoded
}

// service joins members with common ports into one ServiceEntry.
type service struct {
	group      groupKey
	members    []*member // in order of precedence; the first one leads
	refused    []refusal // in order of precedence
	mergeKey   mergeKey  // of each member
	obstacles  obstacles // of all members
	listed     []*listing
	served     []*listing // those of listed that are not on standby
	resolution networking.ServiceEntry_Resolution
}

// refusal is a member that shares a port with a service and cannot join it.
type refusal struct {
	*member
	reason string
}

// divide groups a host's members into services, the most important first (see mergeOrder). A member joins the first
// service it shares a port with; without one it is a service of its own. Serving members go first, so that a conflict
// never drops the only endpoints.
func divide(groupKey groupKey, members []*member) (services []*service) {
	byMergeOrder := func(a, b *member) int { return cmp.Compare(a.mergeOrder(), b.mergeOrder()) }
	byPort := make(map[uint32]int) // to the index of the first service with the port
	for _, member := range slices.SortedStableFunc(slices.Values(members), byMergeOrder) {
		ports := portNumbers(member.spec)
		if groupKey.hosts == "" {
			ports = []uint32{0} // they would all be served under one name
		}
		first := len(services)
		for _, port := range ports {
			if i, ok := byPort[port]; ok {
				first = min(first, i)
			}
		}
		if first == len(services) {
			services = append(services, newService(groupKey, member))
			for _, port := range ports {
				byPort[port] = first
			}
			continue
		}
		if reason := services[first].mergeProblem(member); reason == "" {
			services[first].members = append(services[first].members, member)
			services[first].obstacles = services[first].obstacles.union(obstaclesOf(member.spec))
		} else {
			services[first].refuse(member, reason)
		}
	}
	order := make(map[*member]int, len(members))
	for i, m := range members {
		order[m] = i
	}
	for _, service := range services {
		slices.SortFunc(service.members, func(a, b *member) int { return cmp.Compare(order[a], order[b]) })
		service.gather()
		service.resolve()
	}
	services = resolveAlike(services)
	slices.SortFunc(services, func(a, b *service) int { return cmp.Compare(order[a.members[0]], order[b.members[0]]) })
	for _, s := range services {
		slices.SortFunc(s.refused, func(a, b refusal) int { return cmp.Compare(order[a.member], order[b.member]) })
	}
	return services
}

// refuse records that m is not served.
func (s *service) refuse(m *member, reason string) {
	if !m.from.retired { // a retired source only fills gaps
		s.refused = append(s.refused, refusal{m, reason})
	}
}

// refuseOthers refuses the members of other services that have the key of s.
func (s *service) refuseOthers(rivals []*service) {
	for _, rival := range rivals {
		if rival.key() != s.key() {
			continue
		}
		members := rival.members
		for _, r := range rival.refused {
			members = append(members, r.member)
		}
		for _, m := range members {
			s.refuse(m, "its name is taken by "+s.group.String())
		}
	}
	slices.SortStableFunc(s.refused, func(a, b refusal) int { return cmp.Compare(a.from.rank, b.from.rank) })
}

// mergeOrder orders the members of a group by how much would be lost if they were not served.
func (m *member) mergeOrder() int {
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

// idle reports whether an entry has no endpoints: no instance is healthy.
func idle(se *networking.ServiceEntry) bool {
	return se.GetResolution() == networking.ServiceEntry_STATIC && len(se.GetEndpoints()) == 0 &&
		se.GetWorkloadSelector() == nil
}

// leftToDNS reports whether an entry lists no endpoints since its host is the endpoint.
func leftToDNS(se *networking.ServiceEntry) bool {
	return byName(se) && len(se.GetEndpoints()) == 0 && se.GetWorkloadSelector() == nil
}

// byName reports whether the endpoints of an entry may be names.
func byName(se *networking.ServiceEntry) bool {
	return se.GetResolution() == networking.ServiceEntry_DNS ||
		se.GetResolution() == networking.ServiceEntry_DNS_ROUND_ROBIN
}

// hostOf returns the host of an entry if it is the only one and can be an endpoint. Of several, each would be the
// endpoint of one service only, but they share one list.
func hostOf(se *networking.ServiceEntry) string {
	if hosts := se.GetHosts(); len(hosts) == 1 && !strings.HasPrefix(hosts[0], "*") {
		return hosts[0]
	}
	return ""
}

// endpoints returns the endpoints of a member. A host that is left to DNS is one.
func (m *member) endpoints() []*networking.WorkloadEntry {
	if host := hostOf(m.spec); host != "" && leftToDNS(m.spec) {
		return []*networking.WorkloadEntry{{Address: host}}
	}
	return m.spec.GetEndpoints()
}

// newService returns a service with the first member m.
func newService(g groupKey, m *member) *service {
	return &service{group: g, members: []*member{m}, mergeKey: mergeKeyOf(m.spec), obstacles: obstaclesOf(m.spec)}
}

// mergeKey is equal for all members of a service.
type mergeKey struct{ ports, location, exportTo, altNames string }

func mergeKeyOf(serviceEntry *networking.ServiceEntry) mergeKey {
	if serviceEntry == nil {
		return mergeKey{}
	}
	return mergeKey{
		fmt.Sprint(portList(serviceEntry)), serviceEntry.Location.String(), fmt.Sprint(exports(serviceEntry)),
		fmt.Sprint(slices.Sorted(slices.Values(serviceEntry.SubjectAltNames))),
	}
}

// mergeProblem returns why member cannot join the service, or "".
func (s *service) mergeProblem(member *member) string {
	if s.members[0].spec == nil || member.spec == nil {
		return "it cannot be decoded"
	}
	differ := func(property, ours, theirs string) string {
		if ours != theirs {
			return fmt.Sprintf("%s: %s, not %s", property, theirs, ours)
		}
		return ""
	}
	ours, theirs := s.mergeKey, mergeKeyOf(member.spec)
	return cmp.Or(
		differ("ports differ", ours.ports, theirs.ports),
		differ("location differs", ours.location, theirs.location),
		differ("exportTo differs", ours.exportTo, theirs.exportTo),
		differ("subjectAltNames differ", ours.altNames, theirs.altNames),
		s.obstacles.union(obstaclesOf(member.spec)).unmergeable(),
	)
}

// obstacles are properties of entries with the same mergeKey that may exclude each other.
type obstacles struct {
	selector     bool
	hasNone      bool // of resolution
	hasOther     bool // of resolution
	allowsNames  bool
	hasEndpoints bool
	severalToDNS bool
	notForDNS    string
}

func obstaclesOf(serviceEntry *networking.ServiceEntry) obstacles {
	isNone := serviceEntry.GetResolution() == networking.ServiceEntry_NONE
	return obstacles{
		selector: serviceEntry.GetWorkloadSelector() != nil, hasNone: isNone, hasOther: !isNone,
		allowsNames: byName(serviceEntry), hasEndpoints: len(serviceEntry.GetEndpoints()) > 0,
		severalToDNS: leftToDNS(serviceEntry) && hostOf(serviceEntry) == "", notForDNS: notForDNS(serviceEntry),
	}
}

// union returns the obstacles of both.
func (o obstacles) union(theirs obstacles) obstacles {
	return obstacles{
		selector: o.selector || theirs.selector, hasNone: o.hasNone || theirs.hasNone,
		hasOther:    o.hasOther || theirs.hasOther,
		allowsNames: o.allowsNames || theirs.allowsNames, hasEndpoints: o.hasEndpoints || theirs.hasEndpoints,
		severalToDNS: o.severalToDNS || theirs.severalToDNS, notForDNS: cmp.Or(theirs.notForDNS, o.notForDNS),
	}
}

// unmergeable returns why the entries cannot be merged, or "". Addresses and names can: the merged entry has resolution
// DNS, which takes both.
func (o obstacles) unmergeable() string {
	switch {
	case o.selector:
		return "endpoints are chosen by a workload selector"
	case o.hasNone && o.hasOther:
		return "mixes resolution NONE with others"
	case o.allowsNames && o.notForDNS != "":
		return "mixes DNS names with " + o.notForDNS
	case o.severalToDNS && o.hasEndpoints:
		return "leaves several hosts to DNS"
	}
	return ""
}

// notForDNS names a part of an entry that one with resolution DNS cannot have, if there is one.
func notForDNS(serviceEntry *networking.ServiceEntry) string {
	for _, address := range serviceEntry.GetAddresses() {
		if strings.Contains(address, "/") {
			return "the network " + address
		}
	}
	for _, workloadEntry := range serviceEntry.GetEndpoints() {
		switch {
		case workloadEntry.Address == "":
			return "an endpoint without an address"
		case strings.HasPrefix(workloadEntry.Address, "unix://"):
			return "the socket " + workloadEntry.Address
		}
	}
	return ""
}

// resolve sets the resolution, which follows from the served endpoints or, without any, from the members that are not
// idle.
func (s *service) resolve() {
	s.resolution = s.members[0].spec.GetResolution()
	var resolutions []networking.ServiceEntry_Resolution
	for _, l := range s.served {
		resolutions = append(resolutions, l.spec.Resolution)
	}
	if len(s.served) == 0 {
		for _, m := range s.members {
			if !idle(m.spec) {
				resolutions = append(resolutions, m.spec.GetResolution())
			}
		}
	}
	switch resolutions = slices.Compact(slices.Sorted(slices.Values(resolutions))); {
	case len(resolutions) > 1, slices.Contains(resolutions, networking.ServiceEntry_DNS_ROUND_ROBIN) && len(s.served) > 1:
		s.resolution = networking.ServiceEntry_DNS
	case len(resolutions) == 1:
		s.resolution = resolutions[0]
	}
}

// resolveAlike gives services of one host that istiod may join the same resolution: it joins no others and would drop
// all ports but one's. Beside a DNS service, one without endpoints is left out: with DNS the host itself would become
// its endpoint.
func resolveAlike(services []*service) []*service {
	var dnsServices []*service
	for _, s := range services {
		if s.resolution == networking.ServiceEntry_DNS {
			dnsServices = append(dnsServices, s)
		}
	}
	return slices.DeleteFunc(services, func(candidate *service) bool {
		i := slices.IndexFunc(dnsServices, func(o *service) bool { return o != candidate && candidate.mayJoin(o) })
		if i < 0 {
			return false
		}
		byDNS := dnsServices[i]
		switch {
		case len(candidate.served) > 0:
			candidate.resolution = networking.ServiceEntry_DNS
		case idle(candidate.members[0].spec) && candidate.resolution == networking.ServiceEntry_STATIC:
			for _, m := range candidate.members {
				byDNS.refuse(m, "has no endpoints, while other ports of the host use DNS names")
			}
			for _, r := range candidate.refused {
				byDNS.refuse(r.member, r.reason)
			}
			return true
		}
		return false
	})
}

// mayJoin reports whether istiod would join the ports of the services if their resolution were the same.
func (s *service) mayJoin(o *service) bool {
	a, b := s.members[0], o.members[0]
	return maps.Equal(a.res.Labels(), b.res.Labels()) && slices.Equal(exports(a.spec), exports(b.spec)) &&
		a.spec.GetWorkloadSelector() == nil && b.spec.GetWorkloadSelector() == nil &&
		!slices.ContainsFunc(s.members, func(m *member) bool { return notForDNS(m.spec) != "" })
}

// portNumbers returns the ports of an entry; 0 if it has none.
func portNumbers(se *networking.ServiceEntry) (ports []uint32) {
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
func exports(serviceEntry *networking.ServiceEntry) []string {
	if len(serviceEntry.GetExportTo()) == 0 {
		return []string{"*"}
	}
	return slices.Compact(slices.Sorted(slices.Values(serviceEntry.ExportTo)))
}
