package adsc

import (
	"slices"
	"time"
)

// asked is what a stream knows of a type that it asked for.
type asked struct {
	sub     *subscription // for which it was asked; by now there may be another
	told    wants         // what the server was told last
	named   bool          // SotW: the server was given a name, after which none means nothing
	nonce   string        // SotW: of the last response
	version string        // SotW: of the last response that the handler took
	replies []reply       // to be written
	owed    int           // bytes of them
	// fresh says that the client brought nothing along, and that everything is still to come. So it is also if other things are
	// wanted in the meantime: what the caller has by now is among what was asked for at first, since it forgets what it drops.
	fresh, begun bool
	brought      int  // bytes of names and versions of what it brought along
	answered     bool // with the type
}

// reply is what the server is to be told of a response.
type reply struct {
	nonce   string
	version string // SotW: of the last response that the handler took
	reason  string // why it was rejected; empty for an acknowledgement
}

// size is about how many bytes a reply has in memory.
func (r reply) size() int { return 64 + len(r.nonce) + len(r.version) + len(r.reason) }

// maxReplies is how many bytes the replies to responses of one type have that wait to be written: a server that reads nothing
// must not fill the memory. Beyond that the oldest are left out. Later ones say that the client came so far.
const maxReplies = 4 << 20

// owe notes that the last response is to be replied to.
func (a *asked) owe(rejected error) {
	r := reply{nonce: a.nonce, version: a.version}
	if rejected != nil {
		r.reason = reasonOf(rejected)
	}
	a.replies = append(a.replies, r)
	if a.owed += r.size(); a.owed <= maxReplies {
		return
	}
	n := 0
	for ; n < len(a.replies)-1 && a.owed > maxReplies*9/10; n++ {
		a.owed -= a.replies[n].size()
	}
	a.replies = slices.Delete(a.replies, 0, n)
}

// look has everything written that is to be asked for, in the order of the subscriptions, and of which the server is to be
// told that it is not wanted any more.
func (s *stream) look() {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sub := range c.subs {
		if a := s.asked[sub.typeURL]; a == nil && !sub.wants.nothing() || a != nil && (a.sub != sub || sub.due(a.told) || c.unread(sub)) {
			s.mark(sub.typeURL)
		}
	}
	for typeURL, a := range s.asked {
		if c.find(typeURL) == nil && !a.told.nothing() {
			s.mark(typeURL)
		}
	}
}

func (s *stream) mark(typeURL string) {
	if !slices.Contains(s.due, typeURL) {
		s.due = append(s.due, typeURL)
	}
}

// next returns what to write next, or nil if there is nothing. The types take turns.
func (s *stream) next() (*request, error) {
	for len(s.due) > 0 {
		typeURL := s.due[0]
		s.due = s.due[1:]
		r, more, err := s.request(typeURL)
		if err != nil {
			return nil, err
		}
		if more {
			s.due = append(s.due, typeURL)
		}
		if r != nil {
			r.node, s.node = s.node, nil
			return r, nil
		}
	}
	return nil, nil
}

// request returns what the server is to be told of a type, or nil if it knows all, and whether there is more.
func (s *stream) request(typeURL string) (r *request, more bool, err error) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	sub, a := c.find(typeURL), s.asked[typeURL]
	switch {
	case a == nil && (sub == nil || sub.wants.nothing()):
		return nil, false, nil // to ask for no names would be to ask for all
	case a == nil:
		return s.first(sub), false, nil
	case sub == a.sub && !a.whole() && c.unread(sub):
		return nil, false, errReconnect
	case sub != nil && sub != a.sub && !sub.wants.nothing():
		// The type was dropped and is wanted again. What is still on its way cannot be told from the answer to the new
		// subscription on this stream.
		return nil, false, errReconnect
	}
	wanted := sub != nil && sub == a.sub
	if s.delta && len(a.replies) > 0 {
		return a.reply(), len(a.replies) > 0 || a.due(sub, wanted), nil
	}
	if len(a.replies) == 0 && !a.due(sub, wanted) {
		return nil, false, nil
	}
	target := wants{} // of a type that was dropped
	if wanted {
		target = sub.tell(a.told)
	}
	told := a.told
	if s.delta {
		r = a.change(target)
	} else {
		r = a.state(target)
	}
	s.await(a.sub, a.sub.resources.called(without(target.names, told.names)))
	return r, len(a.replies) > 0 || a.due(sub, wanted), nil
}

// due reports whether the server is to be told that something else is wanted; that is nothing if the type is not wanted.
func (a *asked) due(sub *subscription, wanted bool) bool {
	if !wanted {
		return !a.told.nothing()
	}
	return sub.due(a.told)
}

// reply returns the oldest reply.
func (a *asked) reply() *request {
	r := a.replies[0]
	a.replies[0] = reply{}
	a.replies = a.replies[1:]
	a.owed -= r.size()
	return &request{typeURL: a.sub.typeURL, nonce: r.nonce, version: r.version, reason: r.reason}
}

// change returns the delta request by which the server gets to know what is wanted now.
func (a *asked) change(target wants) *request {
	r := &request{typeURL: a.sub.typeURL, subscribe: target.without(a.told), unsubscribe: a.told.without(target)}
	a.told = target
	return r
}

// state returns the state-of-the-world request that says what is wanted now and replies to the last response.
func (a *asked) state(target wants) *request {
	r := &request{typeURL: a.sub.typeURL, nonce: a.nonce, version: a.version}
	if len(a.replies) > 0 {
		r = a.reply()
	}
	if target.nothing() && !a.named {
		target = wants{all: true} // before a name was given no names mean all, so that nothing takes two steps
		a.named = true
	}
	a.named = a.named || len(target.names) > 0
	if a.named {
		r.names = target.list()
	}
	a.told = target
	return r
}

// whole reports whether all that there is of the type is still to come.
func (a *asked) whole() bool { return a.fresh && !a.begun }

// first returns the first request of a type on the stream.
func (s *stream) first(sub *subscription) *request {
	if s.client.unread(sub) {
		sub.version, sub.comparing = "", true
	}
	a := &asked{sub: sub, told: sub.wants, named: len(sub.wants.names) > 0}
	sub.kept, sub.moved = sub.wants, false
	r := &request{typeURL: sub.typeURL}
	if a.named {
		r.names = sub.wants.list() // else none, which means all, also to servers that know no star
	}
	r.subscribe = r.names
	if s.delta {
		r.versions = sub.resume(time.Now())
		for name, version := range r.versions {
			a.brought += len(name) + len(version)
		}
		a.fresh = len(r.versions) == 0
	} else {
		a.version = sub.version
		r.version, a.fresh = a.version, a.version == ""
	}
	s.asked[sub.typeURL] = a
	s.await(sub, sub.open(a.fresh && s.delta))
	return r
}

// without returns the names of a sorted list that another does not have.
func without(names, others []string) []string {
	return wants{names: names}.without(wants{names: others})
}
