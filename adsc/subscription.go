package adsc

import (
	"context"
	"maps"
	"time"
)

// subscription is a Subscription and how far it got. It lives as long as the client: versions survive a reconnect, nonces
// do not. All of it is guarded by Client.mu.
type subscription struct {
	typeURL string
	handler Handler
	absent  func(ctx context.Context, names []string) // nil for none
	nameOf  func(Resource) string
	follow  bool

	wants wants
	// kept is what was wanted all the time since the server was last told of what is wanted.
	kept wants
	// handled is what was wanted all the time since the handler was called last: of what was dropped while it worked, it is
	// not known whether the caller still has it.
	handled wants
	synced  bool

	version string // SotW: what to resume with: the version of the last response that the handler took
	// moved says that something else is wanted than what the stream asked for at first: of the responses that follow it is
	// not known which of it they are for.
	moved bool
	// versions are those of the resources that the handler took, by name; delta only.
	versions map[string]string
	// partial says that versions are those of a complete set whose end never came, or of which a response was rejected as a whole:
	// they are of no use then, since it is not known what has gone.
	partial bool
	refused bool // a response of the last complete set was

	// unverified is since when versions rely on it that a server took note of them; zero while they do not.
	unverified time.Time
	// compared are the versions of before a full compare, without those that turned out to be right; nil while there is none.
	compared  map[string]string
	comparing bool // the next stream is to begin with nothing
	healed    int  // what differed so far

	resources resources  // by name
	refers    references // of a type that another follows
}

func newSubscription(s Subscription) *subscription {
	sub := &subscription{typeURL: s.TypeURL, versions: s.Versions, resources: make(resources)}
	if !s.Follow {
		sub.wants = wantsOf(s.Names)
	}
	sub.change(s)
	return sub
}

// change takes over what another Subscription of the type says.
func (s *subscription) change(to Subscription) {
	s.handler, s.absent, s.nameOf = to.Handler, to.Absent, namer(to)
	w := wantsOf(to.Names)
	if to.Follow {
		if w = s.wants; !s.follow {
			w = wants{}
		}
	}
	s.follow = to.Follow
	s.want(w)
}

// want has other resources asked for, and forgets those that are wanted no more: the caller is to do the same, and to be
// given them anew if it changes its mind.
func (s *subscription) want(w wants) {
	s.kept, s.handled = s.kept.and(w), s.handled.and(w)
	if !w.equal(s.wants) {
		s.version, s.moved = "", true // with it a server may think that we have everything
	}
	s.wants = w
	covers := w.covers()
	for _, versions := range []map[string]string{s.versions, s.compared} {
		maps.DeleteFunc(versions, func(name, _ string) bool { return !covers(name) })
	}
	s.resources.want(w.names, s.versions)
}

// due reports whether a server that was sent this is to be sent something else.
func (s *subscription) due(sent wants) bool { return !sent.equal(s.wants) || !sent.equal(s.kept) }

// nextWants returns what the next request asks for, after what was sent. A name that was dropped in the meantime and is wanted again was
// forgotten by the client, and the server would not send it again unless a request drops it first.
func (s *subscription) nextWants(sent wants) wants {
	if s.kept.equal(sent.and(s.wants)) {
		s.kept = s.wants
	}
	return s.kept
}

// open returns the resources that a stream is to answer for which has just been asked for them: those without an answer, and
// all of them if the client brings nothing along.
func (s *subscription) open(fresh bool) []*named {
	if fresh {
		return s.resources.called(s.wants.names)
	}
	return s.resources.open()
}

// record notes a response, of which something may have been rejected. first says that it begins a complete set.
func (s *subscription) record(r *Response, first bool, rejected rejection) {
	if !r.Delta {
		s.versions, s.partial, s.refused = nil, false, false
		s.unverified, s.comparing, s.compared = time.Time{}, false, nil // it has everything
		if rejected.err == nil && !s.moved {
			s.version = r.Version
		}
		return
	}
	s.version = ""
	if s.versions == nil {
		s.versions = make(map[string]string, len(r.Resources))
	}
	if accepted := rejected.accepted(r); accepted != nil {
		covers := s.handled.covers()
		for i := range accepted.Resources {
			if name := accepted.Resources[i].Name; covers(name) {
				s.versions[name] = accepted.Resources[i].Version
			}
		}
		for _, name := range accepted.Removed {
			delete(s.versions, name)
		}
		for i := range r.Resources {
			// Of what was rejected the caller may have an earlier one, from before the set that this belongs to. A server that
			// hears of it, and be it of no version, says when it has gone.
			name := r.Resources[i].Name
			if _, known := s.versions[name]; !known && rejected.of(name) && covers(name) {
				s.versions[name] = ""
			}
		}
	}
	if r.Complete {
		s.refused = s.refused && !first || rejected.whole
		s.partial = s.refused || r.More
	}
}
