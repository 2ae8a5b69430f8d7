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

// The ServiceEntries of a service select its WorkloadEntries by these labels.
const (
	serviceLabel    = "tributary/consul-service"
	datacenterLabel = "tributary/consul-datacenter"
)

// mapFamily makes the objects of a family.
func (m *Mapper) mapFamily(family *family, warner *warner) ([]*resource.Resource, error) {
	instances := family.instances()
	for _, i := range instances {
		for _, warning := range i.warnings {
			warner.addInstance(i, warning)
		}
	}
	if !names.IsHost(family.host) {
		return nil, fmt.Errorf("%s: %q is no host (hostTemplate)", warner.place, family.host)
	}
	_, wasMapped := m.hosts[family.service.Name] // even if it had no objects
	shape := m.shapeOf(family.host, instances, m.shapes[family.host], warner)
	switch {
	case len(shape) > 0:
	case len(instances) > 0:
		warner.add("no instance has a port: there is nothing to call")
		return nil, nil
	case wasMapped:
		return nil, nil // a sidecar, or without ports
	default:
		return nil, fmt.Errorf("%s: it has no instance, and no ports are remembered", warner.place)
	}
	m.shapes[family.host] = shape

	builder := builder{
		mapper:    m,
		family:    family,
		warner:    warner,
		shape:     shape,
		workloads: m.options.Endpoints == endpointsWorkloads,
	}
	if builder.workloads && len(shape) > 1 {
		// istiod merges ServiceEntries of one host only if they select the same workloads, which then have every port.
		warner.add("instances have different ports: endpoints are inline, and not WorkloadEntries")
		builder.workloads = false
	}
	builder.hostless = slices.ContainsFunc(slices.Concat(shape...), func(p servicePort) bool {
		return !p.protocol.IsHTTP() && !p.protocol.IsTLS()
	})
	hosts := []string{family.host}
	alias := family.datacenters[0].alias
	// A ServiceEntry with both hosts has the endpoints once. Istio refuses two hosts on a port if the protocol does not
	// carry the host.
	shared := len(family.datacenters) == 1 && names.IsHost(alias) && !builder.hostless
	if shared {
		hosts = append(hosts, alias)
	}
	builder.serviceEntries(family.identity.object(), hosts, instances, "")
	for _, datacenter := range family.datacenters {
		switch {
		case datacenter.alias == "" || shared:
		case !names.IsHost(datacenter.alias):
			warner.add(fmt.Sprintf("%q is no host: the service has no alias", datacenter.alias))
		default:
			builder.serviceEntries(datacenter.identity.object(), []string{datacenter.alias}, datacenter.instances,
				datacenter.identity.datacenter)
		}
	}
	if builder.workloads {
		builder.workloadEntries(instances)
	}
	return builder.objects, builder.err
}

// builder makes the objects of a family.
type builder struct {
	*warner

	mapper    *Mapper
	family    *family
	shape     shape
	hostless  bool // some protocol does not carry the host of a request
	workloads bool // endpoints are WorkloadEntries

	objects []*resource.Resource
	err     error
}

// serviceEntries makes the ServiceEntries of hosts. With a datacenter, hosts has the alias of that datacenter.
func (b *builder) serviceEntries(name string, hosts []string, instances []*instance, datacenter string) {
	options := b.mapper.options
	addresses, warnings := registry.Address(b.mapper.vips, options.VIPs, hosts[0], b.place, b.hostless)
	b.general = append(b.general, warnings...)
	// istiod merges the ServiceEntries of a host only if they have one resolution. DNS accepts IP addresses.
	var hasNames, hasPorts, someServed bool
	for _, i := range instances {
		if len(i.ports) > 0 {
			hasPorts = true
			hasNames = hasNames || i.address != "" && registry.Named(i.address)
		}
		someServed = someServed || i.reason == ""
	}
	for index, group := range b.shape {
		present := slices.ContainsFunc(instances, func(i *instance) bool { return i.portNumber(group[0].portKey) > 0 })
		if hasPorts && !present {
			continue // other datacenters have the port
		}
		entry := &networking.ServiceEntry{
			Hosts: hosts, Addresses: addresses,
			Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC,
		}
		for _, p := range group {
			entry.Ports = append(entry.Ports, &networking.ServicePort{
				Number: p.number, Name: p.label, Protocol: string(p.protocol),
			})
		}
		_, endpoints := b.endpoints(instances, group)
		switch {
		case hasNames && len(endpoints) > 0:
			entry.Resolution = networking.ServiceEntry_DNS
		case hasNames && someServed:
			// With DNS and without endpoints the host itself would be one; with STATIC it would not be merged.
			b.add("port " + group[0].label + " has no healthy instance, and is left out")
			continue
		}
		if b.workloads {
			entry.WorkloadSelector = &networking.WorkloadSelector{Labels: b.workloadLabels(datacenter)}
		} else {
			slices.SortStableFunc(endpoints, compareAddresses)
			entry.Endpoints = endpoints
		}
		object := name
		if index > 0 {
			object += "." + group[0].label + ".port"
		}
		b.addObject(resource.ServiceEntry, names.Fit(object, object, names.MaxName), b.place, entry)
	}
}

