package eureka

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// entry is an endpoint, and what is known of it when its instance is not listed.
type entry struct {
	mapping.Endpoint
	key     wire.Key      // of its instance; none if that is not known
	earlier bool          // an earlier run published it, and it was not listed since
	beside  map[port]bool // what was listed at its place, itself too, when it was; nil if that was nothing else
	memory  int           // that listed it last
	seen    time.Time     // when it was listed last, if it is not
	since   time.Time     // since when it could be listed, and is not; zero if it is listed
}

func compareEntries(a, b entry) int { return a.Compare(b.Endpoint) }

// news are what a reading says of what it does not serve.
type news struct {
	instances  map[mapping.Instance]bool          // that are listed and can be read
	unreadable map[mapping.Instance]wire.Instance // that are listed, and of which nothing was ever read
	places     places                             // what is listed at each place, whether it is to be called or not
	deleted    map[mapping.Instance]time.Time     // when instances went that the server says have gone
}

func newNews() news {
	return news{
		instances: map[mapping.Instance]bool{}, unreadable: map[mapping.Instance]wire.Instance{}, places: places{},
		deleted: map[mapping.Instance]time.Time{},
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
	s.news.deleted[mapping.InstanceOf(i.Key)] = when
}

// judge is what the last reading says of an endpoint that it does not name.
func (s *state) judge(p port, of *service, e entry) registry.Judgement {
	broken, unreadable := s.news.unreadable[e.Instance]
	switch {
	case s.news.instances[e.Instance]: // what it says of itself is something else now
		return registry.Off
	case len(of.apps) > 0 && !slices.ContainsFunc(of.apps, s.selects):
		return registry.Off
	case unreadable && !s.mapper.MayServe(broken):
		return registry.Off
	case unreadable:
		return registry.Unreadable
	case s.replaced(p, e):
		return registry.Off
	}
	return registry.Missing
}

// replaced reports whether something is listed at the place of an endpoint that was not there beside it: then what is there now is that.
func (s *state) replaced(p port, e entry) bool {
	sp, beside := spotOf(e.Endpoint), e.beside
	if e.earlier {
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
	return view.Lost{Same: e.memory == s.memory, Whole: s.whole, Deleted: s.news.deleted[e.Instance], Seen: seen, Since: cmp.Or(e.since, at)}
}
