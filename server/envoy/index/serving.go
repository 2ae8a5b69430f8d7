package index

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Reviewer makes a client request its collections again. Reviewers are comparable.
type Reviewer interface{ Review() }

// serving holds the service ports at the addresses of clients, and no other addresses, because a mesh does not decode
// endpoints. It is safe for concurrent use.
type serving struct {
	mu     sync.Mutex
	places map[place]*placePorts
}

// place is an address in a namespace.
type place struct{ namespace, address string }

// placePorts holds the service ports at a place.
type placePorts struct {
	clients map[Reviewer]int // at the place, with the number of uses; nil for clients without review
	ports   map[resource.Key][]model.ServicePort
	ordered []model.ServicePort // all ports at the last call of Moved
	changed bool                // ports may differ from ordered
}

// Serve adds to a profile the service ports at a client's addresses, if they affect it. Until leave is called, Moved
// returns the reviewer, which may be nil, when these ports change. The mesh does not change meanwhile.
func (m *Mesh) Serve(profile *model.Profile, addresses []string, reviewer Reviewer) (leave func()) {
	selectsIngress := func(value string) bool {
		return slices.ContainsFunc([]string{profile.Namespace, model.RootNamespace}, func(namespace string) bool {
			return m.Selectors.count[Selector{attribute: ingressAttribute, name: namespace, value: value}] > 0
		})
	}
	if profile.Role != model.Sidecar || !profile.Captures && !selectsIngress("") {
		return func() {}
	}
	var ports []model.ServicePort
	namespace := profile.Namespace
	for _, address := range addresses {
		ports = append(ports, m.serveAt(place{namespace, address}, reviewer)...)
	}
	slices.SortStableFunc(ports, model.ServicePort.Compare)
	text := ""
	if selectsIngress(captureValue(profile.Captures)) {
		text = strings.Join(addresses, ",")
	}
	profile.Inbound = model.InboundText(text, ports)
	return sync.OnceFunc(func() {
		for _, address := range addresses {
			m.serving.leave(place{namespace, address}, reviewer)
		}
	})
}

// serveAt returns the ports of a place.
func (m *Mesh) serveAt(location place, reviewer Reviewer) []model.ServicePort {
	m.serving.mu.Lock()
	defer m.serving.mu.Unlock()
	state := m.serving.places[location]
	if state == nil {
		state = &placePorts{clients: make(map[Reviewer]int), ports: make(map[resource.Key][]model.ServicePort)}
		m.serving.places[location] = state
		// Entries without the address are not decoded: a search of 10,000 entries takes some milliseconds (BenchmarkServe).
		listed := protowire.AppendString(protowire.AppendTag(nil, workloadAddress, protowire.BytesType), location.address)
		for key, e := range m.Entries {
			if key.Namespace == location.namespace && (e.selected != nil || bytes.Contains(e.object.Body(), listed)) {
				state.set(key, e.servedPorts(func(address string) bool { return address == location.address })[location.address])
			}
		}
		state.updateOrder()
	}
	state.clients[reviewer]++
	return state.ordered
}

// leave ends a use of a place.
func (s *serving) leave(location place, reviewer Reviewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clients := s.places[location].clients
	clients[reviewer]--
	if clients[reviewer] == 0 {
		delete(clients, reviewer)
	}
	if len(clients) == 0 {
		delete(s.places, location)
	}
}

// set sets the ports of a ServiceEntry at the place.
func (p *placePorts) set(key resource.Key, ports []model.ServicePort) {
	if slices.Equal(p.ports[key], ports) {
		return
	}
	p.ports[key] = ports
	p.changed = true
	if len(ports) == 0 {
		delete(p.ports, key)
	}
}

// updateOrder updates ordered, and reports whether it changed.
func (p *placePorts) updateOrder() (changed bool) {
	previous := p.ordered
	ports := slices.Concat(slices.Collect(maps.Values(p.ports))...)
	slices.SortStableFunc(ports, model.ServicePort.Compare)
	p.ordered = ports
	p.changed = false
	return !slices.Equal(ports, previous) // the ages count: they order the ports of several addresses
}

// refreshServing updates the ports of a ServiceEntry at all places.
func (m *Mesh) refreshServing(key resource.Key) {
	m.serving.mu.Lock()
	defer m.serving.mu.Unlock()
	var current map[string][]model.ServicePort
	if e := m.Entries[key]; e != nil && len(m.serving.places) > 0 {
		current = e.servedPorts(func(address string) bool { return m.serving.places[place{key.Namespace, address}] != nil })
	}
	for location, state := range m.serving.places {
		if location.namespace == key.Namespace {
			state.set(key, current[location.address])
		}
	}
}

// Moved returns the clients with changed service ports since the last call. From now on, Serve returns the new ports.
func (m *Mesh) Moved() map[Reviewer]bool {
	m.serving.mu.Lock()
	defer m.serving.mu.Unlock()
	reviewers := make(map[Reviewer]bool)
	for _, state := range m.serving.places {
		if state.changed && state.updateOrder() {
			for reviewer := range state.clients {
				reviewers[reviewer] = true
			}
		}
	}
	delete(reviewers, nil)
	return reviewers
}

// servedPorts returns the service ports of the entry's endpoints at wanted addresses, by address.
func (e *entry) servedPorts(wanted func(address string) bool) map[string][]model.ServicePort {
	ports := make(map[string][]model.ServicePort)
	addWorkload := func(w *networking.WorkloadEntry) {
		if wanted(w.GetAddress()) {
			ports[w.GetAddress()] = append(ports[w.GetAddress()], e.portsOf(w)...)
		}
	}
	selected := slices.Collect(maps.Values(e.selected))
	selected = slices.DeleteFunc(selected, func(w *workload) bool { return !wanted(w.spec.GetAddress()) })
	slices.SortFunc(selected, func(a, b *workload) int { return cmp.Compare(a.name, b.name) })
	for _, workload := range selected {
		addWorkload(workload.spec)
	}
	for encoded := e.object.Body(); len(encoded) > 0 && e.selected == nil; {
		field, number, value, _ := nextField(encoded) // Set has decoded it already
		if encoded = encoded[len(field):]; number != entryEndpoints {
			continue
		}
		var w networking.WorkloadEntry
		if address, _ := splitAddress(value); (address == nil || wanted(string(address))) &&
			proto.Unmarshal(value, &w) == nil {
			addWorkload(&w)
		}
	}
	return ports
}

// portsOf returns the service ports of an endpoint of the entry.
func (e *entry) portsOf(workloadEntry *networking.WorkloadEntry) (ports []model.ServicePort) {
	for _, host := range e.Hosts() {
		for _, p := range e.Spec.GetPorts() {
			ports = append(ports, model.ServicePort{
				Host: host, Number: p.GetNumber(), Protocol: model.InboundProtocol(p.GetProtocol(), false),
				Target:   cmp.Or(workloadEntry.GetPorts()[p.GetName()], p.GetTargetPort(), p.GetNumber()),
				External: e.Spec.GetLocation() == networking.ServiceEntry_MESH_EXTERNAL, Created: e.created, Owner: e.Key,
			})
		}
	}
	return ports
}
