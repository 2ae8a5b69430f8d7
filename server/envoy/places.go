package envoy

import (
	"cmp"
	"slices"
	"time"

	"tributary/resource"
)

// Places in quarantine are few, and clients bring objects there: so they are shared by address. What is for everybody and what is for the clients of some profiles
// have places of their own, since a client may make up a profile that is its own, and be right of what only that is told. When all are taken, those of profiles
// without clients go first, which nobody misses; then the address that has most of them gives way to one that has fewer, and keeps what it brought first. So
// whoever has no more than an equal share loses nothing to anybody.

const (
	maxPlaces       = 100  // objects that are set aside for everybody, and as many that are for the clients of some profiles
	maxOfComplainer = 10   // objects by the word of one address
	maxAsides       = 2000 // for the clients of some profiles, each counted for itself
)

// berth is the place of an object: in whatever profiles others bring it, too, it is of the address that was the first.
type berth struct {
	key    resource.Key
	host   string
	since  time.Time
	asides []*aside
}

// makeRoom finds a place for an object that is set aside for somebody by the word of a host, and reports whether there is one, and what had to be given up
// for that. inUse says of which profiles there are clients.
func (q *quarantine) makeRoom(key resource.Key, of reach, host string, inUse func(reach) bool) (ok bool, given []resource.Key) {
	if !q.mayBring(key, host) {
		return false, nil
	}
	places, asides := q.places(of == everybody)
	if asides >= maxAsides {
		given = q.giveUpUnused(places, inUse)
		if places, asides = q.places(false); asides >= maxAsides {
			return false, given
		}
	}
	if len(places) < maxPlaces || slices.ContainsFunc(places, func(p *berth) bool { return p.key == key }) {
		return true, given
	}
	if of != everybody {
		given = q.giveUpUnused(places, inUse)
		if places, _ = q.places(false); len(places) < maxPlaces {
			return true, given
		}
	}
	p := ofTheGreediest(places, host)
	if p == nil {
		return false, given
	}
	for _, a := range p.asides {
		q.giveUp(a)
	}
	return true, append(given, p.key)
}

// mayBring says whether an object may be set aside by the word of a host, besides the others that were.
func (q *quarantine) mayBring(key resource.Key, host string) bool {
	brought := make(map[resource.Key]bool)
	for _, list := range q.asides {
		for _, a := range list {
			if a.now != nil && a.why.host == host {
				brought[a.key] = true
			}
		}
	}
	return brought[key] || len(brought) < maxOfComplainer
}

// places returns those for everybody, or all others, and how many times something is set aside there.
func (q *quarantine) places(all bool) (places []*berth, asides int) {
	for key, list := range q.asides {
		p := &berth{key: key}
		for of, a := range list {
			if a.now == nil || (of == everybody) != all {
				continue
			}
			if p.asides = append(p.asides, a); len(p.asides) == 1 || a.why.Since.Before(p.since) {
				p.host, p.since = a.why.host, a.why.Since
			}
		}
		if len(p.asides) > 0 {
			places, asides = append(places, p), asides+len(p.asides)
		}
	}
	return places, asides
}

// ofTheGreediest returns what came last of the address that has most, or nil if a host would have as much, if it got that.
func ofTheGreediest(places []*berth, host string) *berth {
	has := make(map[string]int)
	for _, p := range places {
		has[p.host]++
	}
	p := slices.MaxFunc(places, func(a, b *berth) int {
		return cmp.Or(cmp.Compare(has[a.host], has[b.host]), a.since.Compare(b.since), a.key.Compare(b.key))
	})
	if has[p.host] <= has[host]+1 {
		return nil
	}
	return p
}

// giveUpUnused gives up what is set aside for profiles without clients.
func (q *quarantine) giveUpUnused(places []*berth, inUse func(reach) bool) (given []resource.Key) {
	for _, p := range places {
		for _, a := range p.asides {
			if !inUse(a.why.of) {
				q.giveUp(a)
				given = append(given, p.key)
			}
		}
	}
	return given
}

// giveUp ends that an object is set aside for somebody. It is on trial as before.
func (q *quarantine) giveUp(a *aside) {
	q.drop(a.why.Key, a.why.of)
	q.changed = true
}
