package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// union returns desired with those endpoints of was that it lacks, behind its own: what is new is served, and what may have
// been lost by mistake is not lost. It returns nil if both cannot stand in one ServiceEntry.
func union(desired, was *resource.Resource) *resource.Resource {
	is, ok := entryOf(desired)
	if !ok {
		return nil
	}
	old, ok := entryOf(was)
	if !ok || is.Resolution != old.Resolution || is.WorkloadSelector != nil {
		return nil
	}
	ports := make(map[string]bool, len(is.Ports))
	for _, p := range is.Ports {
		ports[p.Name] = true
	}
	known := make(map[string]bool, len(is.Endpoints))
	for _, e := range is.Endpoints {
		known[identity(e)] = true
	}
	for _, e := range old.Endpoints {
		if known[identity(e)] {
			continue
		}
		e = proto.CloneOf(e)
		maps.DeleteFunc(e.Ports, func(name string, _ uint32) bool { return !ports[name] }) // which it has no longer
		is.Endpoints = append(is.Endpoints, e)
	}
	r, err := resource.New(desired.Meta(), is)
	if err != nil {
		return nil
	}
	if _, err := resource.Validate(r); err != nil {
		return nil
	}
	return r
}

func entryOf(r *resource.Resource) (*networking.ServiceEntry, bool) {
	spec, err := r.Spec()
	if err != nil {
		return nil, false // whoever let it in has said so
	}
	se, ok := spec.(*networking.ServiceEntry)
	return se, ok
}

// identity tells endpoints of a ServiceEntry apart.
func identity(e *networking.WorkloadEntry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Address, e.Network)
	for _, name := range slices.Sorted(maps.Keys(e.Ports)) {
		fmt.Fprintf(&b, " %s=%d", name, e.Ports[name])
	}
	return b.String()
}
