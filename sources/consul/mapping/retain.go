package mapping

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Lost returns how many endpoints of what was made of a service, in an earlier run, have no instance in.
func Lost(before []*resource.Resource, in []Service) int {
	there, lost := places(in), make(map[string]bool)
	count := func(e *networking.WorkloadEntry) {
		if !there.has(e) {
			lost[fmt.Sprint(e.Address, e.Ports)] = true // an alias has it again
		}
	}
	for _, r := range before {
		spec, err := r.Spec()
		if err != nil {
			continue // what cannot be decoded cannot be kept, either
		}
		switch was := spec.(type) {
		case *networking.WorkloadEntry:
			count(was)
		case *networking.ServiceEntry:
			for _, e := range was.Endpoints {
				count(e)
			}
		}
	}
	return len(lost)
}

// Retain returns what was made of a service with all that an earlier run had made of it and whose instances are not there:
// objects, and endpoints of ServiceEntries. It is for what may be hidden from us, or a Consul that lost its data, while its agents
// are still telling it anew what they have. What is there, healthy or not, is as now has it.
func Retain(now, before []*resource.Resource, in []Service) ([]*resource.Resource, error) {
	there := places(in)
	all := slices.Clone(now)
	for _, old := range before {
		i := slices.IndexFunc(all, func(r *resource.Resource) bool { return r.Key() == old.Key() })
		spec, err := old.Spec()
		if err != nil {
			return nil, err
		}
		switch was := spec.(type) {
		case *networking.WorkloadEntry:
			if i < 0 && !there.has(was) {
				all = append(all, old)
			}
		case *networking.ServiceEntry:
			if i < 0 {
				all = append(all, old)
				continue
			}
			if all[i], err = retainEndpoints(all[i], was, there); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// retainEndpoints returns r with those endpoints of was whose instances are not there.
func retainEndpoints(r *resource.Resource, was *networking.ServiceEntry, there placesOf) (*resource.Resource, error) {
	spec, err := r.Spec()
	if err != nil {
		return nil, err
	}
	se := proto.CloneOf(spec.(*networking.ServiceEntry))
	had := len(se.Endpoints)
	for _, e := range was.Endpoints {
		if !there.has(e) {
			se.Endpoints = append(se.Endpoints, e)
		}
	}
	if len(se.Endpoints) == had {
		return r, nil
	}
	if was.Resolution == networking.ServiceEntry_DNS {
		se.Resolution = was.Resolution // DNS takes IP addresses, too
	}
	slices.SortStableFunc(se.Endpoints, func(x, y *networking.WorkloadEntry) int { return strings.Compare(x.Address, y.Address) })
	return resource.New(r.Meta(), se)
}

// placesOf are the addresses, with their ports, at which instances may be.
type placesOf map[string]bool

func placeOf(address string, port int) string { return fmt.Sprint(address, " ", port) }

func places(in []Service) placesOf {
	all := placesOf{}
	for _, s := range in {
		for _, e := range s.Entries {
			ports := []int{e.Service.Port}
			for _, p := range e.Service.Ports {
				ports = append(ports, p.Port)
			}
			for _, tagged := range e.Service.TaggedAddresses {
				ports = append(ports, tagged.Port)
			}
			for _, said := range addressesOf(e) {
				address, _ := parseAddress(said) // as endpoints have it
				for _, port := range ports {
					all[placeOf(address, port)] = true
				}
			}
		}
	}
	return all
}

// addressesOf are all of which one may be that of the endpoint.
func addressesOf(e *api.ServiceEntry) []string {
	all := []string{e.Service.Address, e.Node.Address}
	if e.Service.Address != "" {
		all = all[:1] // then that of the node is nobody's endpoint
	}
	for _, tagged := range e.Service.TaggedAddresses {
		all = append(all, tagged.Address)
	}
	return slices.AppendSeq(all, maps.Values(e.Node.TaggedAddresses))
}

func (p placesOf) has(e *networking.WorkloadEntry) bool {
	for _, port := range e.Ports {
		if p[placeOf(e.Address, int(port))] {
			return true
		}
	}
	return false
}
