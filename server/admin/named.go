package admin

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/words"
	"tributary/resource"
)

// maxNamed is how many objects are explained to who asked for something that is no host.
const maxNamed = 20

// addressIn returns the IP address in a text, which may have a port.
func addressIn(text string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return a.Unmap().WithZone(""), err == nil
}

func isAddress(text string) bool { _, is := addressIn(text); return is }

// named returns the objects that have an address, as that of an endpoint or as their virtual one; or those of a name, and those that were
// made of something that has this name in a registry, such as an interface. It decodes everything that has endpoints to find an address.
func (s *Server) named(asked string) (keys []resource.Key, why string) {
	snapshot := s.opts.View.Snapshot()
	address, isAddress := addressIn(asked)
	is := func(text string) bool { a, ok := addressIn(text); return ok && a == address }
	for _, kind := range []resource.Kind{resource.ServiceEntry, resource.WorkloadEntry} {
		for r := range snapshot.List(kind, "") {
			if isAddress && hasAddress(r, is) || !isAddress && madeOf(r, asked) {
				keys = append(keys, r.Key())
			}
		}
	}
	if !isAddress {
		for key := range s.known() {
			if key.Name == asked && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	why = words.Count(len(keys), "object", "objects") + ": of this name, or made of what a registry calls so"
	if isAddress {
		why = fmt.Sprintf("%s the address %s", words.Count(len(keys), "object has", "objects have"), asked)
	}
	if more := len(keys) - maxNamed; more > 0 {
		why += fmt.Sprintf("; the first %d of them", maxNamed)
	}
	return keys, why
}

func hasAddress(r *resource.Resource, is func(string) bool) bool {
	spec, err := r.Spec()
	if err != nil {
		return false // it was decoded before it was let in
	}
	switch spec := spec.(type) {
	case *networking.WorkloadEntry:
		return is(spec.Address)
	case *networking.ServiceEntry:
		return slices.ContainsFunc(spec.Addresses, is) ||
			slices.ContainsFunc(spec.Endpoints, func(e *networking.WorkloadEntry) bool { return is(e.Address) })
	}
	return false
}

// madeOf reports whether the annotations that sources write say that an object was made of something of this name.
func madeOf(r *resource.Resource, name string) bool {
	for key, value := range r.Annotations() {
		if strings.HasPrefix(key, "tributary/") && strings.EqualFold(value, name) {
			return true
		}
	}
	return false
}
