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

// Unlisted returns the objects of an earlier run with the endpoints that have no instance. An endpoint that has an
// instance is as in the new objects, healthy or not.
func Unlisted(before []*resource.Resource, scopes []Service) (unlisted []*resource.Resource, err error) {
	addresses := addressesOf(scopes)
	for _, object := range before {
		spec, err := object.Spec()
		if err != nil {
			return nil, err
		}
		switch spec := spec.(type) {
		case *networking.WorkloadEntry:
			if addresses.contain(spec) {
				continue
			}
		case *networking.ServiceEntry:
			if slices.ContainsFunc(spec.Endpoints, addresses.contain) {
				entry := proto.CloneOf(spec)
				entry.Endpoints = slices.DeleteFunc(entry.Endpoints, addresses.contain)
				if object, err = resource.New(object.Meta(), entry); err != nil {
					return nil, err
				}
			}
		}
		unlisted = append(unlisted, object)
	}
	return unlisted, nil
}

// Retain returns the objects of a service, and adds the unlisted objects and endpoints of an earlier run: Consul may
// hide those, may be unread in part, or may have lost them while its agents register again.
func Retain(objects, unlisted []*resource.Resource) ([]*resource.Resource, error) {
	retained := slices.Clone(objects)
	for _, object := range unlisted {
		spec, err := object.Spec()
		if err != nil {
			return nil, err
		}
		before, isServiceEntry := spec.(*networking.ServiceEntry)
		merged := false
		for i := range objects {
			if !isServiceEntry || objects[i].Key().Kind != resource.ServiceEntry {
				continue
			}
			spec, err := retained[i].Spec()
			if err != nil {
				return nil, err
			}
			entry := spec.(*networking.ServiceEntry)
			if sharePort(entry, before) && (objects[i].Key() == object.Key() || shareHost(entry, before)) {
				merged = true
				if retained[i], err = addEndpoints(retained[i], entry, before); err != nil {
					return nil, err
				}
			}
		}
		isTaken := slices.ContainsFunc(objects, func(o *resource.Resource) bool { return o.Key() == object.Key() })
		if isTaken && isServiceEntry && !merged { // by another port
			meta := object.Meta()
			name := meta.Key.Name + "." + before.Ports[0].Name + ".port"
			meta.Key.Name = names.Fit(name, name, names.MaxName)
			if object, err = resource.New(meta, before); err != nil {
				return nil, err
			}
			isTaken = false
		}
		if !isTaken && !merged {
			retained = append(retained, object)
		}
	}
	return retained, nil
}

// sharePort reports whether an endpoint of before has a port of entry.
func sharePort(entry, before *networking.ServiceEntry) bool {
	return len(before.Ports) == 0 || slices.ContainsFunc(before.Ports, func(port *networking.ServicePort) bool {
		return slices.ContainsFunc(entry.Ports, func(p *networking.ServicePort) bool { return p.Name == port.Name })
	})
}

func shareHost(entry, before *networking.ServiceEntry) bool {
	return slices.ContainsFunc(before.Hosts, func(host string) bool { return slices.Contains(entry.Hosts, host) })
}

// addEndpoints adds the endpoints of an earlier ServiceEntry.
func addEndpoints(object *resource.Resource, entry, before *networking.ServiceEntry) (*resource.Resource, error) {
	key := func(endpoint *networking.WorkloadEntry) string { return fmt.Sprint(endpoint.Address, endpoint.Ports) }
	present := make(map[string]bool)
	for _, endpoint := range entry.Endpoints {
		present[key(endpoint)] = true
	}
	lost := slices.DeleteFunc(slices.Clone(before.Endpoints), func(endpoint *networking.WorkloadEntry) bool {
		return present[key(endpoint)]
	})
	if len(lost) == 0 {
		return object, nil
	}
	entry = proto.CloneOf(entry)
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
