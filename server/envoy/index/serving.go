package index

import (
	"cmp"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Reviewer has a client ask again what it is served. Reviewers are compared.
type Reviewer interface{ Review() }

// serving knows which service ports the addresses of clients serve. Addresses that no client has are not kept: endpoints are not decoded in
// a mesh. It is safe for concurrent use.
type serving struct {
	mu      sync.Mutex
	places  map[place]*served
	byEntry map[resource.Key]map[place]struct{} // whose ports the ServiceEntry has
	changed map[place]struct{}                  // since Moved was called
}

// place is an address in a namespace.
type place struct{ namespace, address string }

// served is what a place serves.
type served struct {
	clients map[Reviewer]int // that have the place, and how often each has it; nil for those that are not asked for a review
	ports   map[resource.Key][]model.ServicePort
	shown   []model.ServicePort // those of ports when Moved was called last
}

// Serve adds to a profile the service ports that a client at some addresses serves, if they bear on it. Until leave is called, Moved
// returns by, which may be nil, when these change. The mesh does not change meanwhile.
func (m *Mesh) Serve(p *model.Profile, addresses []string, by Reviewer) (leave func()) {
	ingress := slices.Concat(m.SidecarFor(*p).ingress(), sidecarAmong(m.expected, *p).ingress())
	if p.Role != model.Sidecar || !p.Captures && len(ingress) == 0 {
		return func() {}
	}
	var ports []model.ServicePort
	namespace := p.Namespace
	for _, a := range addresses {
		ports = append(ports, m.serveAt(place{namespace, a}, by)...)
	}
	slices.SortStableFunc(ports, model.ServicePort.Compare)
	text := ""
	if slices.ContainsFunc(ingress, func(i *networking.IstioIngressListener) bool { return needsAddress(i, *p) }) {
		text = strings.Join(addresses, ",")
	}
	p.Inbound = model.InboundText(text, ports)
	return sync.OnceFunc(func() {
		for _, a := range addresses {
			m.serving.leave(place{namespace, a}, by)
		}
	})
}

// serveAt returns the ports of a place.
func (m *Mesh) serveAt(at place, by Reviewer) []model.ServicePort {
	s := &m.serving
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.places[at]
	if known == nil {
		known = &served{clients: make(map[Reviewer]int), ports: make(map[resource.Key][]model.ServicePort)}
		s.places[at] = known
		for key, e := range m.Entries {
			if key.Namespace == at.namespace && (e.selected != nil || e.mayList(at.address)) {
				e.eachServed(func(address string) bool { return address == at.address }, func(_ string, ports []model.ServicePort) {
					s.set(at, key, append(known.ports[key], ports...))
				})
			}
		}
		known.shown = known.all()
	}
	known.clients[by]++
	return known.shown
}

// leave ends a use of a place.
func (s *serving) leave(at place, by Reviewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.places[at]
	if known.clients[by]--; known.clients[by] <= 0 {
		delete(known.clients, by)
	}
	if len(known.clients) > 0 {
		return
	}
	for key := range known.ports {
		s.set(at, key, nil)
	}
	delete(s.places, at)
	delete(s.changed, at)
}

// set sets the ports of a place that a ServiceEntry has.
func (s *serving) set(at place, key resource.Key, ports []model.ServicePort) {
	if len(ports) == 0 {
		delete(s.places[at].ports, key)
		if delete(s.byEntry[key], at); len(s.byEntry[key]) == 0 {
			delete(s.byEntry, key)
		}
		return
	}
	s.places[at].ports[key] = ports
	if s.byEntry[key] == nil {
		s.byEntry[key] = make(map[place]struct{})
	}
	s.byEntry[key][at] = struct{}{}
}

// all returns the ports of the place, in order.
func (s *served) all() (ports []model.ServicePort) {
	for _, of := range s.ports {
		ports = append(ports, of...)
	}
	slices.SortStableFunc(ports, model.ServicePort.Compare)
	return ports
}

// serveAnew looks again at which places serve the ports of a ServiceEntry.
func (m *Mesh) serveAnew(key resource.Key) {
	s := &m.serving
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.places) == 0 {
		return
	}
	now := make(map[place][]model.ServicePort)
	if e := m.Entries[key]; e != nil {
		e.eachServed(func(address string) bool { return s.places[place{key.Namespace, address}] != nil },
			func(address string, ports []model.ServicePort) {
				at := place{key.Namespace, address}
				now[at] = append(now[at], ports...)
			})
	}
	for at := range maps.Clone(s.byEntry[key]) {
		if now[at] == nil {
			s.set(at, key, nil)
			s.changed[at] = struct{}{}
		}
	}
	for at, ports := range now {
		if !slices.Equal(s.places[at].ports[key], ports) {
			s.set(at, key, ports)
			s.changed[at] = struct{}{}
		}
	}
}

