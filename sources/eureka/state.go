package eureka

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"tributary/sources/absence"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
)

// state is what is known of the services of a Eureka, and believed. It does no I/O and has no clock.
type state struct {
	mapper     *mapping.Mapper
	selects    func(app string) bool
	hold, keep time.Duration

	services map[port]*service
	names    map[mapping.ID]mapping.Name
	dirty    map[mapping.ID]bool // hosts to publish

	memory  int       // counts the memories of servers that were read: another one may have forgotten
	before  time.Time // when the memory before that one was read last
	read    time.Time // when the last reading was
	whole   bool
	deleted map[spot]time.Time // when instances went that the server says have gone
	listed  map[spot]map[port]bool
	out     []string // instances that are left out, and why
	next    time.Time
}

// port is one of a host: plain or secure.
type port struct {
	mapping.ID
	secure bool
}

func (p port) compare(o port) int {
	plainFirst := func(p port) string { return strconv.FormatBool(p.secure) }
	return cmp.Or(p.Compare(o.ID), cmp.Compare(plainFirst(p), plainFirst(o)))
}

// spot is where something is called.
type spot struct {
	address string
	port    uint32
}

func spotOf(e mapping.Endpoint) spot { return spot{e.Address, e.Port} }

// service is one port of a host.
type service struct {
	// of the last reading
	offers   []mapping.Offer
	served   []entry // in order
	off      map[spot]bool
	apps     []string
	warnings []string

	// believed
	endpoints []absence.Known[entry]
	port      mapping.Port
	empty     time.Time // since when nobody serves it; zero if somebody does
	held      int       // endpoints that are not listed, and that stay for now
	opaque    bool      // an earlier run published it, and what cannot be told
}

// entry is an endpoint, and what is known of it when it is not listed.
type entry struct {
	mapping.Endpoint
	memory int       // that listed it last
	seen   time.Time // when it was listed last, if it is not
	since  time.Time // since when it could be listed, and is not; zero if it is listed
}

func newState(m *mapping.Mapper, s Settings) *state {
	return &state{
		mapper: m, selects: s.selects, hold: s.Hold, keep: s.KeepEmpty, services: map[port]*service{}, names: map[mapping.ID]mapping.Name{},
		dirty: map[mapping.ID]bool{}, memory: 1,
	}
}

// restore remembers what an earlier run published of a host; nothing if that cannot be told. What of it was not listed then is in doubt since the
// times that it noted; all else was listed by the memory that it read last.
func (s *state) restore(id mapping.ID, all []mapping.Service, doubts map[string]time.Time) {
	s.dirty[id] = true
	if len(all) == 0 {
		s.services[port{id, false}] = &service{opaque: true}
		return
	}
	for _, one := range all {
		p := port{one.ID, one.Secure}
		if len(one.Apps) > 0 && !slices.ContainsFunc(one.Apps, s.selects) {
			continue // it is none of those to read now
		}
		of := &service{port: one.Port, apps: one.Apps}
		for _, e := range one.Endpoints {
			known := entry{Endpoint: e, memory: s.memory}
			if since, there := doubts[doubtKey(p, spotOf(e))]; there {
				known.memory, known.seen, known.since = 0, since, since
			}
			of.endpoints = append(of.endpoints, absence.Known[entry]{Of: known})
		}
		s.services[p] = of
	}
}

// take notes what a server lists.
func (s *state) take(r reading, at time.Time) {
	if !r.same {
		s.memory++
		s.before = cmp.Or(s.read, at)
	}
	s.read, s.whole = at, r.view.Whole()
	if r.outage && !r.same {
		s.wait(at)
	}
	s.deleted = map[spot]time.Time{}
	for _, i := range r.deleted {
		offers, _, _ := s.mapper.Offers(i) // of what cannot be called nothing was believed
		for _, o := range offers {
			when := time.UnixMilli(i.Evicted).Add(-r.ahead)
			if sp := spotOf(o.Endpoint); when.After(s.deleted[sp]) {
				s.deleted[sp] = when
			}
		}
	}
	s.list(r)
	s.settle(at)
}

