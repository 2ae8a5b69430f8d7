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

// groupKey is equal for ServiceEntries that may be merged. It has the namespace, since entries of several namespaces
// may be visible to different clients.
type groupKey struct {
	namespace string
	hosts     string // in order, separated by commas
	name      string // if hosts is empty: entries of the same key form a group
}

// groupKeyOf returns the group of a ServiceEntry.
func groupKeyOf(object *resource.Resource) groupKey {
	groupID := groupKey{namespace: object.Key().Namespace}
	if se := decoded(object); se != nil && len(se.Hosts) > 0 {
		hosts := strings.Split(strings.ToLower(strings.Join(se.Hosts, ",")), ",")
		slices.Sort(hosts)
		groupID.hosts = strings.Join(slices.Compact(hosts), ",")
	} else {
		groupID.name = object.Key().Name
	}
	return groupID
}

// compare orders groups, those with hosts first.
func (g groupKey) compare(o groupKey) int {
	return cmp.Or(cmp.Compare(g.name, o.name), cmp.Compare(g.hosts, o.hosts), cmp.Compare(g.namespace, o.namespace))
}

// String names the group in messages.
func (g groupKey) String() string { return cmp.Or(g.hosts, g.name+", which names no host") }

// nameLimit leaves room for a port and a hash in the 253 characters of a name.
const nameLimit = 253 - len("-65535-01234567")

// key returns the key of the group's merged entry with this first port. It does not depend on the sources, so that it
// stays when they come and go. Unless the host alone is unique, a hash follows the port: it is longer than any port, so
// that no name of a plain host equals it.
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

// gatherEndpoints collects the members' endpoints and those that are served, in order of address: the result does not
// depend on the sources that list them.
func (m *mergedEntry) gatherEndpoints() {
	byIdentity := make(map[string]*memberEndpoint)
	for _, member := range m.members {
		for _, workloadEntry := range member.endpoints() {
			endpoint := &memberEndpoint{member: member, endpoint: workloadEntry}
			identity := endpoint.identity()
			if first := byIdentity[identity]; first == nil {
				byIdentity[identity] = endpoint
			} else {
				first.addDuplicate(endpoint)
			}
		}
	}
	lowest := math.MaxInt
	for _, endpoint := range byIdentity {
		lowest = min(lowest, endpoint.from.merge.Priority)
	}
	m.listed = nil
	m.served = nil
	for _, identity := range slices.Sorted(maps.Keys(byIdentity)) {
		endpoint := byIdentity[identity]
		endpoint.standby = endpoint.from.merge.Priority > lowest
		m.listed = append(m.listed, endpoint)
		if !endpoint.standby {
			m.served = append(m.served, endpoint)
		}
	}
}

// object returns the merged ServiceEntry. All but resolution and endpoints comes from the leading member.
func (m *mergedEntry) object() *resource.Resource {
	lead := m.members[0]
	if lead.spec == nil {
		return lead.res
	}
	spec := proto.CloneOf(lead.spec)
	spec.Resolution = m.resolution
	spec.Endpoints = nil
	for _, l := range m.served {
		spec.Endpoints = append(spec.Endpoints, l.adaptTo(lead.spec))
	}
	if len(m.served) == 1 && resolvesHost(m.served[0].spec) && proto.Equal(spec.Endpoints[0], m.served[0].endpoint) {
		spec.Endpoints = nil // as its source has it
	}
	object, err := resource.New(m.meta(), spec)
	if err != nil {
		return lead.res // unreachable: all parts come from decoded objects
	}
	return object
}

// provenance describes the endpoints of the entry and their sources.
func (m *mergedEntry) provenance() (endpoints []Endpoint) {
	for _, l := range m.listed {
		endpoints = append(endpoints, l.provenance())
	}
	return endpoints
}

// key returns the key of the merged ServiceEntry.
func (m *mergedEntry) key() resource.Key {
	return m.group.key(slices.Min(portNumbers(m.members[0].spec)))
}

// meta returns the metadata of the leading member, with the sources and places of all members.
func (m *mergedEntry) meta() resource.Meta {
	meta := m.members[0].res.Meta()
	meta.Key = m.key()
	var names, places []string
	for i, member := range m.members {
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

// memberEndpoint is an endpoint that a member lists, and the members that list it, too.
type memberEndpoint struct {
	*member
	endpoint   *networking.WorkloadEntry
	duplicates []*member
	standby    bool // not served while sources of a lower priority number list any
}

// addDuplicate adds the same endpoint of another member. The lower priority number counts, then the order of members:
// an endpoint that one source uses is served although another one has it in reserve.
func (e *memberEndpoint) addDuplicate(second *memberEndpoint) {
	duplicate := second.member
	if second.from.merge.Priority < e.from.merge.Priority {
		duplicate = e.member
		e.member = second.member
		e.endpoint = second.endpoint
	}
	if duplicate.from != e.from {
		e.duplicates = append(e.duplicates, duplicate)
	}
}

// identity is equal for endpoints of the same network, address and ports.
func (e *memberEndpoint) identity() string {
	address := strings.ToLower(e.endpoint.Address)
	if ip, err := netip.ParseAddr(address); err == nil {
		address = ip.String()
	}
	return fmt.Sprint(address, e.ports(), e.endpoint.Network)
}

// ports returns the port of the endpoint for each port of the service: its own, else the target port, else the
// service's.
func (e *memberEndpoint) ports() map[uint32]uint32 {
	if strings.HasPrefix(e.endpoint.Address, "unix://") {
		return nil
	}
	ports := make(map[uint32]uint32)
	for _, p := range e.spec.Ports {
		ports[p.Number] = cmp.Or(e.endpoint.Ports[p.Name], targetPort(p))
	}
	return ports
}

// adaptTo returns the endpoint for an entry that may have other port names and target ports.
func (e *memberEndpoint) adaptTo(lead *networking.ServiceEntry) *networking.WorkloadEntry {
	workloadEntry := proto.CloneOf(e.endpoint)
	workloadEntry.Locality = cmp.Or(e.from.merge.Locality, workloadEntry.Locality)
	workloadEntry.Ports = nil
	ports := e.ports()
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
