package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Lost returns how many endpoints of what was made of a service, in an earlier run, have no instance in.
func Lost(before []*resource.Resource, in []Service) int {
	there, lost := placesOf(in), make(map[string]bool)
	for _, r := range before {
		var all []*networking.WorkloadEntry
		spec, _ := r.Spec() // what cannot be decoded cannot be kept, either
		switch was := spec.(type) {
		case *networking.WorkloadEntry:
			all = append(all, was)
		case *networking.ServiceEntry:
			all = was.Endpoints
		}
		for _, e := range all {
			if !there.has(e) {
				lost[fmt.Sprint(e.Address, e.Ports)] = true // an alias has it again
			}
		}
	}
	return len(lost)
}

// Retain returns what was made of a service with all that an earlier run had made of it and whose instances are not there:
// objects, and endpoints of ServiceEntries. It is for what may be hidden from us, or a Consul that lost its data, while its agents
// are still telling it anew what they have. What is there, healthy or not, is as now has it.
func Retain(now, before []*resource.Resource, in []Service) ([]*resource.Resource, error) {
	there := placesOf(in)
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
			} else if all[i], err = retainEndpoints(all[i], was, there); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// retainEndpoints returns r with those endpoints of was whose instances are not there.
func retainEndpoints(r *resource.Resource, was *networking.ServiceEntry, there places) (*resource.Resource, error) {
	spec, err := r.Spec()
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(slices.Clone(was.Endpoints), there.has)
	if len(gone) == 0 {
		return r, nil
	}
	se := proto.CloneOf(spec.(*networking.ServiceEntry))
	se.Endpoints = append(se.Endpoints, gone...)
	if was.Resolution == networking.ServiceEntry_DNS {
		se.Resolution = was.Resolution // DNS takes IP addresses, too
	}
	slices.SortStableFunc(se.Endpoints, func(x, y *networking.WorkloadEntry) int { return strings.Compare(x.Address, y.Address) })
	return resource.New(r.Meta(), se)
}

// place is an address and port at which an instance may be.
type place struct {
	address string
	port    int
}

type places map[place]bool

func placesOf(in []Service) places {
	all := places{}
	for _, s := range in {
		for _, e := range s.Entries {
			ports, addresses := []int{e.Service.Port}, []string{cmp.Or(e.Service.Address, e.Node.Address)}
			for _, p := range e.Service.Ports {
				ports = append(ports, p.Port)
			}
			for _, tagged := range e.Service.TaggedAddresses {
				ports, addresses = append(ports, tagged.Port), append(addresses, tagged.Address)
			}
			for _, address := range slices.AppendSeq(addresses, maps.Values(e.Node.TaggedAddresses)) {
				for _, port := range ports {
					all[place{parseAddress(address), port}] = true
				}
			}
		}
	}
	return all
}

func (p places) has(e *networking.WorkloadEntry) bool {
	for _, port := range e.Ports {
		if p[place{e.Address, int(port)}] {
			return true
		}
	}
	return false
}