func compareAddresses(a, b *networking.WorkloadEntry) int {
	return strings.Compare(a.Address, b.Address)
}

func (i *instance) portNumber(key portKey) uint32 {
	for _, p := range i.ports {
		if p.portKey == key {
			return p.number
		}
	}
	return 0
}

// endpoints returns the instances that serve the ports of a group, and their endpoints: each address with its ports
// once.
func (b *builder) endpoints(
	instances []*instance, group []servicePort,
) (serving []*instance, endpoints []*networking.WorkloadEntry) {
	seen := map[string]bool{}
	for _, i := range instances {
		if i.reason != "" || i.portNumber(group[0].portKey) == 0 {
			continue
		}
		endpoint := &networking.WorkloadEntry{
			Address: i.address, Ports: map[string]uint32{}, Labels: i.labels, Weight: i.weight, Locality: i.locality,
		}
		for _, p := range group {
			endpoint.Ports[p.label] = i.portNumber(p.portKey)
		}
		id := endpoint.Address + fmt.Sprint(endpoint.Ports)
		if seen[id] {
			b.addInstance(i, "another has the same address and port")
			continue
		}
		seen[id] = true
		serving = append(serving, i)
		endpoints = append(endpoints, endpoint)
	}
	return serving, endpoints
}

func (b *builder) workloadLabels(datacenter string) map[string]string {
	name := b.family.identity.object()
	labels := map[string]string{serviceLabel: names.Fit(name, name, names.MaxLabel)}
	if datacenter != "" {
		labels[datacenterLabel] = datacenter
	}
	return labels
}

// workloadEntries makes an object for each endpoint of the service.
func (b *builder) workloadEntries(instances []*instance) {
	aliased := map[string]string{} // labels by name of the datacenters that have an alias
	for _, d := range b.family.datacenters {
		aliased[d.name] = d.identity.datacenter
	}
	duplicates := map[string]int{}
	serving, endpoints := b.endpoints(instances, b.shape[0])
	for n, endpoint := range endpoints {
		i := serving[n]
		endpoint.Labels = map[string]string{}
		maps.Copy(endpoint.Labels, i.labels)
		maps.Copy(endpoint.Labels, b.workloadLabels(aliased[i.datacenter]))
		// Only the order distinguishes instances with the same ID, which an agent prevents and the catalog does not.
		id := hash(i.datacenter, i.node, i.id)
		duplicates[id]++
		suffix := "." + names.Hashed(labelOf(i.node), fmt.Sprint(id, duplicates[id]), 40) + ".instance"
		name := b.family.identity.object()
		name = names.Fit(name, name, names.MaxName-len(suffix)) + suffix
		b.addObject(resource.WorkloadEntry, name, b.place+" "+i.String(), endpoint)
	}
}

func (b *builder) addObject(kind resource.Kind, name, place string, spec proto.Message) {
	object, err := resource.New(resource.Meta{
		Key:    resource.Key{Kind: kind, Namespace: b.mapper.options.Namespace, Name: name},
		Origin: resource.Origin{Place: valid(place)},
	}, spec)
	if err != nil {
		b.err = fmt.Errorf("%s: %w", b.place, err)
		return
	}
	b.objects = append(b.objects, object)
}

// warner collects the warnings about a place: one for each reason, with the names of some instances.
type warner struct {
	place     string
	general   []string
	instances map[string][]string // by reason
}

// maxNamed is how many instances a warning names.
const maxNamed = 3

func (w *warner) add(text string) { w.general = append(w.general, w.place+": "+text) }

func (w *warner) addInstance(i *instance, reason string) {
	if w.instances == nil {
		w.instances = map[string][]string{}
	}
	w.instances[reason] = append(w.instances[reason], i.String())
}

// list returns the warnings in order.
func (w *warner) list() []string {
	warnings := w.general
	for reason, instances := range w.instances {
		slices.Sort(instances)
		instances := slices.Compact(instances)
		rest := ""
		if len(instances) > maxNamed {
			rest = fmt.Sprintf(" and %d more", len(instances)-maxNamed)
			instances = instances[:maxNamed]
		}
		warnings = append(warnings, valid(w.place+": "+reason+" ("+strings.Join(instances, ", ")+rest+")"))
	}
	return slices.Compact(slices.Sorted(slices.Values(warnings)))
}
