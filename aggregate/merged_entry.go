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

// mergedEntry joins the members of a group that share ports into one ServiceEntry.
type mergedEntry struct {
	group      groupKey
	members    []*member         // in order of precedence; the first one leads
	refused    []refusal         // in order of precedence
	mergeKey   mergeKey          // of each member
	obstacles  obstacles         // of all members
	listed     []*memberEndpoint // of all members, in order of address
	served     []*memberEndpoint // those of listed that are not on standby
	resolution networking.ServiceEntry_Resolution
}

// refusal is a member that shares a port with a merged entry and cannot join it.
type refusal struct {
	*member
	reason string
}

// joinMembers joins the members of a group into merged entries, in the order of mergeOrder: a conflict never drops the
// only endpoints. A member joins the first entry with which it shares a port, or else begins one.
func joinMembers(groupID groupKey, members []*member) (entries []*mergedEntry) {
	byMergeOrder := func(a, b *member) int { return cmp.Compare(a.mergeOrder(), b.mergeOrder()) }
	byPort := make(map[uint32]int) // to the index of the first entry with the port
	for _, member := range slices.SortedStableFunc(slices.Values(members), byMergeOrder) {
		ports := portNumbers(member.spec)
		if groupID.hosts == "" {
			ports = []uint32{0} // without a host, all would be served under one name
		}
		first := len(entries)
		for _, port := range ports {
			if i, ok := byPort[port]; ok {
				first = min(first, i)
			}
		}
		if first == len(entries) {
			entries = append(entries, newMergedEntry(groupID, member))
			for _, port := range ports {
				byPort[port] = first
			}
			continue
		}
		if reason := entries[first].mergeProblem(member); reason == "" {
			entries[first].members = append(entries[first].members, member)
			entries[first].obstacles = entries[first].obstacles.union(obstaclesOf(member.spec))
		} else {
			entries[first].refuse(member, reason)
		}
	}
	order := make(map[*member]int, len(members))
	for i, member := range members {
		order[member] = i
	}
	for _, merged := range entries {
		slices.SortFunc(merged.members, func(a, b *member) int { return cmp.Compare(order[a], order[b]) })
		merged.gatherEndpoints()
		merged.setResolution()
	}
	entries = unifyResolutions(entries)
	slices.SortFunc(entries, func(a, b *mergedEntry) int { return cmp.Compare(order[a.members[0]], order[b.members[0]]) })
	for _, merged := range entries {
		slices.SortFunc(merged.refused, func(a, b refusal) int { return cmp.Compare(order[a.member], order[b.member]) })
	}
	return entries
}

// refuse records that a member is not served.
func (m *mergedEntry) refuse(refused *member, reason string) {
	if !refused.from.retired { // a retired source only fills gaps
		m.refused = append(m.refused, refusal{refused, reason})
	}
}

// refuseOthers refuses the members of other entries with the key of m.
func (m *mergedEntry) refuseOthers(rivals []*mergedEntry) {
	for _, rival := range rivals {
		if rival.key() != m.key() {
			continue
		}
		members := rival.members
		for _, r := range rival.refused {
			members = append(members, r.member)
		}
		for _, refused := range members {
			m.refuse(refused, "its name is taken by "+m.group.String())
		}
	}
	slices.SortStableFunc(m.refused, func(a, b refusal) int { return cmp.Compare(a.from.rank, b.from.rank) })
}

// mergeOrder orders the members of a group by how much would be lost if they were not served.
func (m *member) mergeOrder() int {
	switch {
	case m.from.retired:
		return 3
	case idle(m.spec):
		return 2
	case resolvesHost(m.spec) && hostOf(m.spec) == "":
		return 1
	default:
		return 0
	}
}

// idle reports whether an entry has no endpoints: its source has no healthy instance.
func idle(se *networking.ServiceEntry) bool {
	return se.GetResolution() == networking.ServiceEntry_STATIC && len(se.GetEndpoints()) == 0 &&
		se.GetWorkloadSelector() == nil
}

