package dubbo

import (
	"cmp"
	"slices"
	"time"

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
type known struct {
	mapping.Endpoint

	since time.Time
}

func (k known) compare(o known) int { return k.Compare(o.Endpoint) }

// settle decides what is believed of a service. now are the endpoints that the registry lists, in order, and protocols those of all
// providers that it lists, also of those without a weight. stays says of an endpoint that is no longer listed whether it stays
// for now: the registry proves nothing about it. A protocol that has no provider is remembered for keep.
func settle(before record, now []mapping.Endpoint, protocols []string, stays func(known) bool, at time.Time, keep time.Duration) record {
	after := record{empty: make(map[string]time.Time, len(before.empty))}
	i := 0
	for _, e := range now {
		for i < len(before.endpoints) && before.endpoints[i].Compare(e) < 0 {
			after.hold(before.endpoints[i], stays)
			i++
		}
		since := at
		if i < len(before.endpoints) && before.endpoints[i].Compare(e) == 0 {
			since = before.endpoints[i].since
			i++
		}
		after.endpoints = append(after.endpoints, known{e, since})
	}
	for ; i < len(before.endpoints); i++ {
		after.hold(before.endpoints[i], stays)
	}
	for _, e := range after.endpoints {
		after.empty[e.Protocol] = time.Time{}
	}
	for _, p := range protocols {
		after.empty[p] = time.Time{}
	}
	for p, since := range before.empty {
		if _, there := after.empty[p]; there {
			continue
		}
		if since.IsZero() {
			since = at
		}
		if at.Sub(since) < keep {
			after.empty[p] = since
		}
	}
	return after
}

func (r *record) hold(k known, stays func(known) bool) {
	if stays(k) {
		r.endpoints = append(r.endpoints, k)
		r.held++
	}
}

// next returns when something of the record changes by itself, given how long what is empty stays; zero if nothing does.
func (r record) next(keep time.Duration) (at time.Time) {
	for _, since := range r.empty {
		if end := since.Add(keep); !since.IsZero() && (at.IsZero() || end.Before(at)) {
			at = end
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
		s.Endpoints = append(s.Endpoints, e.Endpoint)
	}
	return s
}

// restored is the record of what an earlier run published.
func restored(all []mapping.Restored) record {
	r := record{empty: map[string]time.Time{}}
	for _, one := range all {
		r.empty[one.Protocol] = time.Time{}
		for _, e := range one.Endpoints {
			r.endpoints = append(r.endpoints, known{Endpoint: e})
		}
	}
	slices.SortFunc(r.endpoints, known.compare)
	return r
}

// suspicion is a time in which what the registry does not list need not have gone: it was away, and providers register anew.
type suspicion struct{ from, until time.Time }

// covers reports whether an endpoint stays although it is not listed. What was registered after the registry was back is not
// in doubt: its session is a new one.
func (s suspicion) covers(k known, at time.Time) bool {
	return at.Before(s.until) && k.since.Before(s.from)
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	switch {
	case a.IsZero():
		return b
	case b.IsZero() || cmp.Compare(a.UnixNano(), b.UnixNano()) <= 0:
		return a
	}
	return b
}