// confirm notes that a server lists what it listed.
func (s *state) confirm(at time.Time) {
	s.read = at
	if !s.next.IsZero() && !at.Before(s.next) {
		s.settle(at)
	}
}

// wait begins the time anew in which what is in doubt can be listed: nobody could register while no server was there.
func (s *state) wait(at time.Time) {
	for _, of := range s.services {
		for n := range of.endpoints {
			if e := &of.endpoints[n].Of; !e.since.IsZero() {
				e.since = at
			}
		}
	}
}

// list notes what instances offer.
func (s *state) list(r reading) {
	warned := make(map[port][]string, len(s.services))
	for p, of := range s.services {
		warned[p] = of.warnings
		of.offers, of.served, of.off, of.warnings = nil, nil, nil, nil
	}
	s.listed, s.out = map[spot]map[port]bool{}, nil
	if r.nameless > 0 {
		s.out = append(s.out, fmt.Sprintf("%d instances without a name: %v", r.nameless, r.why))
	}
	broken := r.view.Broken()
	for _, key := range slices.SortedFunc(maps.Keys(broken), wire.Key.Compare) {
		s.out = append(s.out, fmt.Sprintf("%s cannot be read: %v", key, broken[key]))
	}
	instances := slices.DeleteFunc(r.view.Instances(), func(i wire.Instance) bool { return i.Broken != nil || !s.selects(i.App) })
	// Of several instances at one place, as of a process that was killed and came back with another name, the last one is there.
	slices.SortStableFunc(instances, func(a, b wire.Instance) int { return cmp.Compare(b.Dirty, a.Dirty) })
	apps := map[port]map[string]bool{}
	for _, i := range instances {
		offers, warnings, err := s.mapper.Offers(i)
		if err != nil {
			s.out = append(s.out, fmt.Sprintf("%s: %v", i.Key, err))
		}
		for _, o := range offers {
			p, sp := port{o.ID, o.Secure}, spotOf(o.Endpoint)
			of := s.services[p]
			if of == nil {
				of = &service{}
				s.services[p], s.dirty[p.ID] = of, true
			}
			of.offers = append(of.offers, o)
			if apps[p] == nil {
				apps[p] = map[string]bool{}
			}
			apps[p][i.App] = true
			for _, w := range warnings {
				of.warnings = append(of.warnings, i.String()+": "+w)
			}
			if s.listed[sp] == nil {
				s.listed[sp] = map[port]bool{}
			}
			switch {
			case s.listed[sp][p]:
			case s.mapper.Serves(i):
				of.served = append(of.served, entry{Endpoint: o.Endpoint, memory: s.memory})
			default:
				if of.off == nil {
					of.off = map[spot]bool{}
				}
				of.off[sp] = true
			}
			s.listed[sp][p] = true
		}
	}
	for p, of := range s.services {
		slices.SortFunc(of.served, compareEntries)
		if !slices.Equal(warned[p], of.warnings) {
			s.dirty[p.ID] = true
		}
		if all := slices.Sorted(maps.Keys(apps[p])); len(all) > 0 && !slices.Equal(all, of.apps) {
			of.apps, s.dirty[p.ID] = all, true
		}
	}
}

func compareEntries(a, b entry) int { return a.Compare(b.Endpoint) }

