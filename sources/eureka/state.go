package eureka

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// state has the instances that a Eureka lists, and decides what a listing proves. It does no I/O and has no clock. Its maps are keyed by
// mapping.InstanceOf.
type state struct {
	*registry.Machine[mapping.ID]
	mapper  *mapping.Mapper
	selects func(app string) bool
	holdFor time.Duration

	present map[string]*presence // listed instances
	lost    map[string]*loss     // instances that are no longer listed
	deleted map[string]deletion  // instances that the server reports as gone
	places  places               // the services listed at each place, whether they have calls or not
	whole   bool                 // the server lists everything that it has
	forgot  bool                 // its memory is not the one that an earlier run read
	read    time.Time            // of the last reading
	away    time.Time            // since when no server answers; zero while one does
	asked   time.Time            // when the servers were last asked about instances that are not due
	version int                  // counts readings
	left    int                  // listed applications that the settings leave out
	out     []string             // instances that cannot be read or called, and why
}

// presence is an instance that is listed, or that an earlier run published.
type presence struct {
	key    wire.Key // empty if unknown
	serves bool
	broken bool // it cannot be read, but may serve something
	places places
}

// deletion is the end of an instance, as a server reports it.
type deletion struct {
	evicted int64 // the server's time stamp
	when    time.Time
	said    bool // the instance deregistered: its lease had not expired
}

// loss is an instance that is no longer listed.
type loss struct {
	key             wire.Key  // empty if unknown
	same            bool      // the server still has the memory that listed it
	seen            time.Time // when it was last known to be there
	missing         time.Time // when it was first missing from a listing
	confirmed       string    // the server that confirms it although it is not listed; empty if none does
	ignoredEviction int64     // deletion.evicted at its confirmation: it outlived that one
	asked           time.Time // when servers were last asked about it
	unanswered      time.Time // since when servers do not answer although it is due; zero if they do
	gone            bool      // it has gone for certain
	beside          places    // the services listed at its places together with it
}

// place is an address and port.
type place struct {
	address string
	port    uint32
}

func placeOf(e registry.Endpoint) place { return place{e.Address, e.Port} }

// places are the services at each place.
type places map[place]map[mapping.ID]bool

func (p places) add(e registry.Endpoint, id mapping.ID) {
	if p[placeOf(e)] == nil {
		p[placeOf(e)] = map[mapping.ID]bool{}
	}
	p[placeOf(e)][id] = true
}

func newState(m *mapping.Mapper, s Settings) *state {
	all := &state{mapper: m, selects: s.selects, holdFor: s.Hold, present: map[string]*presence{}, lost: map[string]*loss{}, places: places{}}
	all.Machine = registry.NewMachine(m, func(mapping.ID) time.Duration { return s.KeepEmpty }, all.keepUntil)
	return all
}

// restore takes back what an earlier run published of a host. Its instances count as listed unless they are lost.
func (s *state) restore(group string, published []*resource.Resource) {
	s.Restore(group, published, func(of registry.Service[mapping.ID]) bool {
		if len(of.Owners) > 0 && !slices.ContainsFunc(of.Owners, s.selects) {
			return false // the settings no longer select it
		}
		for _, e := range of.Endpoints {
			s.places.add(e, of.ID)
			if l := s.lost[e.Instance]; l != nil {
				l.beside = s.places
			} else if e.Instance != "" {
				s.present[e.Instance] = &presence{serves: true, places: s.places}
			}
		}
		return true
	})
}

