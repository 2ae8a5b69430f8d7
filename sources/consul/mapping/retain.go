package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/names"
	"tributary/resource"
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
		spec, err := object.Spec()
		if err != nil {
			return nil, nil, err
		}
		isTaken := slices.ContainsFunc(objects, func(o *resource.Resource) bool { return o.Key() == object.Key() })
		switch spec := spec.(type) {
		case *networking.WorkloadEntry:
			if addresses.contain(spec) {
				continue
			}
		case *networking.ServiceEntry:
			spec = proto.CloneOf(spec)
			spec.Endpoints = slices.DeleteFunc(spec.Endpoints, addresses.contain)
			if object, err = resource.New(object.Meta(), spec); err != nil {
				return nil, nil, err
			}
			isMerged, err := mergeEndpoints(retained[:len(objects)], object.Key(), spec)
			if err != nil {
				return nil, nil, err
			}
			if isTaken && !isMerged { // the new object of that name has other ports
				if object, err = renamed(object, spec); err != nil {
					return nil, nil, err
				}
			}
			isTaken = isMerged
		}
		unlisted = append(unlisted, object)
		if !isTaken {
			retained = append(retained, object)
		}
	}
	return retained, unlisted, nil
}

// renamed names a ServiceEntry of further ports by one of them.
func renamed(object *resource.Resource, entry *networking.ServiceEntry) (*resource.Resource, error) {
	meta := object.Meta()
	name := meta.Key.Name + "." + entry.Ports[0].Name + ".port"
	meta.Key.Name = names.Fit(name, name, names.MaxName)
	return resource.New(meta, entry)
}

// mergeEndpoints adds the endpoints of an earlier ServiceEntry to the objects with its ports and its key or a host of
// it. It reports whether there are any.
func mergeEndpoints(
	objects []*resource.Resource, key resource.Key, before *networking.ServiceEntry,
) (isMerged bool, err error) {
	for i, object := range objects {
		spec, err := object.Spec()
		entry, isServiceEntry := spec.(*networking.ServiceEntry)
		if err != nil || !isServiceEntry {
			continue
		}
		hasPort := func(port *networking.ServicePort) bool {
			return slices.ContainsFunc(entry.Ports, func(p *networking.ServicePort) bool { return p.Name == port.Name })
		}
		hasHost := func(host string) bool { return slices.Contains(entry.Hosts, host) }
		if len(before.Ports) > 0 && !slices.ContainsFunc(before.Ports, hasPort) ||
			object.Key() != key && !slices.ContainsFunc(before.Hosts, hasHost) {
			continue
		}
		isMerged = true
		present := addresses{}
		for _, endpoint := range entry.Endpoints {
			for _, port := range endpoint.Ports {
				present[address{endpoint.Address, int(port)}] = true
			}
		}
		lost := slices.DeleteFunc(slices.Clone(before.Endpoints), present.contain)
		if len(lost) == 0 {
			continue
		}
		entry = proto.CloneOf(entry)
		entry.Endpoints = append(entry.Endpoints, lost...)
		if before.Resolution == networking.ServiceEntry_DNS {
			entry.Resolution = before.Resolution // DNS accepts IP addresses
		}
		slices.SortStableFunc(entry.Endpoints, compareAddresses)
		if objects[i], err = resource.New(object.Meta(), entry); err != nil {
			return false, err
		}
	}
	return isMerged, nil
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
