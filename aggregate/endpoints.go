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
	// Priority keeps endpoints in reserve: those of a source are served only while the sources of a lower number list none for
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

// compare orders families. Those with hosts come first.
func (f family) compare(o family) int {
	return cmp.Or(cmp.Compare(f.name, o.name), cmp.Compare(f.hosts, o.hosts), cmp.Compare(f.namespace, o.namespace))
}

// String is what the family is called in messages.
func (f family) String() string { return cmp.Or(f.hosts, f.name+", which names no host") }

// nameLimit leaves room for a port and a hash in the 253 characters of a name.
const nameLimit = 253 - len("-65535-01234567")

// key returns the key under which the family's ports from first on are served. It follows from the service alone and not
// from who lists it, so that it stays when sources come and go. Where the host does not say it all there is a hash, behind the port:
// the name of a plain host ends with a port, which is shorter, so that no host is called so.
func (f family) key(first uint32) resource.Key {
	if f.hosts == "" {
		return resource.Key{Kind: resource.ServiceEntry, Namespace: f.namespace, Name: f.name}
	}
	host, _, several := strings.Cut(f.hosts, ",")
	plain := strings.ReplaceAll(host, "*", "any")
	name := fmt.Sprintf("%s-%d", plain, first)
	if several || plain != host || len(plain) > nameLimit {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(f.hosts))
		name = fmt.Sprintf("%s-%d-%08x", strings.TrimRight(plain[:min(len(plain), nameLimit)], ".-"), first, hash.Sum32())
	}
	return resource.Key{Kind: resource.ServiceEntry, Namespace: f.namespace, Name: name}
}

// gather finds what endpoints the members list, and which of them are served. Endpoints are in order of address, so that the
// outcome is the same whoever lists one.
func (s *service) gather() {
	known := make(map[string]*listing)
	for _, m := range s.members {
		for _, e := range m.lists() {
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
	s.listed, s.served = nil, nil
	for _, id := range slices.Sorted(maps.Keys(known)) {
		l := known[id]
		l.standby = l.from.merge.Priority > first
		s.listed = append(s.listed, l)
		if !l.standby {
			s.served = append(s.served, l)
		}
	}
}

// merged returns the ServiceEntry of the service. All that is not an endpoint is that of the leading member.
func (s *service) merged() *resource.Resource {
	lead := s.members[0]
	if lead.spec == nil {
		return lead.res
	}
	spec := proto.CloneOf(lead.spec)
	spec.Resolution, spec.Endpoints = s.resolution, nil
	for _, l := range s.served {
		spec.Endpoints = append(spec.Endpoints, l.under(lead.spec))
	}
	if len(s.served) == 1 && s.served[0].itself() && proto.Equal(spec.Endpoints[0], s.served[0].endpoint) {
		spec.Endpoints = nil // as its source has it
	}
	res, err := resource.New(s.meta(), spec)
	if err != nil {
		return lead.res // not of what was decoded a moment ago
	}
	return res
}

// provenance says where the endpoints of the service come from.
func (s *service) provenance() (endpoints []Endpoint) {
	for _, l := range s.listed {
		endpoints = append(endpoints, l.provenance())
	}
	return endpoints
}

// key returns the key of the service.
func (s *service) key() resource.Key {
	return s.family.key(slices.Min(claimed(s.members[0].spec)))
}

// meta is that of the lead, as of all members.
func (s *service) meta() resource.Meta {
	meta := s.members[0].res.Meta()
	meta.Key = s.key()
	var names, places []string
	for i, m := range s.members {
		if !slices.Contains(names, m.from.name) {
			names = append(names, m.from.name)
		}
		if place := m.res.Origin().Place; place != "" || i == 0 {
			places = append(places, place)
		}
	}
	meta.Origin = resource.Origin{Source: strings.Join(names, ", "), Place: strings.Join(places, "; ")} // each member has its own rules
	return meta
}

// listing is an endpoint as a member has it.
type listing struct {
	*member
	endpoint *networking.WorkloadEntry
	also     []*member
	standby  bool // not served while sources of a lower priority number list any
}

// meet takes note of another listing of the same endpoint. The lower priority counts, and then the order of members:
// an endpoint that a source has in use is not left out because another one has it in reserve.
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

// decoded returns the spec of a ServiceEntry, or nil if it cannot be decoded.
func decoded(r *resource.Resource) *networking.ServiceEntry {
	spec, err := r.Spec()
	if err != nil {
		return nil // whoever let it in has said so
	}
	se, _ := spec.(*networking.ServiceEntry)
	return se
}
