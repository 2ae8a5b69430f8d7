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

// Reviewer has a client ask again what it is served. Reviewers are compared.
type Reviewer interface{ Review() }

// serving knows which service ports the addresses of clients serve. Addresses that no client has are not kept: endpoints are not decoded in
// a mesh. It is safe for concurrent use.
type serving struct {
	mu     sync.Mutex
	places map[place]*served
}

// place is an address in a namespace.
type place struct{ namespace, address string }

// served is what a place serves.
type served struct {
	clients map[Reviewer]int // that have the place, and how often each has it; nil for those that are not asked for a review
	ports   map[resource.Key][]model.ServicePort
	shown   []model.ServicePort // those of ports when Moved was called last
	changed bool                // ports have changed since
}

// Serve adds to a profile the service ports that a client at some addresses serves, if they bear on it. Until leave is called, Moved
// returns by, which may be nil, when these change. The mesh does not change meanwhile.
func (m *Mesh) Serve(p *model.Profile, addresses []string, by Reviewer) (leave func()) {
	has := func(value string) bool {
		return slices.ContainsFunc([]string{p.Namespace, model.RootNamespace}, func(namespace string) bool {
			return m.Selectors.count[Selector{attribute: ingressAttribute, name: namespace, value: value}] > 0
		})
	}
	if p.Role != model.Sidecar || !p.Captures && !has("") {
		return func() {}
	}
	var ports []model.ServicePort
	namespace := p.Namespace
	for _, a := range addresses {
		ports = append(ports, m.serveAt(place{namespace, a}, by)...)
	}
	slices.SortStableFunc(ports, model.ServicePort.Compare)
	text := ""
	if has(atAddress(p.Captures)) {
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
	m.serving.mu.Lock()
	defer m.serving.mu.Unlock()
	known := m.serving.places[at]
	if known == nil {
		known = &served{clients: make(map[Reviewer]int), ports: make(map[resource.Key][]model.ServicePort)}
		m.serving.places[at] = known
		// An entry that has no endpoint there is not decoded: to look through 10,000 entries takes some milliseconds (BenchmarkServe).
		listed := protowire.AppendString(protowire.AppendTag(nil, workloadAddress, protowire.BytesType), at.address)
		for key, e := range m.Entries {
			if key.Namespace == at.namespace && (e.selected != nil || bytes.Contains(e.object.Body(), listed)) {
				known.set(key, e.served(func(address string) bool { return address == at.address })[at.address])
			}
		}
		known.show()
	}
	known.clients[by]++
	return known.shown
}

// leave ends a use of a place.
func (s *serving) leave(at place, by Reviewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clients := s.places[at].clients
	if clients[by]--; clients[by] == 0 {
		delete(clients, by)
	}
	if len(clients) == 0 {
		delete(s.places, at)
	}
}

// set sets the ports of the place that a ServiceEntry has.
func (s *served) set(key resource.Key, ports []model.ServicePort) {
	if slices.Equal(s.ports[key], ports) {
		return
	}
	if s.ports[key], s.changed = ports, true; len(ports) == 0 {
		delete(s.ports, key)
	}
}

// show puts the ports into shown, in order, and says whether that changes it.
func (s *served) show() (changed bool) {
	ports, was := slices.Concat(slices.Collect(maps.Values(s.ports))...), s.shown
	slices.SortStableFunc(ports, model.ServicePort.Compare)
	s.shown, s.changed = ports, false
	return !slices.Equal(ports, was) // with their ages, which order them among those of the other addresses of a client
}

// serveAnew looks again at which places serve the ports of a ServiceEntry.
func (m *Mesh) serveAnew(key resource.Key) {
	m.serving.mu.Lock()
	defer m.serving.mu.Unlock()
	var now map[string][]model.ServicePort
	if e := m.Entries[key]; e != nil && len(m.serving.places) > 0 {
		now = e.served(func(address string) bool { return m.serving.places[place{key.Namespace, address}] != nil })
	}
	for at, known := range m.serving.places {
		if at.namespace == key.Namespace {
			known.set(key, now[at.address])
		}
	}
}

// Moved returns those whose service ports have changed since the last call. From now on, Serve has the new ones.
func (m *Mesh) Moved() map[Reviewer]struct{} {
	m.serving.mu.Lock()
	defer m.serving.mu.Unlock()
	all := make(map[Reviewer]struct{})
	for _, known := range m.serving.places {
		if known.changed && known.show() {
			for by := range known.clients {
				all[by] = struct{}{}
			}
		}
	}
	delete(all, nil)
	return all
}

// served returns the service ports of the endpoints of the entry whose addresses are wanted, by address.
func (e *entry) served(wanted func(address string) bool) map[string][]model.ServicePort {
	all := make(map[string][]model.ServicePort)
	add := func(w *networking.WorkloadEntry) {
		if wanted(w.GetAddress()) {
			all[w.GetAddress()] = append(all[w.GetAddress()], e.portsOf(w)...)
		}
	}
	selected := slices.Collect(maps.Values(e.selected))
	selected = slices.DeleteFunc(selected, func(w *workload) bool { return !wanted(w.spec.GetAddress()) })
	slices.SortFunc(selected, func(a, b *workload) int { return cmp.Compare(a.name, b.name) })
	for _, w := range selected {
		add(w.spec)
	}
	for b := e.object.Body(); len(b) > 0 && e.selected == nil; {
		field, number, value, _ := nextField(b) // it could be decoded when it came
		if b = b[len(field):]; number != entryEndpoints {
			continue
		}
		var w networking.WorkloadEntry
		if address, _ := splitAddress(value); (address == nil || wanted(string(address))) && proto.Unmarshal(value, &w) == nil {
			add(&w)
		}
	}
	return all
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
