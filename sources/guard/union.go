package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// merge returns the object to serve for a loss, and the number of endpoints that are only served because of the hold:
// those of the original that desired lacks. New endpoints are served, and lost endpoints stay, unless a ServiceEntry
// cannot have both; then the original is served.
func (l loss) merge() (served *resource.Resource, held int) {
	next, isEntry := entryOf(l.desired)
	serviceEntry, wasEntry := entryOf(l.original)
	if !isEntry || !wasEntry {
		return l.original, max(0, l.endpoints())
	}
	lost := dropIdentities(serviceEntry.Endpoints, identities(next.Endpoints))
	held = len(identities(lost))
	if next.Resolution != serviceEntry.Resolution || next.WorkloadSelector != nil {
		return l.original, held
	}
	ports := make(map[string]bool, len(next.Ports))
	for _, p := range next.Ports {
		ports[p.Name] = true
	}
	for _, e := range lost {
		maps.DeleteFunc(e.Ports, func(name string, _ uint32) bool { return !ports[name] }) // of removed ports
	}
	next.Endpoints = append(next.Endpoints, lost...)
	object, err := resource.New(l.desired.Meta(), next)
	if err == nil {
		_, err = resource.LenientMetadata(resource.Validate(object))
	}
	if err != nil {
		return l.original, held
	}
	return object, held
}

// dropIdentities returns the endpoints with other identities.
func dropIdentities(endpoints []*networking.WorkloadEntry, excluded map[string]bool) []*networking.WorkloadEntry {
	return slices.DeleteFunc(endpoints, func(e *networking.WorkloadEntry) bool { return excluded[identity(e)] })
}

func identities(endpoints []*networking.WorkloadEntry) map[string]bool {
	ids := make(map[string]bool, len(endpoints))
	for _, e := range endpoints {
		ids[identity(e)] = true
	}
	return ids
}

// entryOf decodes a ServiceEntry, which the caller owns. The resource may be nil.
func entryOf(object *resource.Resource) (*networking.ServiceEntry, bool) {
	if object == nil {
		return nil, false
	}
	spec, err := object.Spec()
	if err != nil {
		return nil, false // the source reported it
	}
	se, ok := spec.(*networking.ServiceEntry)
	return se, ok
}

// identity returns a text that is equal for equal endpoints of a ServiceEntry.
func identity(workloadEntry *networking.WorkloadEntry) string {
	var builder strings.Builder
	fmt.Fprintf(&builder, "%s %s", workloadEntry.Address, workloadEntry.Network)
	for _, name := range slices.Sorted(maps.Keys(workloadEntry.Ports)) {
		fmt.Fprintf(&builder, " %s=%d", name, workloadEntry.Ports[name])
	}
	return builder.String()
}

// serviceEntryEndpoints is the number of the field `endpoints` of istio.networking.v1alpha3.ServiceEntry.
const serviceEntryEndpoints = 6

// endpoints counts the endpoints of a ServiceEntry without decoding it; one that is listed several times counts once.
// Other resources, and nil, have none.
func endpoints(object *resource.Resource) int {
	if object == nil || object.Key().Kind != resource.ServiceEntry {
		return 0
	}
	return resource.CountDistinctFields(object.Body(), serviceEntryEndpoints)
}
