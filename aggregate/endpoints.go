package aggregate

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Merge says how the endpoints of a source go into ServiceEntries that it has in common with others.
type Merge struct {
	// Locality, as region/zone/subzone, takes the place of what the source says of its endpoints. Empty leaves that.
	Locality string
	// Priority holds endpoints back: those of a source are served only while the sources of a lower number list none for
	// the service.
	Priority int
}

// family is what ServiceEntries must have in common to be considered together. A host in another namespace is another
// service: it may be seen by others.
type family struct {
	namespace string
	hosts     string // in order, separated by commas
	name      string // instead of hosts where there are none to read: its relatives are those of the same key
}

// familyOf returns the family of a ServiceEntry.
func familyOf(r *resource.Resource) family {
	f := family{namespace: r.Key().Namespace}
	if se := decoded(r); se != nil && len(se.Hosts) > 0 {
		hosts := strings.Split(strings.ToLower(strings.Join(se.Hosts, ",")), ",")
		slices.Sort(hosts)
		f.hosts = strings.Join(slices.Compact(hosts), ",")
	} else {
		f.name = r.Key().Name
	}
	return f
}

// nameLimit leaves room for a hash and a port in the 253 characters of a name.
const nameLimit = 253 - len("-01234567-65535")

// key returns the key under which the family's ports from first on are served. It follows from the service alone and not
// from who lists it, so that it stays when sources come and go.
func (f family) key(first uint32) resource.Key {
	if f.hosts == "" {
		return resource.Key{Kind: resource.ServiceEntry, Namespace: f.namespace, Name: f.name}
	}
	host, _, several := strings.Cut(f.hosts, ",")
	name := strings.ReplaceAll(host, "*", "any")
	if several || name != host || len(name) > nameLimit {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(f.hosts))
		name = fmt.Sprintf("%s-%08x", strings.TrimRight(name[:min(len(name), nameLimit)], ".-"), hash.Sum32())
	}
	return resource.Key{Kind: resource.ServiceEntry, Namespace: f.namespace, Name: fmt.Sprintf("%s-%d", name, first)}
}

// member is a ServiceEntry as one source has it.
type member struct {
	from *contributor
	res  *resource.Resource
	spec *networking.ServiceEntry // nil if it cannot be decoded
}

// service is what becomes of members with the same ports: one ServiceEntry.
type service struct {
	family  family
	members []*member // in order of precedence; the first one leads
	refused []refusal
}

// refusal is a member that claims a port of a service, and does not fit.
type refusal struct {
	*member
	reason string
}

// divide makes services of the members of a family, which are in order of precedence. A member joins the first service
// with which it has a port in common. If it has none with any, it is another service of the host, as istiod sees it too.
func divide(f family, members []*member) (services []*service) {
	for _, m := range members {
		i := slices.IndexFunc(services, func(s *service) bool { return overlap(s.members[0].spec, m.spec) })
		if i < 0 {
			services = append(services, &service{family: f, members: []*member{m}})
			continue
		}
		if s := services[i]; s.members[0].misfit(m) == "" {
			s.members = append(s.members, m)
		} else if !m.from.former { // such a one fills gaps, and is never a loser
			s.refused = append(s.refused, refusal{m, s.members[0].misfit(m)})
		}
	}
	return services
}

// misfit says why the endpoints of m cannot be those of lead, or nothing.
func (lead *member) misfit(m *member) string {
	a, b := lead.spec, m.spec
	if a == nil || b == nil {
		return "it cannot be decoded"
	}
	differ := func(what string, ours, theirs any) string {
		if ours, theirs := fmt.Sprint(ours), fmt.Sprint(theirs); ours != theirs {
			return fmt.Sprintf("%s: %s, not %s", what, theirs, ours)
		}
		return ""
	}
	return cmp.Or(
		differ("ports differ", portList(a), portList(b)),
		differ("resolution differs", a.Resolution, b.Resolution),
		differ("location differs", a.Location, b.Location),
		differ("exportTo differs", exports(a), exports(b)),
		differ("subjectAltNames differ", slices.Sorted(slices.Values(a.SubjectAltNames)), slices.Sorted(slices.Values(b.SubjectAltNames))),
		unmergeable(a, b),
	)
}

// unmergeable says what of two entries that are otherwise alike does not let their endpoints stand in one.
func unmergeable(a, b *networking.ServiceEntry) string {
	switch {
	case a.WorkloadSelector != nil || b.WorkloadSelector != nil:
		return "endpoints are chosen by a workload selector"
	case a.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN:
		return "resolution DNS_ROUND_ROBIN takes a single endpoint"
	case a.Resolution == networking.ServiceEntry_DNS && (len(a.Endpoints) == 0) != (len(b.Endpoints) == 0):
		return "one of them has no endpoints, and so resolves the host itself"
	default:
		return ""
	}
}

