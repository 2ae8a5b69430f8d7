package admin

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/aggregate/conflicts"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
)

// maxSimilar is how many objects are proposed to who asked for one that is not there.
const maxSimilar = 5

// ranked is a proposal; lower ranks are better.
type ranked struct {
	rank int
	Similar
}

// best returns the best of all, in order.
func best(all []ranked) []Similar {
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Or(a.rank-b.rank, a.Key().Compare(b.Key())) })
	var similar []Similar
	for _, r := range all[:min(len(all), maxSimilar)] {
		similar = append(similar, r.Similar)
	}
	return similar
}

// similarKeys returns those of keys that look like key.
func similarKeys(keys iter.Seq[resource.Key], key resource.Key) []Similar {
	var all []ranked
	for k := range keys {
		rank, ok := likeness(key.Name, k.Name)
		switch {
		case !ok:
			continue
		case k.Kind != key.Kind && rank > 0: // of another kind, only what has the very name
			continue
		case k.Kind != key.Kind:
			rank += 20
		case k.Namespace != key.Namespace:
			rank++
		}
		all = append(all, ranked{rank, Similar{Ref: conflicts.Ref(k)}})
	}
	return best(all)
}

// similarHosts returns objects that speak of a host that looks like host. It decodes everything that has hosts.
func similarHosts(s memstore.Snapshot, host string) []Similar {
	first, _, _ := strings.Cut(host, ".")
	var all []ranked
	for _, kind := range []resource.Kind{resource.ServiceEntry, resource.VirtualService, resource.DestinationRule} {
		for r := range s.List(kind, "") {
			for _, h := range hostsOf(r) {
				rank, ok := likeness(host, strings.ToLower(h))
				if label, _, _ := strings.Cut(h, "."); !ok && label == first && label != "*" {
					rank, ok = 10, true
				}
				if ok {
					all = append(all, ranked{rank, Similar{Ref: conflicts.Ref(r.Key()), Host: h}})
				}
			}
		}
	}
	return best(all)
}

func hostsOf(r *resource.Resource) []string {
	spec, err := r.Spec()
	if err != nil {
		return nil // it was decoded before it was let in
	}
	switch spec := spec.(type) {
	case *networking.ServiceEntry:
		return spec.GetHosts()
	case *networking.VirtualService:
		return spec.GetHosts()
	case *networking.DestinationRule:
		return []string{spec.GetHost()}
	}
	return nil
}

// likeness says whether somebody who wrote a may have meant b: there are few typing errors between them, or one is a part
// of the other. Lower ranks are more alike.
func likeness(a, b string) (rank int, ok bool) {
	if d := words.EditDistance(a, b); d <= 1+min(len(a), len(b))/4 {
		return d, true
	}
	const part = 3 // what is shorter is part of too much
	if min(len(a), len(b)) >= part && (strings.Contains(a, b) || strings.Contains(b, a)) {
		return 9, true
	}
	return 0, false
}

// maxNamed is how many objects are explained to who asked for something that is no host.
const maxNamed = 20

func isAddress(text string) bool { _, is := resource.AddressIn(text); return is }

// named returns the objects that have an address, as that of an endpoint or as their virtual one; or those of a name, and those that were
// made of something that has this name in a registry, such as an interface. It decodes everything that has endpoints to find an address.
func (s *Server) named(asked string) (keys []resource.Key, why string) {
	snapshot := s.opts.View.Snapshot()
	address, isAddress := resource.AddressIn(asked)
	is := func(text string) bool { a, ok := resource.AddressIn(text); return ok && a == address }
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