// note takes a reading of a server.
func (s *state) note(r reading, at time.Time) {
	before := cmp.Or(s.read, at)
	s.read, s.whole = at, r.view.Whole()
	s.version++
	s.Explained = s.whole && r.same && !r.outage
	if !r.same {
		s.forgot = true
		for _, l := range s.lost {
			l.same, l.confirmed = false, ""
		}
	}
	if r.outage && !s.away.IsZero() {
		s.postpone(max(0, at.Sub(s.away)))
	}
	s.away = time.Time{}
	s.deleted = map[string]deletion{}
	for _, i := range r.deleted {
		s.deleted[mapping.InstanceOf(i.Key)] = deletion{i.Evicted, time.UnixMilli(i.Evicted).Add(-r.ahead), i.Renews(i.Evicted)}
	}
	was, beside := s.present, s.places
	s.list(r)
	for instance, p := range was {
		if !p.serves || s.present[instance] != nil || s.lost[instance] != nil {
			continue
		}
		l := &loss{key: p.key, same: r.same, seen: at, missing: at, beside: places{}}
		if !r.same {
			l.seen = before
		}
		for at := range p.places {
			l.beside[at] = beside[at]
		}
		s.lost[instance] = l
	}
	maps.DeleteFunc(s.lost, func(instance string, l *loss) bool { return l.gone || s.present[instance] != nil })
	s.Reconsider()
}

// postpone lets all holds end later: no instance could register during an outage.
func (s *state) postpone(pause time.Duration) {
	s.Postpone(pause)
	for _, l := range s.lost {
		l.missing = l.missing.Add(pause)
	}
}

// list turns instances into offers.
func (s *state) list(r reading) {
	s.present, s.places, s.out = map[string]*presence{}, places{}, nil
	if r.nameless > 0 {
		s.out = append(s.out, fmt.Sprintf("%s without a name: %v", words.Count(r.nameless, "instance", "instances"), r.why))
	}
	broken := r.view.Broken()
	for _, key := range slices.SortedFunc(maps.Keys(broken), wire.Key.Compare) {
		s.out = append(s.out, fmt.Sprintf("%s cannot be read: %v", key, broken[key]))
	}
	left := map[string]bool{}
	all := map[string]registry.Offers[mapping.ID]{}
	leave := func(i wire.Instance, why string) {
		if i.IP != "" && i.IP != i.ID && !strings.Contains(why, strconv.Quote(i.IP)) { // so that a search for its address finds it
			why += ", at " + i.IP
		}
		for _, group := range s.mapper.Groups(i) {
			of := all[group]
			of.LeftOut = append(of.LeftOut, sources.LeftOut{What: i.ID, Of: i.App, Why: why})
			all[group] = of
		}
	}
	instances := r.view.Instances()
	// Of several instances at one place, e.g. of a process that was killed and returned with another name, the newest counts.
	slices.SortStableFunc(instances, func(a, b wire.Instance) int { return cmp.Compare(b.Dirty, a.Dirty) })
	for _, i := range instances {
		if !s.selects(i.App) {
			left[i.App] = true
			continue
		}
		p := &presence{key: i.Key, serves: s.mapper.Serves(i), places: places{}}
		s.present[mapping.InstanceOf(i.Key)] = p
		if i.Broken != nil { // it was never readable
			p.broken, p.serves = s.mapper.MayServe(i), false
			leave(i, "cannot be read: "+i.Broken.Error())
			continue
		}
		offers, warnings, err := s.mapper.Offers(i)
		if err != nil {
			s.out = append(s.out, fmt.Sprintf("%s: %v", i.Key, err))
			leave(i, err.Error())
		}
		for _, o := range offers {
			group := o.ID.Group()
			of := all[group]
			for _, w := range warnings {
				of.Warnings = append(of.Warnings, i.String()+": "+w)
			}
			if s.places[placeOf(o.Endpoint)][o.ID] {
				o.State, o.Why = registry.Unlisted, ""
			}
			s.places.add(o.Endpoint, o.ID)
			p.places.add(o.Endpoint, o.ID)
			of.All = append(of.All, o)
			all[group] = of
		}
	}
	s.left = len(left)
	s.TakeAll(all)
}

