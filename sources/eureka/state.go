package eureka

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
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
	settled int       // counts how often it was decided what is believed
	news    news      // of the last reading
	next    time.Time // when it has to be decided again
	left    int       // applications that are listed and left out, as the settings say
	others  int       // instances that only another server lists than the one that is followed
	lacking bool      // something is believed that is not listed
	out     []string  // instances that cannot be read or called, and why
	leaves  map[mapping.ID][]sources.LeftOut

	reading reading                        // the last one that said anything new
	vouched map[wire.Key]vouched           // who is not listed, and is there all the same
	unheard map[mapping.Instance]time.Time // of whom the server was asked and has not said anything, and since when
	silent  keySet                         // whom it was asked for last, and did not answer
	asked   time.Time                      // when it was asked last for what need not be decided
	turn    wire.Key                       // who is asked for next of those that are in doubt
	batch   int                            // how many of these at a time
	keys    map[mapping.Instance]wire.Key  // of what was in doubt in an earlier run

	vouchedTurn wire.Key // who is asked for next of those that are vouched for

	restored places // what an earlier run published at each place
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
	said     []registry.Said[entry]
	apps     []string
	warnings []string

	// believed
	registry.Record[entry]
	port    mapping.Port
	doubted bool // some endpoints were held before that was decided last
	opaque  bool // an earlier run published it, and what cannot be told
}

func newState(m *mapping.Mapper, s Settings) *state {
	return &state{
		mapper: m, selects: s.selects, hold: s.Hold, keep: s.KeepEmpty, services: map[port]*service{}, names: map[mapping.ID]mapping.Name{},
		dirty: map[mapping.ID]bool{}, memory: 1, restored: places{}, vouched: map[wire.Key]vouched{},
	}
}

// restore remembers what an earlier run published of a host; nothing if that cannot be told. What of it was not listed then is in doubt
// since the times that it noted; all else was listed by the memory that it read last.
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
		was := p
		p.ID = s.mapper.RestoredID(one)
		of := s.services[p]
		if of == nil {
			of = &service{port: one.Port}
			s.services[p], s.dirty[p.ID] = of, true
		}
		of.apps = slices.Compact(slices.Sorted(slices.Values(append(of.apps, one.Apps...))))
		for _, e := range one.Endpoints {
			known := entry{Endpoint: e, key: s.keys[e.Instance], earlier: true, memory: s.memory}
			s.restored.add(spotOf(e), p)
			if since, there := doubts[doubtKey(was, spotOf(e))]; there {
				known.memory, known.seen, known.since = 0, since, since
			}
			of.Endpoints = append(of.Endpoints, registry.Known[entry]{Of: known})
		}
		byEndpoint := func(a, b registry.Known[entry]) int { return compareEntries(a.Of, b.Of) }
		slices.SortFunc(of.Endpoints, byEndpoint)
		of.Endpoints = slices.CompactFunc(of.Endpoints, func(a, b registry.Known[entry]) bool { return byEndpoint(a, b) == 0 })
	}
}

// note notes what a server lists.
func (s *state) note(r reading, at time.Time) {
	s.reading = r
	if !r.same {
		s.memory++
		s.before = cmp.Or(s.read, at)
	}
	s.read, s.whole, s.others = at, r.view.Whole(), len(r.elsewhere)
	if r.outage && !r.same {
		s.wait(at)
	}
	s.news = newNews()
	for _, i := range r.deleted {
		s.delete(i, time.UnixMilli(i.Evicted).Add(-r.ahead))
	}
	s.list(r)
}

// due reports whether something is to be decided though nothing is new.
func (s *state) due(at time.Time) bool { return !s.next.IsZero() && !at.Before(s.next) }

// wait begins the time anew in which what is in doubt can be listed: nobody could register while no server was there.
func (s *state) wait(at time.Time) {
	for _, of := range s.services {
		for n := range of.Endpoints {
			if e := &of.Endpoints[n].Of; !e.since.IsZero() {
				e.since = at
			}
		}
	}
}

