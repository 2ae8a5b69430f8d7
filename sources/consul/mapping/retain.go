package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

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
// Consul may hide those, or may have lost them while its agents register again. An endpoint that has an instance is as
// in the new objects, healthy or not.
func Retain(objects, before []*resource.Resource, scopes []Service) ([]*resource.Resource, error) {
	addresses := addressesOf(scopes)
	retained := slices.Clone(objects)
	for _, object := range before {
		i := slices.IndexFunc(retained, func(r *resource.Resource) bool { return r.Key() == object.Key() })
		spec, err := object.Spec()
		if err != nil {
			return nil, err
		}
		switch spec := spec.(type) {
		case *networking.WorkloadEntry:
			if i < 0 && !addresses.contain(spec) {
				retained = append(retained, object)
			}
		case *networking.ServiceEntry:
			if i < 0 {
				retained = append(retained, object)
			} else if retained[i], err = retainEndpoints(retained[i], spec, addresses); err != nil {
				return nil, err
			}
		}
	}
	return retained, nil
}

// retainEndpoints adds the endpoints of an earlier ServiceEntry that have no instance.
func retainEndpoints(
	object *resource.Resource, before *networking.ServiceEntry, addresses addresses,
) (*resource.Resource, error) {
	spec, err := object.Spec()
	if err != nil {
		return nil, err
	}
	lost := slices.DeleteFunc(slices.Clone(before.Endpoints), addresses.contain)
	if len(lost) == 0 {
		return object, nil
	}
	entry := proto.CloneOf(spec.(*networking.ServiceEntry))
	entry.Endpoints = append(entry.Endpoints, lost...)
	if before.Resolution == networking.ServiceEntry_DNS {
		entry.Resolution = before.Resolution // DNS accepts IP addresses
	}
	slices.SortStableFunc(entry.Endpoints, compareAddresses)
	return resource.New(object.Meta(), entry)
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
