package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources"
)

// Lost returns how many endpoints of the objects of an earlier run have no instance.
func Lost(before []*resource.Resource, scopes []Service) int {
	addresses := addressesOf(scopes)
	lost := make(map[string]bool)
	for _, object := range before {
		var endpoints []*networking.WorkloadEntry
		spec, _ := object.Spec() // an object that cannot be decoded cannot be retained either
		switch spec := spec.(type) {
		case *networking.WorkloadEntry:
			endpoints = append(endpoints, spec)
		case *networking.ServiceEntry:
			endpoints = spec.Endpoints
		}
		for _, endpoint := range endpoints {
			if !addresses.contain(endpoint) {
				lost[fmt.Sprint(endpoint.Address, endpoint.Ports)] = true // an alias has it, too
			}
		}
	}
	return len(lost)
}

// Retain returns the objects of a service, and adds the objects and endpoints of an earlier run that have no instance:
// Consul may hide those, its datacenter may be away, or it may have lost them while its agents register again. An
// endpoint that has an instance is as in the new objects, healthy or not. unlisted has the others, to retain from now.
func Retain(
	objects, before []*resource.Resource, scopes []Service,
) (retained, unlisted []*resource.Resource, err error) {
	addresses := addressesOf(scopes)
	retained = slices.Clone(objects)
	for _, object := range before {
		i := slices.IndexFunc(retained, func(r *resource.Resource) bool { return r.Key() == object.Key() })
		spec, err := object.Spec()
		if err != nil {
			return nil, nil, err
		}
		switch spec := spec.(type) {
		case *networking.WorkloadEntry:
			if addresses.contain(spec) {
				continue
			}
		case *networking.ServiceEntry:
			entry := proto.CloneOf(spec)
			entry.Endpoints = slices.DeleteFunc(entry.Endpoints, addresses.contain)
			if i < 0 && len(entry.Endpoints) == 0 && len(spec.Endpoints) > 0 {
				continue // new objects have its endpoints
			}
			if object, err = resource.New(object.Meta(), entry); err != nil {
				return nil, nil, err
			}
			if i >= 0 {
				if retained[i], err = addEndpoints(retained[i], entry); err != nil {
					return nil, nil, err
				}
			}
		}
		unlisted = append(unlisted, object)
		if i < 0 {
			retained = append(retained, object)
		}
	}
	return retained, unlisted, nil
}

// addEndpoints adds the endpoints of an earlier ServiceEntry to its successor.
func addEndpoints(object *resource.Resource, before *networking.ServiceEntry) (*resource.Resource, error) {
	spec, err := object.Spec()
	if err != nil || len(before.Endpoints) == 0 {
		return object, err
	}
	entry := proto.CloneOf(spec.(*networking.ServiceEntry))
	entry.Endpoints = append(entry.Endpoints, before.Endpoints...)
	if before.Resolution == networking.ServiceEntry_DNS {
		entry.Resolution = before.Resolution // DNS accepts IP addresses
	}
	slices.SortStableFunc(entry.Endpoints, compareAddresses)
	return resource.New(object.Meta(), entry)
}

// PartOfService maps the scopes of a service that were read, while others are unread, and retains the endpoints of an
// earlier run. It returns false, and remembers nothing, if the objects differ from the earlier ones by more than
// endpoints: then it is unknown which hosts and ports belong to the unread scopes.
func (m *Mapper) PartOfService(name string, scopes []Service, before []*resource.Resource) (
	content sources.Content, unlisted []*resource.Resource, ok bool,
) {
	part := &Mapper{
		options: m.options, vips: m.vips, shapes: map[string]shape{},
		hosts: map[string][]string{name: m.hosts[name]}, claims: map[string]claim{},
	}
	if claim, claimed := m.claims[name]; claimed {
		part.claims[name] = claim
	}
	for _, host := range slices.AppendSeq(slices.Clone(m.hosts[name]), maps.Keys(shapesOf(before))) {
		if shape, remembered := m.shapes[host]; remembered {
			part.shapes[host] = shape
		}
	}
	content = part.Service(name, scopes)
	if len(content.Rejects) > 0 || !haveSamePorts(content.Resources, before) {
		return sources.Content{}, nil, false
	}
	var err error
	content.Resources, unlisted, err = Retain(content.Resources, before, scopes)
	if err != nil {
		return sources.Content{}, nil, false
	}
	maps.Copy(m.shapes, part.shapes)
	m.hosts[name] = part.hosts[name]
	return content, unlisted, true
}

// haveSamePorts reports whether the objects of a service have the same ServiceEntries as before, apart from endpoints,
// and whether each earlier endpoint has all ports.
func haveSamePorts(objects, before []*resource.Resource) bool {
	entries, ports, isComplete := entriesOf(objects)
	earlierEntries, earlierPorts, earlierIsComplete := entriesOf(before)
	return isComplete && earlierIsComplete && ports == earlierPorts &&
		maps.EqualFunc(entries, earlierEntries, func(a, b *networking.ServiceEntry) bool { return proto.Equal(a, b) })
}

// entriesOf returns the ServiceEntries among objects, without endpoints and their resolution, the number of their
// ports, and whether each endpoint has all ports.
func entriesOf(objects []*resource.Resource) (
	entries map[resource.Key]*networking.ServiceEntry, ports int, isComplete bool,
) {
	entries = make(map[resource.Key]*networking.ServiceEntry)
	var endpoints []*networking.WorkloadEntry
	for _, object := range objects {
		spec, err := object.Spec()
		if err != nil {
			return nil, 0, false
		}
		switch spec := spec.(type) {
		case *networking.WorkloadEntry:
			endpoints = append(endpoints, spec)
		case *networking.ServiceEntry:
			entry := proto.CloneOf(spec)
			endpoints = append(endpoints, entry.Endpoints...)
			entry.Endpoints, entry.Resolution = nil, networking.ServiceEntry_NONE
			entries[object.Key()] = entry
			ports = max(ports, len(entry.Ports))
		}
	}
	return entries, ports, !slices.ContainsFunc(endpoints, func(e *networking.WorkloadEntry) bool {
		return len(e.Ports) != ports
	})
}

// address is a possible address and port of an instance.
type address struct {
	host string
	port int
}

type addresses map[address]bool

func addressesOf(scopes []Service) addresses {
	addresses := addresses{}
	for _, s := range scopes {
		for _, entry := range s.Entries {
			ports := []int{entry.Service.Port}
			hosts := []string{cmp.Or(entry.Service.Address, entry.Node.Address)}
			for _, p := range entry.Service.Ports {
				ports = append(ports, p.Port)
			}
			for _, tagged := range entry.Service.TaggedAddresses {
				ports = append(ports, tagged.Port)
				hosts = append(hosts, tagged.Address)
			}
			for _, host := range slices.AppendSeq(hosts, maps.Values(entry.Node.TaggedAddresses)) {
				for _, port := range ports {
					addresses[address{parseAddress(host), port}] = true
				}
			}
		}
	}
	return addresses
}

func (set addresses) contain(endpoint *networking.WorkloadEntry) bool {
	for _, port := range endpoint.Ports {
		if set[address{endpoint.Address, int(port)}] {
			return true
		}
	}
	return false
}
