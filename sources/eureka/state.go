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

// state is what a Eureka lists, and what that proves. It does no I/O and has no clock. What is listed or not is an instance, known by
// mapping.InstanceOf.
type state struct {
	*registry.Machine[mapping.ID]
	mapper  *mapping.Mapper
	selects func(app string) bool
	hold    time.Duration

	present map[string]*presence // what is listed
	lost    map[string]*loss     // what was, and is not
	deleted map[string]deletion  // what the server says has gone
	places  places               // what is listed at each place, whether it is to be called or not
	whole   bool                 // the server lists all that it has
	forgot  bool                 // its memory is not the one that an earlier run read
	read    time.Time            // when the last reading was
	outage  time.Time            // when a memory was read first after a time in which nothing could be
	asked   time.Time            // when the servers were asked last for those of whom nothing has to be decided
	version int                  // counts what was noted
	left    int                  // applications that are listed and left out, as the settings say
	out     []string             // instances that cannot be read or called, and why
}

// presence is an instance that is listed, or that an earlier run published.
type presence struct {
	key    wire.Key // none if that is not known
	serves bool
	broken bool // nothing can be read of it but that it may be to be called
	places places
}

// deletion is an end of which a server tells.
type deletion struct {
	evicted int64 // when, as the server writes it
	when    time.Time
	said    bool // by the instance: its lease had not expired
}

// loss is an instance that was listed, and is not.
type loss struct {
	key        wire.Key  // none if that is not known
	same       bool      // the memory that is read is the one that listed it
	seen       time.Time // when it was known to be there last
	missing    time.Time // since when it could be listed, and is not
	confirmed  string    // the server that says that it is there, though it is not listed; empty if none does
	refuted    int64     // the end that a server told of, when it was confirmed: it is back, or still there
	asked      time.Time // when servers were asked for it last
	unanswered time.Time // since when they do not answer, though it is to be decided; zero if they do
	gone       bool      // it is decided
	beside     places    // what was listed at its places when it was
}

// place is where something is called.
type place struct {
	address string
	port    uint32
}

func placeOf(e registry.Endpoint) place { return place{e.Address, e.Port} }

// places are the services that are called at each place.
type places map[place]map[mapping.ID]bool

func (p places) add(e registry.Endpoint, id mapping.ID) {
	if p[placeOf(e)] == nil {
		p[placeOf(e)] = map[mapping.ID]bool{}
	}
	p[placeOf(e)][id] = true
}

func newState(m *mapping.Mapper, s Settings) *state {
	all := &state{mapper: m, selects: s.selects, hold: s.Hold, present: map[string]*presence{}, lost: map[string]*loss{}, places: places{}}
	all.Machine = registry.NewMachine(m, func(mapping.ID) time.Duration { return s.KeepEmpty }, all.until)
	return all
}

// restore remembers what an earlier run published of a host. It was listed by the memory that run read last, unless it is lost.
func (s *state) restore(group string, published []*resource.Resource) {
	s.Restore(group, published, func(of registry.Service[mapping.ID]) bool {
		if len(of.Owners) > 0 && !slices.ContainsFunc(of.Owners, s.selects) {
			return false // it is none of those to read now
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

// note notes what a server lists.
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
		if r.outage { // nobody could register while no server was there
			s.outage = at
		}
	}
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

// list notes what instances offer.
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
		if i.IP != "" && i.IP != i.ID && !strings.Contains(why, strconv.Quote(i.IP)) { // who asks for its address is to find it, too
			why += ", at " + i.IP
		}
		for _, group := range s.mapper.Groups(i) {
			of := all[group]
			of.LeftOut = append(of.LeftOut, sources.LeftOut{What: i.ID, Of: i.App, Why: why})
			all[group] = of
		}
	}
	instances := r.view.Instances()
	// Of several instances at one place, as of a process that was killed and came back with another name, the last one is there.
	slices.SortStableFunc(instances, func(a, b wire.Instance) int { return cmp.Compare(b.Dirty, a.Dirty) })
	for _, i := range instances {
		if !s.selects(i.App) {
			left[i.App] = true
			continue
		}
		p := &presence{key: i.Key, serves: s.mapper.Serves(i), places: places{}}
		s.present[mapping.InstanceOf(i.Key)] = p
		if i.Broken != nil { // nothing was ever read of it
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

// until is until when an endpoint stays that is not listed.
func (s *state) until(id mapping.ID, k registry.Known[registry.Endpoint]) time.Time {
	instance := k.Value.Instance
	l := s.lost[instance]
	switch p := s.present[instance]; {
	case p != nil && p.broken:
		return registry.Forever
	case p != nil: // what it says of itself is something else now
		return time.Time{}
	case l == nil && s.whole && !s.forgot:
		return time.Time{}
	case l == nil:
		return latest(k.Missing, s.outage).Add(s.hold)
	case l.gone || s.replaced(id, k.Value, l):
		return time.Time{}
	case !l.unanswered.IsZero(): // that has an end: a server that never says anything keeps nobody
		return latest(s.deadline(instance, l), l.unanswered.Add(s.hold))
	}
	return s.deadline(instance, l)
}

// deadline is until when an instance stays that is lost, by what the server that is read lists: one that was just started lists nothing
// until its instances register anew, or its peers have told it of them.
func (s *state) deadline(instance string, l *loss) time.Time {
	end, deleted := s.deleted[instance]
	deleted = deleted && (l.confirmed == "" || end.evicted != l.refuted)
	switch {
	case l.same && (s.whole || deleted):
		return time.Time{}
	case deleted && end.when.After(l.seen):
		return time.Time{} // whoever listed it did not know yet
	}
	return latest(l.missing, s.outage).Add(s.hold)
}

// replaced reports whether something is listed at the place of an endpoint that was not there beside it: then what is there now is that.
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

// held is how many endpoints stay that are in doubt, and elsewhere and here how many instances are there by the word of another server than
// the one that is followed, and by its own.
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

// doubt is what a run tells the next one of an instance that is lost.
type doubt struct {
	App   string    `json:"app,omitempty"`
	ID    string    `json:"id,omitempty"`
	Since time.Time `json:"since"`
	// Elsewhere is the server that says that it is there, if it is another one than the one that is followed.
	Elsewhere string `json:"elsewhere,omitempty"`
}

// doubts are what is lost, by instance.
func (s *state) doubts(followed string) map[string]doubt {
	all := map[string]doubt{}
	for instance, l := range s.lost {
		if d := (doubt{l.key.App, l.key.ID, latest(l.missing, s.outage), l.confirmed}); !l.gone {
			if d.Elsewhere == followed {
				d.Elsewhere = ""
			}
			all[instance] = d
		}
	}
	return all
}

// recall takes the doubts of an earlier run.
func (s *state) recall(doubts map[string]doubt) {
	for instance, d := range doubts {
		s.lost[instance] = &loss{key: wire.Key{App: d.App, ID: d.ID}, seen: d.Since, missing: d.Since, confirmed: d.Elsewhere}
	}
}