// list notes what instances offer.
func (s *state) list(r reading) {
	s.news.instances, s.news.unreadable, s.news.places = map[mapping.Instance]bool{}, map[mapping.Instance]wire.Instance{}, places{}
	maps.DeleteFunc(s.vouched, func(key wire.Key, _ vouched) bool { return r.view.Lists(key) })
	warned := make(map[port][]string, len(s.services))
	for p, of := range s.services {
		warned[p] = of.warnings
		of.offers, of.said, of.warnings = nil, nil, nil
	}
	s.out = nil
	if r.nameless > 0 {
		s.out = append(s.out, fmt.Sprintf("%s without a name: %v", words.Count(r.nameless, "instance", "instances"), r.why))
	}
	broken := r.view.Broken()
	for _, key := range slices.SortedFunc(maps.Keys(broken), wire.Key.Compare) {
		s.out = append(s.out, fmt.Sprintf("%s cannot be read: %v", key, broken[key]))
	}
	var instances []wire.Instance
	left := map[string]bool{}
	before := s.leaves
	s.leaves = map[mapping.ID][]sources.LeftOut{}
	all := append(r.view.Instances(), slices.DeleteFunc(slices.Clone(r.elsewhere), func(i wire.Instance) bool {
		_, here := s.vouched[i.Key]
		return here
	})...)
	for _, key := range slices.SortedFunc(maps.Keys(s.vouched), wire.Key.Compare) {
		all = append(all, s.vouched[key].Instance)
	}
	for _, i := range all {
		switch {
		case !s.selects(i.App):
			left[i.App] = true
		case i.Broken != nil: // nothing was ever read of it
			s.news.unreadable[mapping.InstanceOf(i.Key)] = i
			s.leaveWhole(i, "cannot be read: "+i.Broken.Error())
		default:
			s.news.instances[mapping.InstanceOf(i.Key)] = true
			instances = append(instances, i)
		}
	}
	s.left = len(left)
	// Of several instances at one place, as of a process that was killed and came back with another name, the last one is there.
	slices.SortStableFunc(instances, func(a, b wire.Instance) int { return cmp.Compare(b.Dirty, a.Dirty) })
	apps := map[port]map[string]bool{}
	for _, i := range instances {
		offers, warnings, err := s.mapper.Offers(i)
		if err != nil {
			s.out = append(s.out, fmt.Sprintf("%s: %v", i.Key, err))
			s.leaveWhole(i, err.Error())
		}
		is := registry.Off
		if s.mapper.Serves(i) {
			is = registry.Listed
		}
		memory := s.memory
		if v, here := s.vouched[i.Key]; here {
			memory = v.memory
		} else if !r.view.Lists(i.Key) {
			memory = 0 // the server that is read has lost it, and its silence proves nothing
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
			if !s.news.places[sp][p] {
				if is == registry.Off {
					s.leave(p.ID, i, net.JoinHostPort(sp.address, strconv.Itoa(int(sp.port))), offWhy(i))
				}
				of.said = append(of.said, registry.Said[entry]{Of: entry{Endpoint: o.Endpoint, key: i.Key, memory: memory}, Is: is})
				s.news.places.add(sp, p)
			}
		}
	}
	for p, of := range s.services {
		for n := range of.said {
			if e := &of.said[n].Of; len(s.news.places[spotOf(e.Endpoint)]) > 1 {
				e.beside = s.news.places[spotOf(e.Endpoint)]
			}
		}
		if !slices.Equal(warned[p], of.warnings) {
			s.dirty[p.ID] = true
		}
		if all := slices.Sorted(maps.Keys(apps[p])); len(all) > 0 && !slices.Equal(all, of.apps) {
			of.apps, s.dirty[p.ID] = all, true
		}
	}
	// A host of which nothing is served has something to say, too.
	for _, all := range []map[mapping.ID][]sources.LeftOut{before, s.leaves} {
		for id := range all {
			if !slices.Equal(before[id], s.leaves[id]) {
				s.dirty[id] = true
			}
		}
	}
}

// leave notes that an instance of a host is not served.
func (s *state) leave(id mapping.ID, i wire.Instance, what, why string) {
	s.leaves[id] = append(s.leaves[id], sources.LeftOut{What: what, Of: i.App, Why: why})
}

// leaveWhole notes that an instance is not served anywhere. Who asks for its address is to find it, too.
func (s *state) leaveWhole(i wire.Instance, why string) {
	if i.IP != "" && i.IP != i.ID && !strings.Contains(why, strconv.Quote(i.IP)) {
		why += ", at " + i.IP
	}
	for _, id := range s.mapper.IDs(i) {
		s.leave(id, i, i.ID, why)
	}
}

// offWhy is why an instance is not to be called.
func offWhy(i wire.Instance) string {
	if i.Overridden != wire.Unknown && i.Overridden != i.Status {
		return "status " + i.Status + ", set to " + i.Overridden
	}
	return "status " + i.Status
}

