package xds

import (
	"slices"
	"sync"
	"time"
)

// A client that subscribes to clusters by name learns of a new one from a route, and may send requests to it too early:
// grpc-go uses a route before the balancer knows its clusters. So the client first gets an interim version of the
// route, which behaves like the old one and also names the new clusters, without sending requests to them. When the
// client has subscribed to these and acknowledged them and their endpoints, it gets the new route.

// Dependency names new dependencies: clients that subscribe to all of From will subscribe to To when they have the
// interim version.
type Dependency struct{ From, To []string }

// preannouncement is the interim state before a difference.
type preannouncement struct {
	once         sync.Once
	state        *state
	dependencies map[string][]Dependency // by the name of the entry that has them
}

// preannounce returns the preannouncement of d, which leads from one state to another; empty without new dependencies.
func (d *diff) preannounce(from, to *state, hook func(held, next *Entry) (*Entry, []Dependency)) *preannouncement {
	announced := &d.preannouncement
	announced.once.Do(func() {
		var interims []*Entry
		toFinal := &diff{}
		announced.dependencies = make(map[string][]Dependency)
		for _, next := range d.puts {
			held := from.get(next.Name)
			if held == nil {
				continue
			}
			interim, dependencies := hook(held, next)
			if interim == nil || interim.Name != next.Name || interim.validate() != nil {
				continue
			}
			interim = versioned(interim)
			if interim.Version == held.Version || interim.Version == next.Version { // clients could not tell them apart
				continue
			}
			interims, toFinal.puts = append(interims, interim), append(toFinal.puts, next)
			announced.dependencies[next.Name] = dependencies
		}
		if len(interims) > 0 {
			announced.state = to.withPuts(interims)
			announced.state.final, announced.state.toFinal = to, toFinal
		}
	})
	return announced
}

// preannounced is the interim state of a client.
type preannounced struct {
	state *state
	names []string // that the client has yet to subscribe to, or to be sent
	since time.Time
	done  bool // the client may be brought to the goal
	// needed are the names that Type.Needs added to names
	needed map[string]struct{}
}

// missingAt returns those of the names, and of the names that they need, that exist and that the client does not have
// by dep.
func (v *preannounced) missingAt(dep *subscription) (names []string) {
	for rest := v.names; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch {
		case dep.goal.get(name) == nil:
		case !dep.selection.includes(name) || dep.client.get(name) == nil:
			names = append(names, name)
		case dep.coll.typ.Needs != nil:
			for _, need := range dep.coll.typ.Needs(dep.client.get(name)) {
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
func (s *stream) preannounceFirst(sub *subscription, p responsePlan) responsePlan {
	hook := sub.coll.typ.Preannounce
	if hook == nil || sub.preannounced != nil || sub.client.brought != nil || sub.client.state.len == 0 ||
		!sub.client.moves(&p) {
		return p
	}
	dep := s.ofCollections(sub.coll.typ.DependencyURL)
	if dep == nil || dep.selection.wildcard {
		return p
	}
	announced := sub.goal.since(sub.client.state).preannounce(sub.client.state, sub.goal, hook)
	v := &preannounced{state: announced.state, needed: make(map[string]struct{})}
	for name, dependencies := range announced.dependencies {
		if !sub.selection.includes(name) || sub.client.get(name) == nil {
			continue
		}
		for _, l := range dependencies {
			if !dep.delta && slices.ContainsFunc(l.From, dep.client.isGone) {
				return p // the next response of dep deletes clusters of the interim version
			}
			if len(l.From) > 0 && !slices.ContainsFunc(l.From, func(name string) bool { return !dep.selection.includes(name) }) {
				v.names = append(v.names, l.To...)
			}
		}
	}
	if len(v.names) == 0 {
		return p
	}
	first := plan(sub.variant, &sub.client, &sub.selection, announced.state, true)
	first.preannounced = v
	return first
}

// notePreannounced notes that a response begins; v is set if it is an interim response.
func (s *subscription) notePreannounced(v *preannounced, now time.Time) {
	switch {
	case v != nil:
		v.since = now
		s.preannounced = v
	case s.preannounced != nil && s.preannounced.done:
		s.preannounced, s.pace.lastPreannounced = nil, now
	}
}

// awaitsDependencies says whether sub waits until the client has the new dependencies: for at most AckTimeout, not for
// names that do not exist, and not after the interim version was rejected.
func (s *stream) awaitsDependencies(sub *subscription, now time.Time) bool {
	preannounced := sub.preannounced
	if preannounced == nil || preannounced.done {
		return false
	}
	dep := s.ofCollections(sub.coll.typ.DependencyURL)
	preannounced.names = preannounced.missingAt(dep)
	switch {
	case sub.rejected:
	case !s.maySend(sub, now), !s.maySend(dep, now),
		len(preannounced.names) > 0 && s.lookAgain(preannounced.since.Add(s.server.opts.AckTimeout).Sub(now)):
		return true
	}
	preannounced.done = true
	return false
}
