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

// Merge configures how a source's endpoints are merged with those of other sources.
type Merge struct {
	// Locality, as region/zone/subzone, replaces that of the source's endpoints, unless it is empty.
	Locality string
	// Priority keeps endpoints in reserve: they are served only while no source of a lower number lists any for the
	// service.
	Priority int
}

// groupKey is equal for ServiceEntries that may be merged. It has the namespace, as each may be visible to others.
type groupKey struct {
	namespace string
	hosts     string // in order, separated by commas
	name      string // if hosts is empty: entries of the same key form a group
}

// groupKeyOf returns the group of a ServiceEntry.
func groupKeyOf(object *resource.Resource) groupKey {
	groupKey := groupKey{namespace: object.Key().Namespace}
	if se := decoded(object); se != nil && len(se.Hosts) > 0 {
		hosts := strings.Split(strings.ToLower(strings.Join(se.Hosts, ",")), ",")
		slices.Sort(hosts)
		groupKey.hosts = strings.Join(slices.Compact(hosts), ",")
	} else {
		groupKey.name = object.Key().Name
	}
	return groupKey
}

// compare orders groups, those with hosts first.
func (g groupKey) compare(o groupKey) int {
	return cmp.Or(cmp.Compare(g.name, o.name), cmp.Compare(g.hosts, o.hosts), cmp.Compare(g.namespace, o.namespace))
}

// String names the group in messages.
func (g groupKey) String() string { return cmp.Or(g.hosts, g.name+", which names no host") }

// nameLimit leaves room for a port and a hash in the 253 characters of a name.
const nameLimit = 253 - len("-65535-01234567")

// key returns the key of the group's service with this first port. It does not depend on the sources, so that it
// stays when they come and go. Unless the host alone is unique, a hash follows the port: names of plain hosts end with
// a port, which is shorter.
func (g groupKey) key(first uint32) resource.Key {
	if g.hosts == "" {
		return resource.Key{Kind: resource.ServiceEntry, Namespace: g.namespace, Name: g.name}
	}
	host, _, several := strings.Cut(g.hosts, ",")
	plain := strings.ReplaceAll(host, "*", "any")
	name := fmt.Sprintf("%s-%d", plain, first)
	if several || plain != host || len(plain) > nameLimit {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(g.hosts))
		name = fmt.Sprintf("%s-%d-%08x", strings.TrimRight(plain[:min(len(plain), nameLimit)], ".-"), first, hash.Sum32())
	}
	return resource.Key{Kind: resource.ServiceEntry, Namespace: g.namespace, Name: name}
}

// gather collects the members' endpoints and those that are served, in order of address, so that the outcome does not
// depend on the sources that list them.
func (s *service) gather() {
	listings := make(map[string]*listing)
	for _, m := range s.members {
		for _, e := range m.endpoints() {
			listing := &listing{member: m, endpoint: e}
			id := listing.identity()
			if first := listings[id]; first == nil {
				listings[id] = listing
			} else {
				first.addDuplicate(listing)
			}
		}
	}
	first := math.MaxInt
	for _, l := range listings {
		first = min(first, l.from.merge.Priority)
	}
	s.listed, s.served = nil, nil
	for _, id := range slices.Sorted(maps.Keys(listings)) {
		listing := listings[id]
		listing.standby = listing.from.merge.Priority > first
		s.listed = append(s.listed, listing)
		if !listing.standby {
			s.served = append(s.served, listing)
		}
	}
}

// entry returns the ServiceEntry of the service. Everything but resolution and endpoints comes from the leading member.
func (s *service) entry() *resource.Resource {
	lead := s.members[0]
	if lead.spec == nil {
		return lead.res
	}
	spec := proto.CloneOf(lead.spec)
	spec.Resolution, spec.Endpoints = s.resolution, nil
	for _, l := range s.served {
		spec.Endpoints = append(spec.Endpoints, l.adaptTo(lead.spec))
	}
	if len(s.served) == 1 && leftToDNS(s.served[0].spec) && proto.Equal(spec.Endpoints[0], s.served[0].endpoint) {
		spec.Endpoints = nil // as its source has it
	}
	object, err := resource.New(s.meta(), spec)
	if err != nil {
		return lead.res // unreachable: all parts come from decoded objects
	}
	return object
}

// provenance describes the endpoints of the service and their sources.
func (s *service) provenance() (endpoints []Endpoint) {
	for _, l := range s.listed {
		endpoints = append(endpoints, l.provenance())
	}
	return endpoints
}

// key returns the key of the service.
func (s *service) key() resource.Key {
	return s.group.key(slices.Min(portNumbers(s.members[0].spec)))
}

// meta returns the metadata of the leading member, with the sources and places of all members.
func (s *service) meta() resource.Meta {
	meta := s.members[0].res.Meta()
	meta.Key = s.key()
	var names, places []string
	for i, member := range s.members {
		if !slices.Contains(names, member.from.name) {
			names = append(names, member.from.name)
		}
		if place := member.res.Origin().Place; place != "" || i == 0 {
			places = append(places, place)
		}
	}
	// without Rules: each member has its own
	meta.Origin = resource.Origin{Source: strings.Join(names, ", "), Place: strings.Join(places, "; ")}
	return meta
}

// listing is an endpoint of a member.
type listing struct {
	*member
	endpoint *networking.WorkloadEntry
	also     []*member
	standby  bool // not served while sources of a lower priority number list any
}

// addDuplicate adds another listing of the same endpoint. The lower priority number counts, then the order of members:
// an endpoint that one source uses is served although another one has it in reserve.
func (l *listing) addDuplicate(second *listing) {
	duplicate := second.member
	if second.from.merge.Priority < l.from.merge.Priority {
		duplicate, l.member, l.endpoint = l.member, second.member, second.endpoint
	}
	if duplicate.from != l.from {
		l.also = append(l.also, duplicate)
	}
}

// identity is equal for endpoints of the same network, address and ports.
func (l *listing) identity() string {
	address := strings.ToLower(l.endpoint.Address)
	if ip, err := netip.ParseAddr(address); err == nil {
		address = ip.String()
	}
	return fmt.Sprint(address, l.ports(), l.endpoint.Network)
}

// ports returns the port of the endpoint for each port of the service: its own, else the target port, else the
// service's.
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

// adaptTo returns the endpoint for an entry that may have other port names and target ports.
func (l *listing) adaptTo(lead *networking.ServiceEntry) *networking.WorkloadEntry {
	workloadEntry := proto.CloneOf(l.endpoint)
	workloadEntry.Locality = cmp.Or(l.from.merge.Locality, workloadEntry.Locality)
	workloadEntry.Ports = nil
	ports := l.ports()
	for _, servicePort := range lead.Ports {
		if port, ok := ports[servicePort.Number]; ok && port != targetPort(servicePort) {
			if workloadEntry.Ports == nil {
				workloadEntry.Ports = make(map[string]uint32)
			}
			workloadEntry.Ports[servicePort.Name] = port
		}
	}
	return workloadEntry
}

func targetPort(p *networking.ServicePort) uint32 { return cmp.Or(p.TargetPort, p.Number) }

// decoded returns the spec of a ServiceEntry, or nil if it cannot be decoded.
func decoded(r *resource.Resource) *networking.ServiceEntry {
	spec, err := r.Spec()
	if err != nil {
		return nil // reported where it was read
	}
	se, _ := spec.(*networking.ServiceEntry)
	return se
}