// settle decides what is believed, and when that has to be decided again.
func (s *state) settle(at time.Time) {
	s.next = time.Time{}
	for p, of := range s.services {
		before := of.endpoints
		of.endpoints, of.held = absence.Settle(before, of.served, compareEntries, func(k absence.Known[entry]) bool { return s.stays(of, k.Of, at) }, at)
		for n := range of.endpoints {
			e := &of.endpoints[n].Of
			if e.memory == s.memory && e.since.IsZero() && s.lists(p, e.Endpoint) {
				continue
			}
			lost := s.lost(*e, at)
			e.seen, e.since = lost.Seen, lost.Since
			s.next = absence.Earlier(s.next, e.since.Add(s.hold))
		}
		portNow := s.mapper.PortOf(of.offers, of.port)
		if portNow != of.port || !slices.EqualFunc(before, of.endpoints, func(a, b absence.Known[entry]) bool { return a.Of.Same(b.Of.Endpoint) }) {
			of.port, s.dirty[p.ID] = portNow, true
		}
		if of.opaque {
			s.reveal(p, of, at)
			continue
		}
		// One that has instances, of which none can be called now, is kept as long as it has them.
		empty, kept := absence.Empty(of.empty, len(of.endpoints) > 0, at, s.keep)
		of.empty = empty
		switch {
		case kept && !empty.IsZero():
			s.next = absence.Earlier(s.next, empty.Add(s.keep))
		case !kept && len(of.offers) == 0:
			delete(s.services, p)
			s.dirty[p.ID] = true
		}
	}
}

func (s *state) lists(p port, e mapping.Endpoint) bool { return s.listed[spotOf(e)][p] }

// reveal has what cannot be told of an earlier run go when it is listed, or when it would have gone.
func (s *state) reveal(p port, of *service, at time.Time) {
	if of.empty.IsZero() {
		of.empty = at
	}
	over := view.Lost{Same: s.memory == 1, Whole: s.whole, Seen: of.empty, Since: of.empty}.Gone(at, s.hold)
	if !over && len(of.offers) == 0 {
		s.next = absence.Earlier(s.next, of.empty.Add(s.hold))
		return
	}
	of.opaque, of.empty, s.dirty[p.ID] = false, time.Time{}, true
	if len(of.offers) == 0 {
		delete(s.services, p)
	}
}

// lost is what is known of an endpoint that is not listed.
func (s *state) lost(e entry, at time.Time) view.Lost {
	seen := e.seen
	if e.since.IsZero() {
		if seen = s.before; e.memory == s.memory {
			seen = at
		}
	}
	return view.Lost{
		Same: e.memory == s.memory, Whole: s.whole, Deleted: s.deleted[spotOf(e.Endpoint)], Seen: seen, Since: cmp.Or(e.since, at),
	}
}

// stays reports whether an endpoint that is not served stays, as it may be there all the same.
func (s *state) stays(of *service, e entry, at time.Time) bool {
	sp := spotOf(e.Endpoint)
	switch {
	case of.off[sp]: // it says itself that it is not to be called
		return false
	case len(s.listed[sp]) > 0: // what is there now is something else
		return false
	case len(of.apps) > 0 && !slices.ContainsFunc(of.apps, s.selects):
		return false
	}
	return !s.lost(e, at).Gone(at, s.hold)
}

// rename gives all hosts their names, and has those published again of which it is another one.
func (s *state) rename() {
	ids := map[mapping.ID]bool{}
	same := true
	for p, of := range s.services {
		if of.opaque {
			continue
		}
		ids[p.ID] = true
		_, known := s.names[p.ID]
		same = same && known
	}
	if same && len(ids) == len(s.names) {
		return
	}
	names := s.mapper.Names(slices.Collect(maps.Keys(ids)))
	for id, n := range names {
		if before, there := s.names[id]; there && before != n {
			s.dirty[id] = true
		}
	}
	s.names = names
}

// held is how many endpoints stay that are not listed.
func (s *state) held() (n int) {
	for _, of := range s.services {
		n += of.held
	}
	return n
}

// doubts are the endpoints that are not listed, and since when.
func (s *state) doubts() map[string]time.Time {
	all := map[string]time.Time{}
	for p, of := range s.services {
		for _, k := range of.endpoints {
			if !k.Of.since.IsZero() {
				all[doubtKey(p, spotOf(k.Of.Endpoint))] = k.Of.since
			}
		}
	}
	return all
}

func doubtKey(p port, sp spot) string {
	return fmt.Sprintf("%s %t %s %d", p.ID, p.secure, sp.address, sp.port)
}
