package index

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// service returns what host is to the clients of namespace, or nil. As with istiod, the namespace's own entries come
// first, then those of the namespace with the oldest one; ports that an older entry has are not those of a younger one.
//
// With a Sidecar, it is what that imports; else what routes lead to that it imports, of the namespace's own or the first by name.
func (m *Mesh) service(host string, p model.Profile, only *SidecarRule) *model.Service {
	namespace := p.Namespace
	var visible []*entry
	for _, e := range m.Hosts[host] {
		if e.VisibleTo(namespace) && only.Imports(host, e.Key.Namespace, namespace) {
			visible = append(visible, e)
		}
	}
	var led map[uint32]bool // ports of the service that they know besides
	if only != nil && len(m.Hosts[host]) > 0 {
		if led = m.routedPorts(host, p, only); len(led) > 0 {
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
		return cmp.Or(a.precedence(namespace).Compare(b.precedence(namespace)), a.Key.Compare(b.Key))
	})
	of := visible[0].Key.Namespace
	if p.Role != model.Ingress && slices.ContainsFunc(visible, func(e *entry) bool { return e.Key.Namespace == namespace }) {
		of = namespace
	}
	visible = slices.DeleteFunc(visible, func(e *entry) bool { return e.Key.Namespace != of })
	lead := visible[0]
	s := &model.Service{
		Host: host, Namespace: of, Precedence: lead.precedence(namespace), Addresses: model.OneSpelling(lead.Spec.GetAddresses()),
		Resolution: lead.Spec.GetResolution(), External: lead.Spec.GetLocation() == networking.ServiceEntry_MESH_EXTERNAL,
		Domains: m.config().TrustDomains(),
	}
	var from model.Digest
	from.Text(of)
	from.Number(int64(len(s.Domains)))
	from.Text(s.Domains...)
	from.Number(int64(s.Audience)) // which differs by who asks
	for _, e := range visible {
		from.Text(e.Key.Name, e.version)
		from.Number(e.created.UnixNano())
		from.Number(int64(len(e.selected)))
		s.Objects = append(s.Objects, e.Key)
		for _, name := range slices.Sorted(maps.Keys(e.selected)) {
			w := e.selected[name]
			from.Text(name, w.version)
			s.Objects = append(s.Objects, resource.Key{Kind: resource.WorkloadEntry, Namespace: e.Key.Namespace, Name: name})
			if from.Flag(w.group != nil); w.group != nil {
				from.Text(w.group.Key.Name, w.group.Version)
				from.Number(w.group.Created.UnixNano())
				s.Objects = append(s.Objects, w.group.Key)
			}
		}
		s.Names = append(s.Names, e.Spec.GetSubjectAltNames()...)
		add(s, e)
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		if !only.assign(host, of, namespace, p) && !led[0] && !led[p.Number] {
			p.Number = 0
		}
		if only != nil && p.Number != 0 {
			port(&from, p)
		}
	}
	s.Ports = slices.DeleteFunc(s.Ports, func(p model.Port) bool { return p.Number == 0 })
	s.From = string(from)
	return s
}

// firstOf returns the entries of a host that are visible to a namespace, of itself or else of the first one by name.
func (m *Mesh) firstOf(host, namespace string) (first []*entry) {
	for _, e := range m.Hosts[host] {
		switch of := e.Key.Namespace; {
		case !e.VisibleTo(namespace):
		case len(first) > 0 && of == first[0].Key.Namespace:
			first = append(first, e)
		case len(first) == 0, of == namespace, first[0].Key.Namespace != namespace && of < first[0].Key.Namespace:
			first = []*entry{e}
		}
	}
	return first
}

// add adds the ports of e that the service does not have, and the endpoints of those that it has with the same number and name.
func add(s *model.Service, e *entry) {
	endpoints := sync.OnceValue(func() []model.Endpoint {
		list := e.endpoints()
		if len(list) == 0 && e.selected == nil && model.IsDNS(e.Spec.GetResolution()) {
			list = []model.Endpoint{{Address: s.Host, Spec: &networking.WorkloadEntry{}, Owner: e.Key}}
		}
		return list
	})
	for i, p := range e.Spec.GetPorts() {
		protocol, ok := model.ProtocolOf(p.GetProtocol())
		if !ok {
			continue
		}
		if i := slices.IndexFunc(s.Ports, func(port model.Port) bool { return port.Number == p.GetNumber() }); i >= 0 {
			if s.Ports[i].Name == p.GetName() {
				join(&s.Ports[i], e.Spec.GetResolution(), p.GetTargetPort(), endpoints)
			}
			continue
		}
		s.Ports = append(s.Ports, model.Port{
			Number: p.GetNumber(), Name: p.GetName(), Target: p.GetTargetPort(), Protocol: protocol, Spoken: protocol,
			Resolution: s.Resolution, Endpoints: endpoints,
			Owner: e.Key, Index: i,
		})
	}
}

// join adds the endpoints of another ServiceEntry to a port, each address and port once: gRPC clients reject a repeated one. Names among
// addresses are resolved, since Envoy rejects them otherwise.
func join(p *model.Port, resolution networking.ServiceEntry_Resolution, target uint32, joined func() []model.Endpoint) {
	if p.Resolution == networking.ServiceEntry_STATIC && model.IsDNS(resolution) {
		p.Resolution = networking.ServiceEntry_DNS
	}
	first, port := p.Endpoints, *p
	p.Endpoints = sync.OnceValue(func() []model.Endpoint {
		type socket struct {
			address string
			port    uint32
		}
		endpoints, taken := slices.Clone(first()), make(map[socket]bool)
		for i := range endpoints {
			taken[socket{endpoints[i].Address, endpoints[i].PortOf(&port)}] = true
		}
		for _, endpoint := range joined() {
			endpoint.Target = cmp.Or(target, port.Number)
			if key := (socket{endpoint.Address, endpoint.PortOf(&port)}); !taken[key] {
				taken[key] = true
				endpoints = append(endpoints, endpoint)
			}
		}
		return endpoints
	})
}