// merged returns the ServiceEntry of the service, and where its endpoints come from. All that is not an endpoint is that
// of the leading member. Endpoints are in order of address, so that the outcome is the same whoever lists one.
func (s *service) merged() (*resource.Resource, []Endpoint) {
	lead := s.members[0]
	if lead.spec == nil {
		return lead.res, nil
	}
	known := make(map[string]*listing)
	for _, m := range s.members {
		for _, e := range m.spec.Endpoints {
			l := &listing{member: m, endpoint: e}
			id := l.identity()
			if first := known[id]; first == nil {
				known[id] = l
			} else {
				first.meet(l)
			}
		}
	}
	first := math.MaxInt
	for _, l := range known {
		first = min(first, l.from.merge.Priority)
	}
	spec := proto.CloneOf(lead.spec)
	spec.Endpoints = nil
	var endpoints []Endpoint
	for _, id := range slices.Sorted(maps.Keys(known)) {
		l := known[id]
		standby := l.from.merge.Priority > first
		if !standby {
			spec.Endpoints = append(spec.Endpoints, l.under(lead.spec))
		}
		endpoints = append(endpoints, l.provenance(standby))
	}
	res, err := resource.New(s.meta(), spec)
	if err != nil {
		return lead.res, nil // not of what was decoded a moment ago
	}
	return res, endpoints
}

// key returns the key of the service.
func (s *service) key() resource.Key {
	first := uint32(0)
	for _, p := range s.members[0].spec.GetPorts() {
		if first == 0 || p.Number < first {
			first = p.Number
		}
	}
	return s.family.key(first)
}

// meta is that of the lead, as of all members.
func (s *service) meta() resource.Meta {
	meta := s.members[0].res.Meta()
	meta.Key = s.key()
	meta.Origin = resource.Origin{Source: s.members[0].from.name, Place: meta.Origin.Place} // each member has its own rules
	for _, m := range s.members[1:] {
		if !slices.Contains(strings.Split(meta.Origin.Source, ", "), m.from.name) {
			meta.Origin.Source += ", " + m.from.name
		}
		if place := m.res.Origin().Place; place != "" {
			meta.Origin.Place += "; " + place
		}
	}
	return meta
}

// listing is an endpoint as a member has it.
type listing struct {
	*member
	endpoint *networking.WorkloadEntry
	also     []*member
}

// meet takes note of another listing of the same endpoint. The lower priority counts, and then the order of members:
// an endpoint that a source has in use is not held back because another one has it in reserve.
func (l *listing) meet(o *listing) {
	other := o.member
	if o.from.merge.Priority < l.from.merge.Priority {
		other, l.member, l.endpoint = l.member, o.member, o.endpoint
	}
	if other.from != l.from {
		l.also = append(l.also, other)
	}
}

// identity tells endpoints apart: by network, address and ports.
func (l *listing) identity() string {
	address := strings.ToLower(l.endpoint.Address)
	if ip, err := netip.ParseAddr(address); err == nil {
		address = ip.String()
	}
	return fmt.Sprint(address, l.ports(), l.endpoint.Network)
}

// ports returns the port of the endpoint for each port of the service. An endpoint that does not say has the target port,
// or else that of the service.
func (l *listing) ports() map[uint32]uint32 {
	if strings.HasPrefix(l.endpoint.Address, "unix://") {
		return nil
	}
	ports := make(map[uint32]uint32)
	for _, p := range l.spec.Ports {
		ports[p.Number] = cmp.Or(l.endpoint.Ports[p.Name], targetPort(p))
	}
	return ports
}

// under returns the endpoint as it is in an entry that may name its ports and choose its target ports in another way.
func (l *listing) under(lead *networking.ServiceEntry) *networking.WorkloadEntry {
	e := proto.CloneOf(l.endpoint)
	e.Locality = cmp.Or(l.from.merge.Locality, e.Locality)
	e.Ports = nil
	ports := l.ports()
	for _, p := range lead.Ports {
		if port, ok := ports[p.Number]; ok && port != targetPort(p) {
			if e.Ports == nil {
				e.Ports = make(map[string]uint32)
			}
			e.Ports[p.Name] = port
		}
	}
	return e
}

func targetPort(p *networking.ServicePort) uint32 { return cmp.Or(p.TargetPort, p.Number) }

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
	if len(se.ExportTo) == 0 {
		return []string{"*"}
	}
	return slices.Compact(slices.Sorted(slices.Values(se.ExportTo)))
}

// decoded returns the spec of a ServiceEntry, or nil if it cannot be decoded.
func decoded(r *resource.Resource) *networking.ServiceEntry {
	spec, err := r.Spec()
	if err != nil {
		return nil // whoever let it in has said so
	}
	se, _ := spec.(*networking.ServiceEntry)
	return se
}
