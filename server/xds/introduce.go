package xds

import (
	"slices"
	"sync"
	"time"
)

// A client that asks for clusters by name learns of a new one from the route that leads to it, and may send requests there
// before it is ready for that: grpc-go takes a route into use before the balancer that has to know its clusters. So it is first
// sent an interim version of the route, which does what the one does that it has, and also leads to the new clusters, without a
// request ever going there. When it has asked for these, been told of them, and acknowledged them with their endpoints, it is
// sent the route itself.

// Lead says who is to be introduced to what: clients that ask for all of From are expected to ask for To when they have the
// interim version.
type Lead struct{ From, To []string }

// introduction is what goes before a difference: a state with interim versions in place of what is new.
type introduction struct {
	once  sync.Once
	at    *state
	leads map[string][]Lead // by the name of the entry that leads there
}

// introduce returns the introduction to d, which leads from one state to another. Nobody is led anywhere by one that is empty.
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
			if interim.Version == has.Version || interim.Version == next.Version { // nobody could tell
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

// via is where a client is while it is introduced.
type via struct {
	at    *state
	names []string // what the client has yet to ask for, or to be told
	since time.Time
	over  bool // it may be brought to the goal
	// needed are names that were added to these, since others need them
	needed map[string]struct{}
}

// untold returns those of the names that are there and that led has not told the client, with what the others need.
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

// introduced returns the step that sub is to take first if the client is to be introduced to what p leads it to; else p.
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

// introduce notes that the client was sent a step, by which it is introduced if v is set.
func (s *subscription) introduce(v *via, now time.Time) {
	switch {
	case v != nil:
		v.since = now
		s.via = v
	case s.via != nil && s.via.over:
		s.via, s.pace.led = nil, now
	}
}

// led returns the subscription of the type that sub leads to, or nil.
func (s *stream) led(sub *subscription) *subscription {
	for _, led := range s.subs {
		if led.coll.typ.URL == sub.coll.typ.LeadsURL {
			return led
		}
	}
	return nil
}

// introducing says whether the client, which is to be led elsewhere by sub, has yet to get to know what there is. It waits for
// no more than the acknowledgement timeout for that. Nobody waits for what is not there, or when the interim version is rejected.
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