// Moved returns those whose service ports have changed since the last call. From now on, Serve has the new ones.
func (m *Mesh) Moved() (all map[Reviewer]struct{}) {
	s := &m.serving
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.changed {
		known := s.places[at]
		ports, was := known.all(), known.shown
		known.shown = ports
		if slices.Equal(ports, was) { // with their ages, which order them among those of the other addresses of a client
			continue
		}
		for by := range known.clients {
			if all == nil {
				all = make(map[Reviewer]struct{})
			}
			if by != nil {
				all[by] = struct{}{}
			}
		}
	}
	clear(s.changed)
	return all
}

// eachServed calls found with the address, if it is wanted, and the service ports of each endpoint of the entry.
func (e *entry) eachServed(wanted func(address string) bool, found func(address string, ports []model.ServicePort)) {
	if e.selected != nil {
		var some []*workload
		for _, w := range e.selected {
			if wanted(w.spec.GetAddress()) {
				some = append(some, w)
			}
		}
		slices.SortFunc(some, func(a, b *workload) int { return cmp.Compare(a.name, b.name) })
		for _, w := range some {
			found(w.spec.GetAddress(), e.portsOf(w.spec))
		}
		return
	}
	e.eachListed(func(address, encoded []byte) {
		var w networking.WorkloadEntry
		if (address == nil || wanted(string(address))) && proto.Unmarshal(encoded, &w) == nil && wanted(w.GetAddress()) {
			found(w.GetAddress(), e.portsOf(&w))
		}
	})
}

// eachListed calls found with each endpoint that the entry lists, encoded, and its address, or nil if that is not in front.
func (e *entry) eachListed(found func(address, encoded []byte)) {
	for b := e.object.Body(); len(b) > 0; {
		field, number, value, _ := nextField(b) // it could be decoded when it came
		if b = b[len(field):]; number == entryEndpoints {
			address, _ := splitAddress(value)
			found(address, value)
		}
	}
}

// mayList says whether the entry may list an endpoint at an address; it hardly ever says so of another one. A sum takes 4 bytes, and to
// look through 10,000 entries 2 ms (BenchmarkServe).
func (e *entry) mayList(address string) bool {
	if e.sums == nil {
		e.sums = make([]uint32, 0)
		e.eachListed(func(address, encoded []byte) {
			if address == nil {
				var w networking.WorkloadEntry
				_ = proto.Unmarshal(encoded, &w) // as above
				address = []byte(w.GetAddress())
			}
			e.sums = append(e.sums, crc32.ChecksumIEEE(address))
		})
		slices.Sort(e.sums)
		e.sums = slices.Clip(e.sums)
	}
	_, found := slices.BinarySearch(e.sums, crc32.ChecksumIEEE([]byte(address)))
	return found
}

// portsOf returns the service ports of an endpoint of the entry.
func (e *entry) portsOf(w *networking.WorkloadEntry) (ports []model.ServicePort) {
	for _, host := range e.Hosts() {
		for _, p := range e.Spec.GetPorts() {
			ports = append(ports, model.ServicePort{
				Host: host, Number: p.GetNumber(), Protocol: model.InboundProtocol(p.GetProtocol(), false),
				Target:   cmp.Or(w.GetPorts()[p.GetName()], p.GetTargetPort(), p.GetNumber()),
				External: e.Spec.GetLocation() == networking.ServiceEntry_MESH_EXTERNAL, Created: e.created, Owner: e.Key,
			})
		}
	}
	return ports
}