// resolvesHost reports whether DNS resolves the host of an entry itself: it lists no endpoints.
func resolvesHost(se *networking.ServiceEntry) bool {
	return allowsNames(se) && len(se.GetEndpoints()) == 0 && se.GetWorkloadSelector() == nil
}

// allowsNames reports whether the endpoints of an entry may be names.
func allowsNames(se *networking.ServiceEntry) bool {
	return se.GetResolution() == networking.ServiceEntry_DNS ||
		se.GetResolution() == networking.ServiceEntry_DNS_ROUND_ROBIN
}

// hostOf returns the host of an entry if it is the only one and can be an endpoint. Several hosts share one list of
// endpoints, but each would be the endpoint of its own service only.
func hostOf(se *networking.ServiceEntry) string {
	if hosts := se.GetHosts(); len(hosts) == 1 && !strings.HasPrefix(hosts[0], "*") {
		return hosts[0]
	}
	return ""
}

// endpoints returns the endpoints of a member: the host itself if DNS resolves it.
func (m *member) endpoints() []*networking.WorkloadEntry {
	if host := hostOf(m.spec); host != "" && resolvesHost(m.spec) {
		return []*networking.WorkloadEntry{{Address: host}}
	}
	return m.spec.GetEndpoints()
}

// newMergedEntry returns an entry with its first member.
func newMergedEntry(group groupKey, first *member) *mergedEntry {
	return &mergedEntry{
		group: group, members: []*member{first}, mergeKey: mergeKeyOf(first.spec), obstacles: obstaclesOf(first.spec),
	}
}

// mergeKey is equal for all members of a merged entry.
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

// mergeProblem returns why member cannot join the entry, or "".
func (m *mergedEntry) mergeProblem(candidate *member) string {
	if m.members[0].spec == nil || candidate.spec == nil {
		return "it cannot be decoded"
	}
	differ := func(property, ours, theirs string) string {
		if ours != theirs {
			return fmt.Sprintf("%s: %s, not %s", property, theirs, ours)
		}
		return ""
	}
	ours, theirs := m.mergeKey, mergeKeyOf(candidate.spec)
	return cmp.Or(
		differ("ports differ", ours.ports, theirs.ports),
		differ("location differs", ours.location, theirs.location),
		differ("exportTo differs", ours.exportTo, theirs.exportTo),
		differ("subjectAltNames differ", ours.altNames, theirs.altNames),
		m.obstacles.union(obstaclesOf(candidate.spec)).unmergeable(),
	)
}

// obstacles are properties of entries with the same mergeKey that may exclude each other.
type obstacles struct {
	selector          bool
	resolutionNone    bool
	otherResolution   bool
	allowsNames       bool
	hasEndpoints      bool
	severalHostsByDNS bool   // DNS resolves the hosts of an entry that has several
	excludesDNS       string // see excludesDNS
}

func obstaclesOf(serviceEntry *networking.ServiceEntry) obstacles {
	resolutionNone := serviceEntry.GetResolution() == networking.ServiceEntry_NONE
	return obstacles{
		selector:          serviceEntry.GetWorkloadSelector() != nil,
		resolutionNone:    resolutionNone,
		otherResolution:   !resolutionNone,
		allowsNames:       allowsNames(serviceEntry),
		hasEndpoints:      len(serviceEntry.GetEndpoints()) > 0,
		severalHostsByDNS: resolvesHost(serviceEntry) && hostOf(serviceEntry) == "",
		excludesDNS:       excludesDNS(serviceEntry),
	}
}

// union returns the obstacles of both.
func (o obstacles) union(theirs obstacles) obstacles {
	return obstacles{
		selector:          o.selector || theirs.selector,
		resolutionNone:    o.resolutionNone || theirs.resolutionNone,
		otherResolution:   o.otherResolution || theirs.otherResolution,
		allowsNames:       o.allowsNames || theirs.allowsNames,
		hasEndpoints:      o.hasEndpoints || theirs.hasEndpoints,
		severalHostsByDNS: o.severalHostsByDNS || theirs.severalHostsByDNS,
		excludesDNS:       cmp.Or(theirs.excludesDNS, o.excludesDNS),
	}
}

