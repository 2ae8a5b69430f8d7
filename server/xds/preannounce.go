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

// preannounce returns the preannouncement of a difference between two states. It is empty without new dependencies.
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
			interims = append(interims, interim)
			toFinal.puts = append(toFinal.puts, next)
			announced.dependencies[next.Name] = dependencies
		}
		if len(interims) > 0 {
			announced.state = to.withPuts(interims)
			announced.state.final = to
			announced.state.toFinal = toFinal
		}
	})
	return announced
}

// preannounced is the interim state of a client.
type preannounced struct {
	state *state
	names []string // that the client has yet to subscribe to, or to be sent
	since time.Time
	ready bool // the client may be brought to the goal
	// needed are the names that Type.Needs added to names
	needed map[string]struct{}
}

// missingAt returns the existing names that the client does not have yet, of names and of the names that they need.
// dependency is the subscription to them.
func (p *preannounced) missingAt(dependency *subscription) (names []string) {
	for rest := p.names; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch {
		case dependency.goal.get(name) == nil:
		case !dependency.selection.includes(name) || dependency.client.get(name) == nil:
			names = append(names, name)
		case dependency.coll.typ.Needs != nil:
			for _, need := range dependency.coll.typ.Needs(dependency.client.get(name)) {
				if _, ok := p.needed[need]; !ok {
					p.needed[need] = struct{}{}
					rest = append(rest, need)
				}
			}
		}
	}
	return names
}

// preannounceFirst returns the plan of the interim response if the response must be preannounced; else the response.
func (s *stream) preannounceFirst(sub *subscription, response responsePlan) responsePlan {
	hook := sub.coll.typ.Preannounce
	if hook == nil || sub.preannounced != nil || sub.client.brought != nil || sub.client.state.len == 0 ||
		!sub.client.moves(&response) {
		return response
	}
	dependency := s.subscriptionTo(sub.coll.typ.DependencyURL)
	if dependency == nil || dependency.selection.wildcard {
		return response
	}
	announced := sub.goal.differenceFrom(sub.client.state).preannounce(sub.client.state, sub.goal, hook)
	interim := &preannounced{state: announced.state, needed: make(map[string]struct{})}
	for name, dependencies := range announced.dependencies {
		if !sub.selection.includes(name) || sub.client.get(name) == nil {
			continue
		}
		for _, change := range dependencies {
			if !dependency.delta && slices.ContainsFunc(change.From, dependency.client.isGone) {
				return response // the next response of dependency deletes clusters of the interim version
			}
			if len(change.From) > 0 && !slices.ContainsFunc(change.From,
				func(name string) bool { return !dependency.selection.includes(name) }) {
				interim.names = append(interim.names, change.To...)
			}
		}
	}
	if len(interim.names) == 0 {
		return response
	}
	first := sub.planTo(announced.state, additionsOnly)
	first.preannounced = interim
	return first
}

// notePreannounced notes that a response begins. interim is set for an interim response.
func (s *subscription) notePreannounced(interim *preannounced, now time.Time) {
	switch {
	case interim != nil:
		interim.since = now
		s.preannounced = interim
	case s.preannounced != nil && s.preannounced.ready:
		s.preannounced = nil
		s.pace.lastPreannounced = now
	}
}

// awaitsDependencies reports whether a subscription waits until the client has the new dependencies. It waits for at
// most AckTimeout, not for names that do not exist, and not after a rejection of the interim version.
func (s *stream) awaitsDependencies(sub *subscription, now time.Time) bool {
	preannounced := sub.preannounced
	if preannounced == nil || preannounced.ready {
		return false
	}
	dependency := s.subscriptionTo(sub.coll.typ.DependencyURL)
	preannounced.names = preannounced.missingAt(dependency)
	switch {
	case sub.rejected:
	case !s.maySend(sub, now), !s.maySend(dependency, now),
		len(preannounced.names) > 0 && s.dueIn(preannounced.since.Add(s.server.opts.AckTimeout).Sub(now)):
		return true
	}
	preannounced.ready = true
	return false
}
