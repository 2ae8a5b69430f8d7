package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// union returns desired with the missing endpoints of original appended: new endpoints are served, and lost endpoints
// stay. It returns nil if a ServiceEntry cannot have both.
func union(desired, original *resource.Resource) *resource.Resource {
	next, ok := entryOf(desired)
	if !ok {
		return nil
	}
	old, ok := entryOf(original)
	if !ok || next.Resolution != old.Resolution || next.WorkloadSelector != nil {
		return nil
	}
	ports := make(map[string]bool, len(next.Ports))
	for _, p := range next.Ports {
		ports[p.Name] = true
	}
	present := make(map[string]bool, len(next.Endpoints))
	for _, e := range next.Endpoints {
		present[identity(e)] = true
	}
	for _, e := range old.Endpoints {
		if present[identity(e)] {
			continue
		}
		e = proto.CloneOf(e)
		maps.DeleteFunc(e.Ports, func(name string, _ uint32) bool { return !ports[name] }) // of removed ports
		next.Endpoints = append(next.Endpoints, e)
	}
	r, err := resource.New(desired.Meta(), next)
	if err != nil {
		return nil
	}
	if _, err := resource.LenientMetadata(resource.Validate(r)); err != nil {
		return nil
	}
	return r
}

// heldEndpoints counts the endpoints of original that desired lacks. New endpoints do not count.
func heldEndpoints(desired, original *resource.Resource) (held int) {
	if desired == nil {
		return endpoints(original)
	}
	next, nextOK := entryOf(desired)
	old, oldOK := entryOf(original)
	if !nextOK || !oldOK {
		return max(0, endpoints(original)-endpoints(desired))
	}
	remaining := make(map[string]bool, len(next.Endpoints))
	for _, e := range next.Endpoints {
		remaining[identity(e)] = true
	}
	for _, e := range old.Endpoints {
		if !remaining[identity(e)] {
			held++
		}
	}
	return held
}

func entryOf(r *resource.Resource) (*networking.ServiceEntry, bool) {
	spec, err := r.Spec()
	if err != nil {
		return nil, false // the source reported it
	}
	se, ok := spec.(*networking.ServiceEntry)
	return se, ok
}

// identity returns a text that is equal for equal endpoints of a ServiceEntry.
func identity(e *networking.WorkloadEntry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Address, e.Network)
	for _, name := range slices.Sorted(maps.Keys(e.Ports)) {
		fmt.Fprintf(&b, " %s=%d", name, e.Ports[name])
	}
	return b.String()
}

// serviceEntryEndpoints is the number of the field `endpoints` of istio.networking.v1alpha3.ServiceEntry.
const serviceEntryEndpoints = 6

// endpoints counts the endpoints of a ServiceEntry without decoding it. Other resources, and nil, have none.
func endpoints(r *resource.Resource) int {
	if r == nil || r.Key().Kind != resource.ServiceEntry {
		return 0
	}
	n := 0
	for b := r.Body(); len(b) > 0; {
		field, wire, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return n // not a message; validation reports it
		}
		value := protowire.ConsumeFieldValue(field, wire, b[tag:])
		if value < 0 {
			return n
		}
		if field == serviceEntryEndpoints {
			n++
		}
		b = b[tag+value:]
	}
	return n
}
