package mapping

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/names"
	"tributary/resource"
)

// The labels by which the ServiceEntries of a service find its WorkloadEntries.
const (
	serviceLabel    = "tributary/consul-service"
	datacenterLabel = "tributary/consul-datacenter"
)

// mapFamily makes the objects of a family.
func (m *Mapper) mapFamily(f *family, w *warner) ([]*resource.Resource, error) {
	w.place = f.place()
	defer func() { w.place = "" }()
	if !names.IsHost(f.host) {
		return nil, fmt.Errorf("%s: %q is no host (hostTemplate)", f.place(), f.host)
	}
	instances := f.instances()
	s := m.shapeOf(f.host, instances, m.shapes[f.host], w)
	switch {
	case len(s.groups) > 0:
	case len(instances) > 0:
		w.add("no instance has a port: there is nothing to call")
		return nil, nil
	case m.known(f.name):
		return nil, nil // it was never one to call: a sidecar, or without ports
	default:
		return nil, fmt.Errorf("%s: it has no instance, and no ports are remembered", f.place())
	}
	m.shapes[f.host] = s

	b := builder{m: m, f: f, shape: s, w: w, workloads: m.o.Endpoints == endpointsWorkloads}
	if b.workloads && len(s.groups) > 1 {
		// istiod merges ServiceEntries of one host only if they select the same workloads, and then each workload has every port.
		w.add("instances have different ports: endpoints are inline, and not WorkloadEntries")
		b.workloads = false
	}
	b.vip = m.o.VIPs == vipsAll || m.o.VIPs == vipsTCP && slices.ContainsFunc(s.all(), func(p servicePort) bool { return !p.carriesHost() })

	hosts := []string{f.host}
	alias := f.datacenters[0].alias
	// Where one ServiceEntry can have both hosts it saves the endpoints' being there twice. Istio refuses two hosts on a port
	// whose protocol does not carry the host.
	shared := len(f.datacenters) == 1 && names.IsHost(alias) &&
		!slices.ContainsFunc(s.all(), func(p servicePort) bool { return !p.carriesHost() })
	if shared {
		hosts = append(hosts, alias)
	}
	b.serviceEntries(objectName(f.id), hosts, instances, "")
	for _, dc := range f.datacenters {
		if dc.alias == "" || shared {
			continue
		}
		if !names.IsHost(dc.alias) {
			w.add(fmt.Sprintf("%q is no host: the service has no alias", dc.alias))
			continue
		}
		b.serviceEntries(objectName(dc.id), []string{dc.alias}, dc.instances, dc.id.datacenter)
	}
	if b.workloads {
		b.workloadEntries(instances)
	}
	return b.rs, b.err
}

type builder struct {
	m         *Mapper
	f         *family
	shape     shape
	w         *warner
	vip       bool
	workloads bool

	rs  []*resource.Resource
	err error
}

// serviceEntries makes the ServiceEntries of a host, or hosts. With a datacenter it is that of an alias.
func (b *builder) serviceEntries(name string, hosts []string, instances []*instance, datacenter string) {
	var addresses []string
	if b.vip && b.m.vips != nil {
		if vip, err := b.m.vips.Address(hosts[0]); err != nil {
			b.w.add("no virtual address: " + err.Error())
		} else {
			addresses = []string{vip.String()}
		}
	}
	// istiod merges the ServiceEntries of a host only if these have one resolution. DNS takes IP addresses too.
	dns := slices.ContainsFunc(instances, func(i *instance) bool { return i.isHost && len(i.ports) > 0 })
	hasPorts := slices.ContainsFunc(instances, func(i *instance) bool { return len(i.ports) > 0 })
	someServed := slices.ContainsFunc(instances, func(i *instance) bool { return i.served })
	for g, group := range b.shape.groups {
		held := slices.ContainsFunc(instances, func(i *instance) bool { return i.has(group) })
		if hasPorts && !held {
			continue // a port of other datacenters only
		}
		se := &networking.ServiceEntry{
			Hosts: hosts, Addresses: addresses,
			Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC,
		}
		for _, p := range group {
			se.Ports = append(se.Ports, &networking.ServicePort{Number: p.number, Name: p.label, Protocol: string(p.protocol)})
		}
		endpoints := b.endpoints(instances, group)
		switch {
		case dns && len(endpoints) > 0:
			se.Resolution = networking.ServiceEntry_DNS
		case dns && someServed:
			// With DNS and without endpoints the host itself would be one; with STATIC it would not be merged.
			b.w.add("port " + group[0].label + " has no healthy instance, and is left out")
			continue
		}
		if b.workloads {
			se.WorkloadSelector = &networking.WorkloadSelector{Labels: b.workloadLabels(datacenter)}
		} else {
			se.Endpoints = endpoints
		}
		port := ""
		if g > 0 {
			port = group[0].label
		}
		b.add(resource.ServiceEntry, nameFor(name, port), b.f.place(), se)
	}
}

