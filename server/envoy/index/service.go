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

// service returns the service of a host for clients of a profile, or nil. As with istiod, it has entries of one
// namespace (see ownerOf); an older entry takes its ports from a younger one.
//
// With a Sidecar, the service consists of imported entries. Without any, it has the ports that imported routes lead to,
// of the clients' namespace or else of the first namespace by name.
func (m *Mesh) service(host string, profile model.Profile, sidecar *Sidecar) *model.Service {
	namespace := profile.Namespace
	var visible []*entry
	for _, member := range m.Hosts[host] {
		if member.VisibleTo(namespace) && sidecar.Imports(host, member.Key.Namespace, namespace) {
			visible = append(visible, member)
		}
	}
	var routedPorts map[uint32]bool // further ports, by routes
	if sidecar != nil && len(m.Hosts[host]) > 0 {
		if routedPorts = m.routedPorts(host, profile, sidecar); len(routedPorts) > 0 {
			first := m.firstVisible(host, namespace)
			if len(visible) == 0 {
				visible = first
			} else if len(first) == 0 || !slices.Contains(visible, first[0]) {
				routedPorts = nil
			}
		}
	}
	if len(visible) == 0 {
		return nil
	}
	slices.SortFunc(visible, func(a, b *entry) int {
		return cmp.Or(a.precedence(namespace).Compare(b.precedence(namespace)), a.Key.Compare(b.Key))
	})
	owner := ownerOf(host, visible, profile, sidecar)
	visible = slices.DeleteFunc(visible, func(member *entry) bool { return member.Key.Namespace != owner })
	oldest := visible[0]
	service := &model.Service{
		Host: host, Namespace: owner, Precedence: oldest.precedence(namespace),
		Addresses:  model.NormalizeAddresses(oldest.Spec.GetAddresses()),
		Resolution: oldest.Spec.GetResolution(), External: oldest.Spec.GetLocation() == networking.ServiceEntry_MESH_EXTERNAL,
		Domains: m.config().TrustDomains(),
	}
	var digest model.Digest
	digest.Text(owner)
	digest.Number(int64(len(service.Domains)))
	digest.Text(service.Domains...)
	digest.Number(int64(service.Audience)) // it differs between clients
	for _, member := range visible {
		digest.Text(member.Key.Name, member.version)
		digest.Number(member.created.UnixNano())
		digest.Number(int64(len(member.selected)))
		service.Objects = append(service.Objects, member.Key)
		for _, name := range slices.Sorted(maps.Keys(member.selected)) {
			workload := member.selected[name]
			digest.Text(name, workload.version)
			service.Objects = append(service.Objects,
				resource.Key{Kind: resource.WorkloadEntry, Namespace: member.Key.Namespace, Name: name})
			digest.Flag(workload.group != nil)
			if workload.group != nil {
				digest.Text(workload.group.Key.Name, workload.group.Version)
				digest.Number(workload.group.Created.UnixNano())
				service.Objects = append(service.Objects, workload.group.Key)
			}
		}
		service.Names = append(service.Names, member.Spec.GetSubjectAltNames()...)
		addPorts(service, member)
	}
	for i := range service.Ports {
		servicePort := &service.Ports[i]
		if !sidecar.assign(host, owner, namespace, servicePort) && !routedPorts[0] && !routedPorts[servicePort.Number] {
			servicePort.Number = 0
		}
		if sidecar != nil && servicePort.Number != 0 {
			port(&digest, servicePort)
		}
	}
	service.Ports = slices.DeleteFunc(service.Ports, func(port model.Port) bool { return port.Number == 0 })
	service.From = string(digest)
	return service
}

// ownerOf returns the namespace of a host's service. Entries are in order of precedence. As with istiod, the first
// egress listener that imports some decides; sidecars prefer entries of their own namespace.
func ownerOf(host string, entries []*entry, profile model.Profile, sidecar *Sidecar) (owner string) {
	for _, listener := range sidecar.egressListeners() {
		for _, candidate := range entries {
			namespace := candidate.Key.Namespace
			if !listener.importsService(host, namespace, profile.Namespace) || !listener.hasPortOf(candidate) {
				continue
			}
			if namespace == profile.Namespace && profile.Role != model.Ingress {
				return namespace
			}
			owner = cmp.Or(owner, namespace)
		}
		if owner != "" {
			return owner
		}
	}
	return entries[0].Key.Namespace // imported by routes
}

// firstVisible returns the entries of a host that are visible to a namespace: those in the namespace, or else those of
// the first namespace by name.
func (m *Mesh) firstVisible(host, namespace string) (first []*entry) {
	for _, candidate := range m.Hosts[host] {
		switch owner := candidate.Key.Namespace; {
		case !candidate.VisibleTo(namespace):
		case len(first) > 0 && owner == first[0].Key.Namespace:
			first = append(first, candidate)
		case len(first) == 0, owner == namespace, first[0].Key.Namespace != namespace && owner < first[0].Key.Namespace:
			first = []*entry{candidate}
		}
	}
	return first
}

// addPorts adds the ports of an entry that the service lacks, and the endpoints of those that it has with the same
// number and name.
func addPorts(service *model.Service, source *entry) {
	endpoints := sync.OnceValue(func() []model.Endpoint {
		list := source.endpoints()
		if len(list) == 0 && source.selected == nil && model.IsDNS(source.Spec.GetResolution()) {
			list = []model.Endpoint{{Address: service.Host, Spec: &networking.WorkloadEntry{}, Owner: source.Key}}
		}
		return list
	})
	for i, specPort := range source.Spec.GetPorts() {
		protocol, ok := model.ProtocolOf(specPort.GetProtocol())
		if !ok {
			continue
		}
		if i := slices.IndexFunc(service.Ports,
			func(port model.Port) bool { return port.Number == specPort.GetNumber() }); i >= 0 {
			if service.Ports[i].Name == specPort.GetName() {
				joinEndpoints(&service.Ports[i], source.Spec.GetResolution(), specPort.GetTargetPort(), endpoints)
			}
			continue
		}
		service.Ports = append(service.Ports, model.Port{
			Number: specPort.GetNumber(), Name: specPort.GetName(), Target: specPort.GetTargetPort(), Protocol: protocol,
			Spoken:     protocol,
			Resolution: service.Resolution, Endpoints: endpoints,
			Owner: source.Key, Index: i,
		})
	}
}

// joinEndpoints adds the endpoints of another ServiceEntry to a port, without duplicates: gRPC clients reject them.
// Names among addresses are resolved, since Envoy rejects them otherwise.
func joinEndpoints(
	servicePort *model.Port, resolution networking.ServiceEntry_Resolution, target uint32, joined func() []model.Endpoint,
) {
	if servicePort.Resolution == networking.ServiceEntry_STATIC && model.IsDNS(resolution) {
		servicePort.Resolution = networking.ServiceEntry_DNS
	}
	first, port := servicePort.Endpoints, *servicePort
	servicePort.Endpoints = sync.OnceValue(func() []model.Endpoint {
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
