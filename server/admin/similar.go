package admin

import (
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

const (
	maxSimilar = 5  // proposals for a missing object or host
	maxNamed   = 20 // explained objects of an address or a name
)

// proposals are objects with their ranks; lower ranks are better.
type proposals map[int][]Similar

// best returns the best proposals, in order.
func (p proposals) best() (similar []Similar) {
	for rank := 0; len(p) > 0 && len(similar) < maxSimilar; rank++ {
		slices.SortFunc(p[rank], func(a, b Similar) int { return a.Key().Compare(b.Key()) })
		similar = append(similar, p[rank]...)
		delete(p, rank)
	}
	return similar[:min(len(similar), maxSimilar)]
}

// The ranks of likenesses other than by typing errors.
const (
	rankPart      = 9  // one text is a part of the other
	rankLabel     = 10 // hosts with the same first label
	rankOtherKind = 20 // more for another kind
)

// likeness returns the rank of two texts if there are few typing errors between them, or one is a part of the other.
func likeness(first, second string) (rank int, similar bool) {
	if distance := words.EditDistance(first, second); distance <= 1+min(len(first), len(second))/4 {
		return distance, true
	}
	const shortest = 3 // a shorter text is a part of too many
	return rankPart, min(len(first), len(second)) >= shortest &&
		(strings.Contains(first, second) || strings.Contains(second, first))
}

// similarKeys returns the most similar keys.
func similarKeys(keys iter.Seq[resource.Key], key resource.Key) []Similar {
	candidates := proposals{}
	for candidate := range keys {
		rank, similar := likeness(key.Name, candidate.Name)
		switch {
		case !similar || candidate.Kind != key.Kind && rank > 0: // of another kind, only the same name
			continue
		case candidate.Kind != key.Kind:
			rank += rankOtherKind
		case candidate.Namespace != key.Namespace:
			rank++
		}
		candidates[rank] = append(candidates[rank], Similar{Ref: conflicts.Ref(candidate)})
	}
	return candidates.best()
}

// similarHosts returns objects with a host that is similar to a host. It decodes all objects with hosts.
func similarHosts(snapshot memstore.Snapshot, host string) []Similar {
	first, _, _ := strings.Cut(host, ".")
	candidates := proposals{}
	for _, kind := range []resource.Kind{resource.ServiceEntry, resource.VirtualService, resource.DestinationRule} {
		for object := range snapshot.List(kind, "") {
			for _, candidate := range hostsOf(object) {
				rank, similar := likeness(host, strings.ToLower(candidate))
				if label, _, _ := strings.Cut(candidate, "."); !similar && label == first && label != "*" {
					rank, similar = rankLabel, true
				}
				if similar {
					candidates[rank] = append(candidates[rank], Similar{Ref: conflicts.Ref(object.Key()), Host: candidate})
				}
			}
		}
	}
	return candidates.best()
}

func hostsOf(object *resource.Resource) []string {
	spec, _ := object.Spec() // the source decoded it before
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

func isAddress(text string) bool {
	_, valid := resource.AddressIn(text)
	return valid
}

// named returns the objects with an address, as an endpoint's or as a virtual one; or those with a name, their own or
// one in a registry, such as an interface. It decodes all objects with endpoints to find an address.
func (s *Server) named(text string) (keys []resource.Key, description string) {
	snapshot := s.opts.View.Snapshot()
	address, byAddress := resource.AddressIn(text)
	for _, kind := range []resource.Kind{resource.ServiceEntry, resource.WorkloadEntry} {
		for object := range snapshot.List(kind, "") {
			matches := madeOf(object, text)
			if byAddress {
				matches = slices.ContainsFunc(addressesOf(object), func(candidate string) bool {
					parsed, valid := resource.AddressIn(candidate)
					return valid && parsed == address
				})
			}
			if matches {
				keys = append(keys, object.Key())
			}
		}
	}
	if byAddress {
		description = fmt.Sprintf("%s the address %s", words.Count(len(keys), "object has", "objects have"), text)
	} else {
		for key := range s.keys() {
			if key.Name == text && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		description = words.Count(len(keys), "object", "objects") + ": with this name, or with this name in a registry"
	}
	if len(keys) > maxNamed {
		description += fmt.Sprintf("; the first %d of them", maxNamed)
	}
	return keys, description
}

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

// madeOf reports whether the annotations of sources have a name in a registry.
func madeOf(object *resource.Resource, name string) bool {
	for key, value := range object.Annotations() {
		if strings.HasPrefix(key, "tributary/") && strings.EqualFold(value, name) {
			return true
		}
	}
	return false
}
