// Package mapping turns Dubbo's providers into Istio's ServiceEntries. It is pure: no I/O, no clock, and, apart from
// virtual addresses, no memory. Its objects are valid whatever is in a registry, and, apart from virtual addresses, do
// not depend on the order of registrations.
package mapping

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
	"tributary/resource"
	"tributary/sources/dubbo/provider"
	"tributary/sources/registry"
)

// Mapper maps services. It is safe for concurrent use.
type Mapper struct {
	registry.Naming[ID]

	o     Options
	place string // precedes the name of an interface in messages
	vips  registry.VIPs
}

var _ registry.Mapping[ID] = (*Mapper)(nil)

// New returns a mapper. place precedes the name of an interface in messages. Without vips no service gets a virtual
// address. An error begins with the key at fault.
func New(options Options, place string, vips registry.VIPs) (*Mapper, error) {
	options = options.WithDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	naming := registry.Naming[ID]{
		Template: options.HostTemplate, AnyHost: options.Hosts == registry.AnyHosts, Joint: "-", Parts: ID.parts,
		Spare: 1 + names.MaxLabel, // with room for a protocol
	}
	return &Mapper{naming, options, place, vips}, nil
}

// ID is one protocol of a service, see Mapper.ServiceOf.
type ID struct {
	Service  provider.ID
	Protocol string
}

// Compare orders IDs.
func (id ID) Compare(o ID) int {
	return cmp.Or(id.Service.Compare(o.Service), cmp.Compare(id.Protocol, o.Protocol))
}

// Group is the interface.
func (id ID) Group() string { return id.Service.Interface }

func (id ID) String() string { return id.Service.String() }

func (id ID) parts() []registry.Part {
	return []registry.Part{
		{Placeholder: "{interface}", Text: id.Service.Interface, Dots: true},
		{Placeholder: "{group}", Text: names.Clean(id.Service.Group)},
		{Placeholder: "{version}", Text: names.Clean(id.Service.Version)},
	}
}

// mainProtocol is the protocol of the object with the bare name.
const mainProtocol = "dubbo"

// objectOf returns the name of the object of a protocol. n.Object has no dot, so that the names are distinct.
func objectOf(name registry.Name, protocol string) string {
	if protocol == mainProtocol {
		return name.Object
	}
	return name.Object + "." + names.Label(protocol, protocol)
}

// ServiceOf returns the service of a provider's ID: the ID without a group or version that is not part of the host.
func (m *Mapper) ServiceOf(id provider.ID) provider.ID {
	if !strings.Contains(m.o.HostTemplate, "{group}") {
		id.Group = ""
	}
	if !strings.Contains(m.o.HostTemplate, "{version}") {
		id.Version = ""
	}
	return id
}

// Host implements registry.Mapping.
func (m *Mapper) Host(id ID) ID { return ID{Service: id.Service} }

// Place implements registry.Mapping.
func (m *Mapper) Place(id ID) string { return m.place + id.Service.Interface }

// ServicePort implements registry.Mapping. Here each protocol has a port instead.
func (m *Mapper) ServicePort(ID) int { return 0 }

// Endpoint returns the endpoint of a provider. ok is false if it has no weight, is switched off, or cannot be called;
// only for the last problem says why.
func (m *Mapper) Endpoint(instance provider.Provider) (endpoint registry.Endpoint, ok bool, problem string) {
	address, err := names.Address(instance.Host)
	if err != nil {
		return registry.Endpoint{}, false, err.Error()
	}
	endpoint = registry.Endpoint{
		Address: address, Port: uint32(instance.Port), Weight: instance.Weight(),
		Labels: m.labelsOf(instance), Locality: localityOf(instance), ServiceAccount: m.serviceAccountOf(instance),
		Instance: Application(instance.Application), Levels: uint8(instance.Levels),
	}
	return endpoint, endpoint.Weight > 0, ""
}