func (i *instance) has(group []servicePort) bool { return i.portNumber(group[0].portKey) > 0 }

func (i *instance) portNumber(k portKey) uint32 {
	for _, p := range i.ports {
		if p.portKey == k {
			return p.number
		}
	}
	return 0
}

// serving returns those of the instances that serve the ports of a group, each address with its ports once.
func (b *builder) serving(instances []*instance, group []servicePort) []*instance {
	var all []*instance
	seen := map[string]bool{}
	for _, i := range instances {
		if !i.served || !i.has(group) {
			continue
		}
		we := i.workload(group)
		id := we.Address + fmt.Sprint(we.Ports)
		if seen[id] {
			b.w.addInstance(i, "another has the same address and port")
			continue
		}
		seen[id] = true
		all = append(all, i)
	}
	return all
}

// endpoints returns one endpoint for each of the instances that serve the ports of a group, in order of their addresses.
func (b *builder) endpoints(instances []*instance, group []servicePort) []*networking.WorkloadEntry {
	var all []*networking.WorkloadEntry
	for _, i := range b.serving(instances, group) {
		all = append(all, i.workload(group))
	}
	slices.SortStableFunc(all, func(x, y *networking.WorkloadEntry) int { return strings.Compare(x.Address, y.Address) })
	return all
}

func (i *instance) workload(group []servicePort) *networking.WorkloadEntry {
	we := &networking.WorkloadEntry{Address: i.address, Ports: map[string]uint32{}, Labels: i.labels, Weight: i.weight, Locality: i.locality}
	for _, p := range group {
		we.Ports[p.label] = i.portNumber(p.portKey)
	}
	return we
}

func (b *builder) workloadLabels(datacenter string) map[string]string {
	name := objectName(b.f.id)
	labels := map[string]string{serviceLabel: names.Fit(name, name, names.MaxLabel)}
	if datacenter != "" {
		labels[datacenterLabel] = datacenter
	}
	return labels
}

// workloadEntries makes one object for each endpoint of the service.
func (b *builder) workloadEntries(instances []*instance) {
	group := b.shape.groups[0]
	again := map[string]int{}
	for _, i := range b.serving(instances, group) {
		we := i.workload(group)
		we.Labels = b.workloadLabels(b.datacenterLabel(i.datacenter))
		for k, v := range i.labels {
			if _, ours := we.Labels[k]; !ours {
				we.Labels[k] = v
			}
		}
		// Nothing but the order tells two apart whose ids are the same, which an agent prevents and the catalog does not.
		id := hash(i.datacenter, i.node, i.id)
		again[id]++
		suffix := "." + names.Hashed(labelOf(i.node), fmt.Sprint(id, again[id]), 40) + ".instance"
		name := objectName(b.f.id)
		b.add(resource.WorkloadEntry, names.Fit(name, name, names.MaxName-len(suffix))+suffix, b.f.place()+" "+i.String(), we)
	}
}

// datacenterLabel returns what the aliases of a datacenter select by; without aliases nothing does.
func (b *builder) datacenterLabel(name string) string {
	for _, dc := range b.f.datacenters {
		if dc.name == name {
			return dc.id.datacenter
		}
	}
	return ""
}

func (b *builder) add(kind resource.Kind, name, place string, spec proto.Message) {
	r, err := resource.New(resource.Meta{
		Key:    resource.Key{Kind: kind, Namespace: b.m.o.Namespace, Name: name},
		Origin: resource.Origin{Place: strings.ToValidUTF8(place, "?")},
	}, spec)
	if err != nil {
		b.err = fmt.Errorf("%s: %w", b.f.place(), err)
		return
	}
	b.rs = append(b.rs, r)
}

// hashPort returns a port for what cannot have the one that it asks for, among the registered ones; after is one that is
// taken.
func hashPort(host, port string, after uint32) uint32 {
	const low, high = 10000, 49151
	if after >= low && after < high {
		return after + 1
	}
	if after == high {
		return low
	}
	var n uint32
	_, _ = fmt.Sscanf(hash(host, port), "%8x", &n)
	return low + n%(high-low+1)
}

func appendInts(b []byte, ints []int) []byte {
	for _, i := range ints {
		b = binary.AppendUvarint(b, uint64(i))
	}
	return b
}
