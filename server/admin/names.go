package admin

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/words"
	"tributary/resource"
)

// maxExplained limits the explained objects of an address or a name.
const maxExplained = 20

// isAddress reports whether a text is an IP address, with or without a port.
func isAddress(text string) bool {
	_, valid := resource.AddressIn(text)
	return valid
}

// objectsNamed returns the objects that a text names. An address names the objects with such an endpoint, and the
// ServiceEntries with this virtual address. Another text names the objects with this name, and those with this name in
// a registry, such as an interface of Dubbo. It decodes all objects with endpoints to find an address.
func (s *Server) objectsNamed(text string) (keys []resource.Key, description string) {
	if address, isAddress := resource.AddressIn(text); isAddress {
		keys = s.selectEntries(func(object *resource.Resource) bool {
			return slices.ContainsFunc(addressesOf(object), func(candidate string) bool {
				parsed, valid := resource.AddressIn(candidate)
				return valid && parsed == address
			})
		})
		description = fmt.Sprintf("%s the address %s", words.Count(len(keys), "object has", "objects have"), text)
	} else {
		keys = s.selectEntries(func(object *resource.Resource) bool { return hasRegistryName(object, text) })
		for key := range s.candidateKeys() {
			if key.Name == text && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		description = words.Count(len(keys), "object", "objects") + ": with this name, or with this name in a registry"
	}
	if len(keys) > maxExplained {
		description += fmt.Sprintf("; the first %d of them", maxExplained)
	}
	return keys, description
}

// selectEntries returns the keys of the ServiceEntries and WorkloadEntries that a function selects.
func (s *Server) selectEntries(selects func(*resource.Resource) bool) (keys []resource.Key) {
	snapshot := s.opts.View.Snapshot()
	for _, kind := range []resource.Kind{resource.ServiceEntry, resource.WorkloadEntry} {
		for object := range snapshot.List(kind, "") {
			if selects(object) {
				keys = append(keys, object.Key())
			}
		}
	}
	return keys
}

// addressesOf returns the addresses of an object's endpoints, and its virtual addresses.
func addressesOf(object *resource.Resource) (addresses []string) {
	spec, _ := object.Spec() // the source decoded it before
	switch spec := spec.(type) {
	case *networking.WorkloadEntry:
		return []string{spec.GetAddress()}
	case *networking.ServiceEntry:
		for _, endpoint := range spec.GetEndpoints() {
			addresses = append(addresses, endpoint.GetAddress())
		}
		return append(addresses, spec.GetAddresses()...)
	}
	return nil
}

// hasRegistryName reports whether an annotation of its source has this value. Sources note names in registries there.
func hasRegistryName(object *resource.Resource, name string) bool {
	for key, value := range object.Annotations() {
		if strings.HasPrefix(key, "tributary/") && strings.EqualFold(value, name) {
			return true
		}
	}
	return false
}
