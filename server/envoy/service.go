package envoy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// service is what a host is to the clients of a namespace. It is not modified once it was made.
type service struct {
	host      string // in lower case
	namespace string
	seniority
	ports      []port
	addresses  []string // that clients may connect to, addresses or ranges
	resolution networking.ServiceEntry_Resolution
	external   bool

	objects []resource.Key // that it was made of
	from    string         // what it was made of: equal for what is equal
}

// port is one port of a service.
type port struct {
	number    uint32
	name      string
	target    uint32 // where it is not the endpoint that says
	protocol  protocol
	endpoints func() []endpoint

	owner resource.Key // the ServiceEntry that has it
	index int          // there

	unreached bool     // by a listener: clients know it because routes lead there
	late      bool     // it has what others leave of the port
	part      int      // of the clients' Sidecar, by which they reach it
	spoken    protocol // by listeners, where the clients' Sidecar may say otherwise
	bind      string   // where listeners are, if it says so
}

func (p *port) place() place { return place{p.owner, fmt.Sprintf("spec.ports[%d]", p.index)} }

// endpoint is one of the places that serve a port.
type endpoint struct {
	workload, namespace string // of a WorkloadEntry; empty for one that a ServiceEntry lists
	address             string
	spec                *networking.WorkloadEntry // the rest, which endpoints of an entry share where it is equal
	labels              map[string]string

	owner resource.Key // the ServiceEntry that lists or selects it
	index int          // there
}

func (e *endpoint) place() place {
	if e.workload != "" {
		return place{resource.Key{Kind: resource.WorkloadEntry, Namespace: e.namespace, Name: e.workload}, "spec"}
	}
	return place{e.owner, fmt.Sprintf("spec.endpoints[%d]", e.index)}
}

// service returns what host is to the clients of namespace, or nil. As with istiod, the namespace's own entries come
// first, then those of the namespace with the oldest one; ports that an older entry has are not those of a younger one.
//
// With a Sidecar, it is what that imports; else what routes lead to that it imports, of the namespace's own or the first by name.
func (m *mesh) service(host string, p profile, only *sidecarRule) *service {
	namespace := p.namespace
	var visible []*entry
	for _, e := range m.hosts[host] {
		if e.visibleTo(namespace) && only.imports(host, e.key.Namespace, namespace) {
			visible = append(visible, e)
		}
	}
	var led map[uint32]bool // ports of the service that they know besides
	if only != nil && len(m.hosts[host]) > 0 {
		if led = m.led(host, p, only); len(led) > 0 {
			first := m.firstOf(host, namespace)
			if len(visible) == 0 {
				visible = first
			} else if len(first) == 0 || !slices.Contains(visible, first[0]) {
				led = nil
			}
		}
	}
	if len(visible) == 0 {
		return nil
	}
	slices.SortFunc(visible, func(a, b *entry) int {
		return cmp.Or(a.seniority(namespace).compare(b.seniority(namespace)), a.key.Compare(b.key))
	})
	of := visible[0].key.Namespace
	if p.role != ingress && slices.ContainsFunc(visible, func(e *entry) bool { return e.key.Namespace == namespace }) {
		of = namespace
	}
	visible = slices.DeleteFunc(visible, func(e *entry) bool { return e.key.Namespace != of })
	lead := visible[0]
	s := &service{
		host: host, namespace: of, seniority: lead.seniority(namespace), addresses: oneSpelling(lead.spec.GetAddresses()),
		resolution: lead.spec.GetResolution(), external: lead.spec.GetLocation() == networking.ServiceEntry_MESH_EXTERNAL,
	}
	var from digest
	from.text(of)
	from.number(int64(s.reach)) // which differs by who asks
	for _, e := range visible {
		from.text(e.key.Name, e.version)
		from.number(e.created.UnixNano())
		from.number(int64(len(e.selected)))
		s.objects = append(s.objects, e.key)
		for _, name := range slices.Sorted(maps.Keys(e.selected)) {
			from.text(name, e.selected[name].version)
			s.objects = append(s.objects, resource.Key{Kind: resource.WorkloadEntry, Namespace: e.key.Namespace, Name: name})
		}
		s.add(e)
	}
	for i := range s.ports {
		p := &s.ports[i]
		if !only.hears(host, of, namespace, p) && !led[0] && !led[p.number] {
			p.number = 0
		}
		if only != nil && p.number != 0 {
			from.port(p)
		}
	}
	s.ports = slices.DeleteFunc(s.ports, func(p port) bool { return p.number == 0 })
	s.from = string(from)
	return s
}

// firstOf returns the entries of a host that are visible to a namespace, of itself or else of the first one by name.
func (m *mesh) firstOf(host, namespace string) (first []*entry) {
	for _, e := range m.hosts[host] {
		switch of := e.key.Namespace; {
		case !e.visibleTo(namespace):
		case len(first) > 0 && of == first[0].key.Namespace:
			first = append(first, e)
		case len(first) == 0, of == namespace, first[0].key.Namespace != namespace && of < first[0].key.Namespace:
			first = []*entry{e}
		}
	}
	return first
}

// add adds the ports of e that the service does not have.
func (s *service) add(e *entry) {
	endpoints := sync.OnceValue(func() []endpoint {
		list := e.endpoints()
		if len(list) == 0 && e.selected == nil && isDNS(s.resolution) {
			list = []endpoint{{address: s.host, spec: &networking.WorkloadEntry{}, owner: e.key}}
		}
		return list
	})
	for i, p := range e.spec.GetPorts() {
		protocol, ok := protocolOf(p.GetProtocol())
		if !ok || slices.ContainsFunc(s.ports, func(known port) bool { return known.number == p.GetNumber() }) {
			continue
		}
		s.ports = append(s.ports, port{
			number: p.GetNumber(), name: p.GetName(), target: p.GetTargetPort(), protocol: protocol, spoken: protocol, endpoints: endpoints, owner: e.key, index: i,
		})
	}
}

// ranges are those of the service's addresses that are ranges.
func (s *service) ranges() (all []string) {
	for _, a := range s.addresses {
		if !resource.IsAddress(a) {
			all = append(all, a)
		}
	}
	return all
}

func isDNS(r networking.ServiceEntry_Resolution) bool {
	return r == networking.ServiceEntry_DNS || r == networking.ServiceEntry_DNS_ROUND_ROBIN
}
