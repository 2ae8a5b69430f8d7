package mapping

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/names"
	"tributary/resource"
	"tributary/sources/registry"
)

// The labels by which the ServiceEntries of a service find its WorkloadEntries.
const (
	serviceLabel    = "tributary/consul-service"
	datacenterLabel = "tributary/consul-datacenter"
)

// mapFamily makes the objects of a family.
func (m *Mapper) mapFamily(f *family, w *warner) ([]*resource.Resource, error) {
	instances := f.instances()
	for _, i := range instances {
		for _, what := range i.said {
			w.addInstance(i, what)
		}
	}
	if !names.IsHost(f.host) {
		return nil, fmt.Errorf("%s: %q is no host (hostTemplate)", w.place, f.host)
	}
	_, known := m.hosts[f.of.Name] // it was mapped before, if only to nothing
	s := m.shapeOf(f.host, instances, m.shapes[f.host], w)
	switch {
	case len(s) > 0:
	case len(instances) > 0:
		w.add("no instance has a port: there is nothing to call")
		return nil, nil
	case known:
		return nil, nil // it was never one to call: a sidecar, or without ports
	default:
		return nil, fmt.Errorf("%s: it has no instance, and no ports are remembered", w.place)
	}
	m.shapes[f.host] = s

	b := builder{m: m, f: f, w: w, shape: s, workloads: m.o.Endpoints == endpointsWorkloads}
	if b.workloads && len(s) > 1 {
		// istiod merges ServiceEntries of one host only if they select the same workloads, and then each workload has every port.
		w.add("instances have different ports: endpoints are inline, and not WorkloadEntries")
		b.workloads = false
	}
	b.hostless = slices.ContainsFunc(slices.Concat(s...), func(p servicePort) bool { return !p.protocol.IsHTTP() && !p.protocol.IsTLS() })
	hosts := []string{f.host}
	alias := f.datacenters[0].alias
	// Where one ServiceEntry can have both hosts it saves the endpoints' being there twice. Istio refuses two hosts on a port
	// whose protocol does not carry the host.
	shared := len(f.datacenters) == 1 && names.IsHost(alias) && !b.hostless
	if shared {
		hosts = append(hosts, alias)
	}
	b.serviceEntries(f.id.object(), hosts, instances, "")
	for _, dc := range f.datacenters {
		switch {
		case dc.alias == "" || shared:
		case !names.IsHost(dc.alias):
			w.add(fmt.Sprintf("%q is no host: the service has no alias", dc.alias))
		default:
			b.serviceEntries(dc.id.object(), []string{dc.alias}, dc.instances, dc.id.datacenter)
		}
	}
	if b.workloads {
		b.workloadEntries(instances)
	}
	return b.rs, b.err
}

// builder makes the objects of a family.
type builder struct {
	m         *Mapper
	f         *family
	w         *warner
	shape     shape
	hostless  bool // some protocol does not carry the host that a request is for
	workloads bool

	rs  []*resource.Resource
	err error
}

// serviceEntries makes the ServiceEntries of a host, or hosts. With a datacenter it is that of an alias.
func (b *builder) serviceEntries(name string, hosts []string, instances []*instance, datacenter string) {
	addresses, warnings := registry.Address(b.m.vips, b.m.o.VIPs, hosts[0], b.w.place, b.hostless)
	b.w.general = append(b.w.general, warnings...)
	// istiod merges the ServiceEntries of a host only if these have one resolution. DNS takes IP addresses too.
	dns := slices.ContainsFunc(instances, func(i *instance) bool { return i.address != "" && registry.Named(i.address) && len(i.ports) > 0 })
	hasPorts := slices.ContainsFunc(instances, func(i *instance) bool { return len(i.ports) > 0 })
	someServed := slices.ContainsFunc(instances, func(i *instance) bool { return i.why == "" })
	for g, group := range b.shape {
		held := slices.ContainsFunc(instances, func(i *instance) bool { return i.portNumber(group[0].portKey) > 0 })
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
		_, endpoints := b.endpoints(instances, group)
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
			slices.SortStableFunc(endpoints, func(x, y *networking.WorkloadEntry) int { return strings.Compare(x.Address, y.Address) })
			se.Endpoints = endpoints
		}
		object := name
		if g > 0 {
			object += "." + group[0].label + ".port"
		}
		b.add(resource.ServiceEntry, names.Fit(object, object, names.MaxName), b.w.place, se)
	}
}