// unmergeable returns why the entries cannot be merged, or "". Entries with addresses and entries with names can: the
// merged entry has resolution DNS, which takes both.
func (o obstacles) unmergeable() string {
	switch {
	case o.selector:
		return "endpoints are chosen by a workload selector"
	case o.resolutionNone && o.otherResolution:
		return "mixes resolution NONE with others"
	case o.allowsNames && o.excludesDNS != "":
		return "mixes DNS names with " + o.excludesDNS
	case o.severalHostsByDNS && o.hasEndpoints:
		return "leaves several hosts to DNS"
	}
	return ""
}

// excludesDNS names a part that an entry with resolution DNS cannot have, or is empty.
func excludesDNS(serviceEntry *networking.ServiceEntry) string {
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

// setResolution sets the resolution, which follows from the served endpoints or, without any, from the members that are
// not idle.
func (m *mergedEntry) setResolution() {
	m.resolution = m.members[0].spec.GetResolution()
	var resolutions []networking.ServiceEntry_Resolution
	for _, l := range m.served {
		resolutions = append(resolutions, l.spec.Resolution)
	}
	if len(m.served) == 0 {
		for _, m := range m.members {
			if !idle(m.spec) {
				resolutions = append(resolutions, m.spec.GetResolution())
			}
		}
	}
	resolutions = slices.Compact(slices.Sorted(slices.Values(resolutions)))
	switch {
	case len(resolutions) > 1,
		slices.Contains(resolutions, networking.ServiceEntry_DNS_ROUND_ROBIN) && len(m.served) > 1:
		m.resolution = networking.ServiceEntry_DNS
	case len(resolutions) == 1:
		m.resolution = resolutions[0]
	}
}

// unifyResolutions gives the entries of one host that istiod may join the same resolution: istiod joins no others, and
// would drop all ports but those of one entry. Beside an entry with DNS, one without endpoints is left out: with DNS
// the host itself would become its endpoint.
func unifyResolutions(entries []*mergedEntry) []*mergedEntry {
	var dnsEntries []*mergedEntry
	for _, merged := range entries {
		if merged.resolution == networking.ServiceEntry_DNS {
			dnsEntries = append(dnsEntries, merged)
		}
	}
	return slices.DeleteFunc(entries, func(candidate *mergedEntry) bool {
		i := slices.IndexFunc(dnsEntries,
			func(withDNS *mergedEntry) bool { return withDNS != candidate && candidate.istiodMayJoin(withDNS) })
		if i < 0 {
			return false
		}
		withDNS := dnsEntries[i]
		switch {
		case len(candidate.served) > 0:
			candidate.resolution = networking.ServiceEntry_DNS
		case idle(candidate.members[0].spec) && candidate.resolution == networking.ServiceEntry_STATIC:
			for _, member := range candidate.members {
				withDNS.refuse(member, "has no endpoints, while other ports of the host use DNS names")
			}
			for _, refusal := range candidate.refused {
				withDNS.refuse(refusal.member, refusal.reason)
			}
			return true
		}
		return false
	})
}

// istiodMayJoin reports whether istiod would join the ports of both entries if their resolution were the same.
func (m *mergedEntry) istiodMayJoin(o *mergedEntry) bool {
	a, b := m.members[0], o.members[0]
	return maps.Equal(a.res.Labels(), b.res.Labels()) && slices.Equal(exports(a.spec), exports(b.spec)) &&
		a.spec.GetWorkloadSelector() == nil && b.spec.GetWorkloadSelector() == nil &&
		!slices.ContainsFunc(m.members, func(m *member) bool { return excludesDNS(m.spec) != "" })
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