// keepUntil returns how long an unlisted endpoint stays.
func (s *state) keepUntil(id mapping.ID, k registry.Known[registry.Endpoint]) time.Time {
	instance := k.Value.Instance
	l := s.lost[instance]
	switch p := s.present[instance]; {
	case p != nil && p.broken:
		return registry.Forever
	case p != nil: // its registration has changed
		return time.Time{}
	case l == nil && s.whole && !s.forgot:
		return time.Time{}
	case l == nil:
		return k.Missing.Add(s.holdFor)
	case l.gone || s.replaced(id, k.Value, l):
		return time.Time{}
	case !l.unanswered.IsZero(): // no longer than the hold: a silent server keeps nobody for ever
		return latest(s.holdEnd(instance, l), l.unanswered.Add(s.holdFor))
	}
	return s.holdEnd(instance, l)
}

// holdEnd returns how long a lost instance stays, by the listing of the followed server. A server that just started lists nothing until
// instances register again or its peers replicate them.
func (s *state) holdEnd(instance string, l *loss) time.Time {
	end, deleted := s.deleted[instance]
	deleted = deleted && (l.confirmed == "" || end.evicted != l.ignoredEviction)
	switch {
	case l.same && (s.whole || deleted):
		return time.Time{}
	case deleted && end.when.After(l.seen):
		return time.Time{} // it was listed before its end was known
	}
	return l.missing.Add(s.holdFor)
}

// replaced reports whether a service is listed at the place of an endpoint that was not there beside it: it took the place.
func (s *state) replaced(id mapping.ID, e registry.Endpoint, l *loss) bool {
	for other := range s.places[placeOf(e)] {
		if other != id && l.beside != nil && !l.beside[placeOf(e)][other] {
			return true
		}
	}
	return false
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// held counts the endpoints that stay in doubt, and the unlisted instances that another server (elsewhere) or the followed one (here)
// confirms.
func (s *state) held(followed string) (held, elsewhere, here int) {
	for _, l := range s.lost {
		switch {
		case l.gone || l.confirmed == "":
		case l.confirmed == followed:
			here++
		default:
			elsewhere++
		}
	}
	if _, held = s.Services(); held > 0 && here+elsewhere > 0 {
		held = 0
		s.Endpoints(func(_ mapping.ID, k registry.Known[registry.Endpoint]) {
			if l := s.lost[k.Value.Instance]; !k.Missing.IsZero() && (l == nil || l.confirmed == "") {
				held++
			}
		})
	}
	return held, elsewhere, here
}

// doubt is a lost instance, as a run keeps it for the next one.
type doubt struct {
	App   string    `json:"app,omitempty"`
	ID    string    `json:"id,omitempty"`
	Since time.Time `json:"since"`
	// Elsewhere is the server that confirms the instance, if that is not the followed one.
	Elsewhere  string    `json:"elsewhere,omitempty"`
	Unanswered time.Time `json:"unanswered,omitzero"`
}

// doubts returns the lost instances.
func (s *state) doubts(followed string) map[string]doubt {
	all := map[string]doubt{}
	for instance, l := range s.lost {
		if d := (doubt{l.key.App, l.key.ID, l.missing, l.confirmed, l.unanswered}); !l.gone {
			if d.Elsewhere == followed {
				d.Elsewhere = ""
			}
			all[instance] = d
		}
	}
	return all
}

// recall takes back the note of an earlier run, before restore. Until a server answers, all count as away.
func (s *state) recall(n note, now time.Time) {
	s.away = registry.Recalled(cmp.Or(n.Away, now), now)
	for instance, d := range n.Doubts {
		since := registry.Recalled(d.Since, now)
		s.lost[instance] = &loss{key: wire.Key{App: d.App, ID: d.ID}, seen: since, missing: since, confirmed: d.Elsewhere}
		if !d.Unanswered.IsZero() {
			s.lost[instance].unanswered = registry.Recalled(d.Unanswered, now)
		}
	}
}
