package dubbo

import (
	"slices"
	"time"

	"tributary/sources/absence"
	"tributary/sources/dubbo/mapping"
)

// record is what is believed of one service, which is one host of the mesh.
type record struct {
	endpoints []known // in order
	// empty has an element for each protocol that the service has, or had: since when it has no provider, or zero if it has one.
	empty map[string]time.Time
	held  int // endpoints that the registry does not list, and that stay for now
}

// known is an endpoint, and when it was first listed; zero if it was before this run.
type known = absence.Known[mapping.Endpoint]

// believe decides what is believed of a service. now are the endpoints that the registry lists, in order, and protocols those of all
// providers that it lists, also of those without a weight. stays says of an endpoint that is no longer listed whether it stays
// for now: the registry proves nothing about it. A protocol that has no provider is remembered for keep.
func believe(before record, now []mapping.Endpoint, protocols []string, stays func(known) bool, at time.Time, keep time.Duration) record {
	after := record{empty: make(map[string]time.Time, len(before.empty))}
	after.endpoints, after.held = absence.Settle(before.endpoints, now, mapping.Endpoint.Compare, stays, at)
	has := map[string]bool{}
	for _, e := range after.endpoints {
		has[e.Of.Protocol] = true
	}
	for _, p := range protocols {
		has[p] = true
	}
	for p := range has {
		after.empty[p] = time.Time{}
	}
	for p, since := range before.empty {
		if still, kept := absence.Empty(since, has[p], at, keep); kept {
			after.empty[p] = still
		}
	}
	return after
}

// next returns when something of the record changes by itself, given how long what is empty stays; zero if nothing does.
func (r record) next(keep time.Duration) (at time.Time) {
	for _, since := range r.empty {
		if !since.IsZero() {
			at = absence.Earlier(at, since.Add(keep))
		}
	}
	return at
}

// service is what the mapping takes.
func (r record) service(s mapping.Service) mapping.Service {
	for p := range r.empty {
		s.Protocols = append(s.Protocols, p)
	}
	slices.Sort(s.Protocols)
	for _, e := range r.endpoints {
		s.Endpoints = append(s.Endpoints, e.Of)
	}
	return s
}

// restored is the record of what an earlier run published.
func restored(all []mapping.Restored) record {
	r := record{empty: map[string]time.Time{}}
	for _, one := range all {
		r.empty[one.Protocol] = time.Time{}
		for _, e := range one.Endpoints {
			r.endpoints = append(r.endpoints, known{Of: e})
		}
	}
	slices.SortFunc(r.endpoints, func(a, b known) int { return a.Of.Compare(b.Of) })
	return r
}