func (i *instance) portNumber(k portKey) uint32 {
	for _, p := range i.ports {
		if p.portKey == k {
			return p.number
		}
	}
	return 0
}

// endpoints returns an endpoint for each of the instances that serve the ports of a group, and these; each address with its ports once.
func (b *builder) endpoints(instances []*instance, group []servicePort) (serving []*instance, all []*networking.WorkloadEntry) {
	seen := map[string]bool{}
	for _, i := range instances {
		if i.why != "" || i.portNumber(group[0].portKey) == 0 {
			continue
		}
		we := &networking.WorkloadEntry{Address: i.address, Ports: map[string]uint32{}, Labels: i.labels, Weight: i.weight, Locality: i.locality}
		for _, p := range group {
			we.Ports[p.label] = i.portNumber(p.portKey)
		}
		id := we.Address + fmt.Sprint(we.Ports)
		if seen[id] {
			b.w.addInstance(i, "another has the same address and port")
			continue
		}
		seen[id] = true
		serving, all = append(serving, i), append(all, we)
	}
	return serving, all
}

func (b *builder) workloadLabels(datacenter string) map[string]string {
	name := b.f.id.object()
	labels := map[string]string{serviceLabel: names.Fit(name, name, names.MaxLabel)}
	if datacenter != "" {
		labels[datacenterLabel] = datacenter
	}
	return labels
}

// workloadEntries makes one object for each endpoint of the service.
func (b *builder) workloadEntries(instances []*instance) {
	aliased := map[string]string{} // what the aliases of a datacenter select by; without aliases nothing does
	for _, dc := range b.f.datacenters {
		aliased[dc.name] = dc.id.datacenter
	}
	again := map[string]int{}
	serving, endpoints := b.endpoints(instances, b.shape[0])
	for n, we := range endpoints {
		i := serving[n]
		labels := maps.Clone(i.labels)
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, b.workloadLabels(aliased[i.datacenter]))
		we.Labels = labels
		// Nothing but the order tells two apart whose ids are the same, which an agent prevents and the catalog does not.
		id := hash(i.datacenter, i.node, i.id)
		again[id]++
		suffix := "." + names.Hashed(labelOf(i.node), fmt.Sprint(id, again[id]), 40) + ".instance"
		name := b.f.id.object()
		b.add(resource.WorkloadEntry, names.Fit(name, name, names.MaxName-len(suffix))+suffix, b.w.place+" "+i.String(), we)
	}
}

func (b *builder) add(kind resource.Kind, name, place string, spec proto.Message) {
	r, err := resource.New(resource.Meta{
		Key:    resource.Key{Kind: kind, Namespace: b.m.o.Namespace, Name: name},
		Origin: resource.Origin{Place: valid(place)},
	}, spec)
	if err != nil {
		b.err = fmt.Errorf("%s: %w", b.w.place, err)
		return
	}
	b.rs = append(b.rs, r)
}

// warner collects warnings about what is at a place: one a reason, which names some of the instances that it is about.
type warner struct {
	place   string
	general []string
	about   map[string][]string // instances by reason
}

// named is how many instances a warning names.
const named = 3

func (w *warner) add(what string) { w.general = append(w.general, w.place+": "+what) }

func (w *warner) addInstance(i *instance, reason string) {
	if w.about == nil {
		w.about = map[string][]string{}
	}
	w.about[reason] = append(w.about[reason], i.String())
}

// list returns the warnings in order.
func (w *warner) list() []string {
	all := w.general
	for reason, who := range w.about {
		slices.Sort(who)
		who, more := slices.Compact(who), ""
		if len(who) > named {
			more = fmt.Sprintf(" and %d more", len(who)-named)
			who = who[:named]
		}
		all = append(all, valid(w.place+": "+reason+" ("+strings.Join(who, ", ")+more+")"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
