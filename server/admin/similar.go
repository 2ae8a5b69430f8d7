package admin

import (
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/aggregate/conflicts"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
)

// maxSimilar limits the proposals for a missing object or host.
const maxSimilar = 5

// rankedObjects has objects by rank. Lower ranks are more similar.
type rankedObjects map[int][]Similar

// best returns the most similar objects, in order.
func (p rankedObjects) best() (similar []Similar) {
	for rank := 0; len(p) > 0 && len(similar) < maxSimilar; rank++ {
		slices.SortFunc(p[rank], func(a, b Similar) int { return a.Key().Compare(b.Key()) })
		similar = append(similar, p[rank]...)
		delete(p, rank)
	}
	return similar[:min(len(similar), maxSimilar)]
}

// The rank of texts with typing errors is the number of errors. The ranks of other similarities are higher.
const (
	rankPart      = 9  // one text is a part of the other
	rankLabel     = 10 // hosts with the same first label
	rankOtherKind = 20 // added for objects of another kind
)

// similarity returns the rank of two texts. They are similar if few typing errors make one of the other, or if one is a
// part of the other.
func similarity(first, second string) (rank int, similar bool) {
	if distance := words.EditDistance(first, second); distance <= 1+min(len(first), len(second))/4 {
		return distance, true
	}
	const shortest = 3 // a shorter text is a part of too many
	return rankPart, min(len(first), len(second)) >= shortest &&
		(strings.Contains(first, second) || strings.Contains(second, first))
}

// similarKeys returns the most similar keys.
func similarKeys(keys iter.Seq[resource.Key], key resource.Key) []Similar {
	candidates := rankedObjects{}
	for candidate := range keys {
		rank, similar := similarity(key.Name, candidate.Name)
		switch {
		case !similar || candidate.Kind != key.Kind && rank > 0: // in another kind, only the same name is similar
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

// similarHosts returns the objects with the most similar hosts. It decodes all objects with hosts.
func similarHosts(snapshot memstore.Snapshot, host string) []Similar {
	firstLabel, _, _ := strings.Cut(host, ".")
	candidates := rankedObjects{}
	for _, kind := range []resource.Kind{resource.ServiceEntry, resource.VirtualService, resource.DestinationRule} {
		for object := range snapshot.List(kind, "") {
			for _, candidate := range hostsOf(object) {
				rank, similar := similarity(host, strings.ToLower(candidate))
				if label, _, _ := strings.Cut(candidate, "."); !similar && label == firstLabel && label != "*" {
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