// Application returns the name of an application as it is in endpoints.
func Application(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// The annotations with the Dubbo service of a ServiceEntry and the applications of its endpoints. Not every name can be
// a label.
const (
	annotationInterface    = "tributary/dubbo-interface"
	annotationGroup        = "tributary/dubbo-group"
	annotationVersion      = "tributary/dubbo-version"
	annotationProtocol     = "tributary/dubbo-protocol"
	annotationApplications = "tributary/dubbo-applications"
)

// Entries implements registry.Mapping. It returns a ServiceEntry for each protocol, all with the same host, and a
// DestinationRule if one is wanted. One ServiceEntry would not do: for instances without a protocol, Istio would use
// the service's port.
func (m *Mapper) Entries(host []registry.Service[ID]) (resources []*resource.Resource, warnings []string, err error) {
	id, name, place := host[0].ID.Service, host[0].Name, m.Place(host[0].ID)
	if err := m.CheckHost(place, host[0].ID, name.Host); err != nil {
		return nil, nil, err
	}
	// istiod merges the ServiceEntries of a host only if these have one resolution. DNS takes IP addresses too.
	var protocols []string
	endpoints, hasNames := map[string][]registry.Endpoint{}, false
	for _, service := range host {
		protocols = append(protocols, service.ID.Protocol)
		endpoints[service.ID.Protocol] = service.Endpoints
		hasNames = hasNames ||
			slices.ContainsFunc(service.Endpoints, func(e registry.Endpoint) bool { return registry.Named(e.Address) })
	}
	ports, unnamed := m.ports(protocols)
	if len(unnamed) > 0 {
		first := unnamed[:min(3, len(unnamed))]
		warnings = append(warnings, fmt.Sprintf("%s: %d protocols are left out, %s among them: a service has at most %d",
			place, len(unnamed), provider.Shorten(strings.Join(first, ", ")), maxProtocols))
	}
	hostless := slices.ContainsFunc(ports, func(p port) bool { return p.protocol == string(protocol.TCP) })
	addresses, warned := registry.Address(m.vips, m.o.VIPs, name.Host, place, hostless)
	warnings = append(warnings, warned...)
	for _, port := range ports {
		serviceEntry := registry.ServiceEntry(name.Host, port.number, port.name, port.protocol, endpoints[port.dubboName])
		serviceEntry.Addresses = addresses
		var applications []string
		for _, e := range endpoints[port.dubboName] {
			applications = append(applications, e.Instance)
		}
		if hasNames && len(serviceEntry.Endpoints) == 0 {
			// With DNS and no endpoints the host itself would be one; with STATIC istiod would not merge it.
			warnings = append(warnings, fmt.Sprintf("%s: protocol %s has no provider, while others are known by name: it is "+
				"left out", place,
				port.dubboName))
			continue
		}
		if hasNames {
			serviceEntry.Resolution = networking.ServiceEntry_DNS
		}
		object, err := resource.New(resource.Meta{
			Key: resource.Key{
				Kind: resource.ServiceEntry, Namespace: m.o.Namespace, Name: objectOf(name, port.dubboName),
			},
			Annotations: m.annotations(id, port.dubboName, applications, serviceEntry.Endpoints),
			Origin:      resource.Origin{Place: strings.ToValidUTF8(place, "?")},
		}, serviceEntry)
		if err != nil {
			return nil, nil, err
		}
		resources = append(resources, object)
	}
	rule, err := m.rule(host)
	if rule != nil {
		resources = append(resources, rule)
	}
	return resources, warnings, err
}

func (m *Mapper) annotations(id provider.ID, protocol string, applications []string,
	endpoints []*networking.WorkloadEntry,
) map[string]string {
	annotations := map[string]string{annotationInterface: id.Interface, annotationProtocol: protocol}
	for _, part := range []struct{ key, value, label, placeholder string }{
		{annotationGroup, id.Group, "group", "{group}"}, {annotationVersion, id.Version, "version", "{version}"},
	} {
		// An empty annotation says that the service has no group or version although endpoints have that label: see
		// Restore.
		labelled := func(e *networking.WorkloadEntry) bool { return e.Labels[part.label] != "" }
		if part.value != "" || strings.Contains(m.o.HostTemplate, part.placeholder) &&
			slices.ContainsFunc(endpoints, labelled) {
			annotations[part.key] = part.value
		}
	}
	if text := encodeRuns(applications); text != "" {
		annotations[annotationApplications] = text
	}
	return annotations
}

// Restore implements registry.Mapping. If another template merged groups or versions, the labels of endpoints tell them
// apart.
func (m *Mapper) Restore(published []*resource.Resource) []registry.Service[ID] {
	return registry.Restored(published, func(
		annotations map[string]string, service registry.Service[ID],
	) []registry.Service[ID] {
		for index, application := range decodeRuns(annotations[annotationApplications], len(service.Endpoints)) {
			service.Endpoints[index].Instance = application
			service.Endpoints[index].Levels = uint8(provider.OfInterfaces | provider.OfApplications) // one or both
		}
		if service.Port = (registry.Port{}); annotations[annotationProtocol] == "" {
			return nil
		}
		return service.Split(func(endpoint registry.Endpoint) ID {
			id := provider.ID{
				Interface: annotations[annotationInterface], Group: annotations[annotationGroup],
				Version: annotations[annotationVersion],
			}
			if _, group := annotations[annotationGroup]; !group {
				id.Group = endpoint.Labels["group"]
			}
			if _, version := annotations[annotationVersion]; !version {
				id.Version = endpoint.Labels["version"]
			}
			return ID{m.ServiceOf(id), annotations[annotationProtocol]}
		})
	}, annotationInterface)
}