// settle decides what is believed, and when that has to be decided again.
func (s *state) settle(at time.Time) {
	s.next, s.lacking = time.Time{}, false
	s.settled++
	for p, of := range s.services {
		before, kept := of.Record, false
		of.doubted = before.Held > 0
		of.Record, kept = before.Settle(registry.Reading[entry]{
			Said:   of.said,
			Unsaid: func(e entry) registry.Judgement { return s.judge(p, of, e) },
			InDoubt: func(k registry.Known[entry]) bool {
				return !s.lost(k.Of, at).Gone(at, s.hold) || s.awaits(k.Of.Instance, at)
			},
		}, compareEntries, at, s.keep)
		for n := range of.Endpoints {
			e := &of.Endpoints[n].Of
			switch {
			case s.news.places[spotOf(e.Endpoint)][p]:
			case s.judge(p, of, *e) == registry.Unreadable: // it is listed, after all
				e.memory, e.seen, e.since = s.memory, time.Time{}, time.Time{}
			default:
				lost := s.lost(*e, at)
				e.seen, e.since, s.lacking = lost.Seen, lost.Since, true
				if end := e.since.Add(s.hold); s.awaits(e.Instance, at) {
					s.next = registry.Earlier(s.next, at.Add(pause))
				} else {
					s.next = registry.Earlier(s.next, end)
				}
			}
		}
		portNow := s.portOf(of)
		if portNow != of.port || !slices.EqualFunc(before.Endpoints, of.Endpoints,
			func(a, b registry.Known[entry]) bool { return a.Of.Same(b.Of.Endpoint) }) {
			of.port, s.dirty[p.ID] = portNow, true
		}
		if of.opaque {
			s.reveal(p, of, at)
			continue
		}
		// One that has instances, of which none can be called now, is kept as long as it has them.
		switch {
		case kept && !of.Empty.IsZero():
			s.next = registry.Earlier(s.next, of.Empty.Add(s.keep))
		case !kept && len(of.offers) == 0:
			delete(s.services, p)
			s.dirty[p.ID] = true
		}
	}
}

// portOf returns the port of a service: while something that is not listed is in doubt, what it was.
func (s *state) portOf(of *service) mapping.Port {
	if of.Held > 0 && of.port.Number != 0 {
		return of.port
	}
	return s.mapper.PortOf(of.offers, of.port)
}

// reveal has what cannot be told of an earlier run go when it is listed, or when it would have gone.
func (s *state) reveal(p port, of *service, at time.Time) {
	if of.Empty.IsZero() {
		of.Empty = at
	}
	over := view.Lost{Same: s.memory == 1, Whole: s.whole, Seen: of.Empty, Since: of.Empty}.Gone(at, s.hold)
	if !over && len(of.offers) == 0 {
		s.next = registry.Earlier(s.next, of.Empty.Add(s.hold))
		return
	}
	of.opaque, of.Empty, s.dirty[p.ID] = false, time.Time{}, true
	if len(of.offers) == 0 {
		delete(s.services, p)
	}
}

// rename gives all hosts their names, and has those published again of which it is another one.
func (s *state) rename() {
	owners := map[mapping.ID]mapping.ID{}
	for p, of := range s.services {
		if !of.opaque {
			owners[p.ID] = p.ID
		}
	}
	s.names = registry.Rename(s.names, owners, s.mapper.Names, func(id mapping.ID) { s.dirty[id] = true })
}

// held is how many endpoints stay that are not listed.
func (s *state) held() (n int) {
	for _, of := range s.services {
		n += of.Held
	}
	return n
}

// doubts are the endpoints that are not listed by the server that is followed, and since when.
func (s *state) doubts() map[string]time.Time {
	all := map[string]time.Time{}
	for p, of := range s.services {
		for _, k := range of.Endpoints {
			since := k.Of.since
			// only another server lists it, or nothing that is listed
			if _, here := s.vouched[k.Of.key]; since.IsZero() && (here || k.Of.memory == 0) {
				since = s.read
			}
			if !since.IsZero() {
				all[doubtKey(p, spotOf(k.Of.Endpoint))] = since
			}
		}
	}
	return all
}

func doubtKey(p port, sp spot) string {
	return fmt.Sprintf("%s %t %s %d", p.ID, p.secure, sp.address, sp.port)
}
