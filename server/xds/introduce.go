package xds

import (
	"slices"
	"sync"
	"time"
)

// A client that subscribes to clusters by name learns of a new one from a route, and may send requests to it too early: grpc-go uses a
// route before the balancer knows its clusters. So the client first gets an interim version of the route, which behaves like the old one
// and also names the new clusters, without sending requests to them. When the client has subscribed to these and acknowledged them and
// their endpoints, it gets the new route.

// Dependency names new dependencies: clients that subscribe to all of From will subscribe to To when they have the interim version.
type Lead struct{ From, To []string }

// preannouncement is the interim state before a difference.
type introduction struct {
	once  sync.Once
	at    *state
	leads map[string][]Lead // by the name of the entry that has them
}

// preannounce returns the preannouncement of d, which leads from one state to another; without dependencies if there is nothing new.
func (d *diff) introduce(from, to *state, hook func(has, next *Entry) (*Entry, []Lead)) *introduction {
	in := &d.introduction
	in.once.Do(func() {
		var interims []*Entry
		rest := &diff{}
		in.leads = make(map[string][]Lead)
		for _, next := range d.puts {
			has := from.get(next.Name)
			if has == nil {
				continue
			}
			interim, leads := hook(has, next)
			if interim == nil || interim.Name != next.Name || interim.wrong() != nil {
				continue
			}
			interim = versioned(interim)
			if interim.Version == has.Version || interim.Version == next.Version { // clients could not tell them apart
				continue
			}
			interims, rest.puts = append(interims, interim), append(rest.puts, next)
			in.leads[next.Name] = leads
		}
		if len(interims) > 0 {
			in.at = to.and(interims)
			in.at.onward, in.at.rest = to, rest
		}
	})
	return in
}

// preannounced is the interim state of a client.
type via struct {
	at    *state
	names []string // that the client has yet to subscribe to, or to be sent
	since time.Time
	over  bool // the client may be brought to the goal
	// needed are the names that Type.Needs added to names
	needed map[string]struct{}
}

// missingAt returns those of the names, and of the names that they need, that exist and that the client does not have by dep.
func (v *via) untold(led *subscription) (names []string) {
	for rest := v.names; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch {
		case led.goal.get(name) == nil:
		case !led.wants.cover(name) || led.has.get(name) == nil:
			names = append(names, name)
		case led.coll.typ.Needs != nil:
			for _, need := range led.coll.typ.Needs(led.has.get(name)) {
				if _, ok := v.needed[need]; !ok {
					v.needed[need] = struct{}{}
					rest = append(rest, need)
				}
			}
		}
	}
	return names
}

// preannounceFirst returns the plan of the interim response if p must be preannounced; else p.
func (s *stream) introduced(sub *subscription, p step) step {
	hook := sub.coll.typ.Introduce
	if hook == nil || sub.via != nil || sub.has.brought != nil || sub.has.at.len == 0 || !sub.has.moves(&p) {
		return p
	}
	led := s.led(sub)
	if led == nil || led.wants.all {
		return p
	}
	in := sub.goal.since(sub.has.at).introduce(sub.has.at, sub.goal, hook)
	v := &via{at: in.at, needed: make(map[string]struct{})}
	for name, leads := range in.leads {
		if !sub.wants.cover(name) || sub.has.get(name) == nil {
			continue
		}
		for _, l := range leads {
			if len(l.From) > 0 && !slices.ContainsFunc(l.From, func(name string) bool { return !led.wants.cover(name) }) {
				v.names = append(v.names, l.To...)
			}
		}
	}
	if len(v.names) == 0 {
		return p
	}
	first := plan(sub.variant, &sub.has, &sub.wants, in.at, true)
	first.via = v
	return first
}

// notePreannounced notes that a response begins; v is set if it is an interim response.
func (s *subscription) introduce(v *via, now time.Time) {
	switch {
	case v != nil:
		v.since = now
		s.via = v
	case s.via != nil && s.via.over:
		s.via, s.pace.led = nil, now
	}
}

// dependencySub returns the subscription of the type that sub depends on (Type.DependencyURL), or nil.
func (s *stream) led(sub *subscription) *subscription {
	for _, led := range s.subs {
		if led.coll.typ.URL == sub.coll.typ.LeadsURL {
			return led
		}
	}
	return nil
}

// awaitsDependencies says whether sub waits until the client has the new dependencies: for at most AckTimeout, not for names that do not
// exist, and not after the interim version was rejected.
func (s *stream) introducing(sub *subscription, now time.Time) bool {
	v := sub.via
	if v == nil || v.over {
		return false
	}
	led := s.led(sub)
	v.names = v.untold(led)
	switch {
	case sub.rejected:
	case !s.mayGo(sub, now), !s.mayGo(led, now), len(v.names) > 0 && s.lookAgain(v.since.Add(s.server.opts.AckTimeout).Sub(now)):
		return true
	}
	v.over = true
	return false
}
