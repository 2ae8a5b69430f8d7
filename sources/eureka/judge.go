package eureka

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tributary/sources/absence"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
)

// entry is an endpoint, of which instance it is, and what is known of it when that is not listed.
type entry struct {
	mapping.Endpoint
	id     wire.Key      // zero if an earlier run published it, and it was not listed since
	beside map[port]bool // what was listed at its place, itself too, when it was; nil if that was nothing else
	memory int           // that listed it last
	seen   time.Time     // when it was listed last, if it is not
	since  time.Time     // since when it could be listed, and is not; zero if it is listed
}

func compareEntries(a, b entry) int { return a.Compare(b.Endpoint) }

// news are what a reading says of what it does not serve.
type news struct {
	instances  map[wire.Key]bool          // that are listed and can be read
	unreadable map[wire.Key]wire.Instance // that are listed, and of which nothing was ever read
	places     places                     // what is listed at each place, whether it is to be called or not
	deleted    map[wire.Key]time.Time     // when instances went that the server says have gone
	deletedAt  map[spot]time.Time         // the same, by their places
}

func newNews() news {
	return news{
		instances: map[wire.Key]bool{}, unreadable: map[wire.Key]wire.Instance{}, places: places{},
		deleted: map[wire.Key]time.Time{}, deletedAt: map[spot]time.Time{},
	}
}

// places are what is called at each place.
type places map[spot]map[port]bool

func (ps places) add(at spot, p port) {
	if ps[at] == nil {
		ps[at] = map[port]bool{}
	}
	ps[at][p] = true
}

// delete notes that the server says that an instance has gone.
func (s *state) delete(i wire.Instance, when time.Time) {
	s.news.deleted[i.Key] = when
	offers, _, _ := s.mapper.Offers(i) // of what cannot be called nothing was believed
	for _, o := range offers {
		if sp := spotOf(o.Endpoint); when.After(s.news.deletedAt[sp]) {
			s.news.deletedAt[sp] = when
		}
	}
}

// judge is what the last reading says of an endpoint that it does not name.
func (s *state) judge(p port, of *service, e entry) absence.Judgement {
	broken, unreadable := s.news.unreadable[e.id]
	switch {
	case s.news.instances[e.id]: // what it says of itself is something else now
		return absence.Off
	case len(of.apps) > 0 && !slices.ContainsFunc(of.apps, s.selects):
		return absence.Off
	case unreadable && !s.mapper.MayServe(broken):
		return absence.Off
	case unreadable || e.id == (wire.Key{}) && s.mayBeUnreadable(of, e):
		return absence.Unreadable
	case s.replaced(p, e):
		return absence.Off
	}
	return absence.Missing
}

// mayBeUnreadable reports whether an endpoint may be one of an instance that is listed and cannot be read: of its application, and at its address if that can
// be read.
func (s *state) mayBeUnreadable(of *service, e entry) bool {
	for key, i := range s.news.unreadable {
		if slices.Contains(of.apps, key.App) && s.mapper.MayServe(i) && s.mapper.MayBeAt(i, e.Endpoint) {
			return true
		}
	}
	return false
}

// replaced reports whether something is listed at the place of an endpoint that was not there beside it: then what is there now is that.
func (s *state) replaced(p port, e entry) bool {
	sp, beside := spotOf(e.Endpoint), e.beside
	if e.id == (wire.Key{}) {
		beside = s.restored[sp]
	}
	for other := range maps.Keys(s.news.places[sp]) {
		if other != p && !beside[other] {
			return true
		}
	}
	return false
}

// lost is what is known of an endpoint that is not listed.
func (s *state) lost(e entry, at time.Time) view.Lost {
	seen := e.seen
	if e.since.IsZero() {
		if seen = s.before; e.memory == s.memory {
			seen = at
		}
	}
	deleted := s.news.deleted[e.id]
	if e.id == (wire.Key{}) {
		deleted = s.news.deletedAt[spotOf(e.Endpoint)]
	}
	return view.Lost{Same: e.memory == s.memory, Whole: s.whole, Deleted: deleted, Seen: seen, Since: cmp.Or(e.since, at)}
}
