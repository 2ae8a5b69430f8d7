package adsc

import (
	"slices"
	"time"
)

// exchange is the state of one type on a stream: what was sent to the server, and what it has yet to be sent.
type exchange struct {
	sub     *subscription // that the stream requested; the client may have another one by now
	sent    wants         // by the last request
	named   bool          // SotW: a request had a name, so one without names asks for nothing
	nonce   string        // SotW: of the last response
	version string        // SotW: of the last response that the handler took
	replies []reply       // unsent
	queued  int           // bytes of them
	// fresh says that the first request had no versions, so the server sends everything; begun, that a response came. Both hold although
	// the client wants other names in the meantime: what the caller has was part of the first request, since it forgets what it drops.
	fresh, begun bool
	brought      int  // bytes of names and versions in the first request
	answered     bool // the server sent a response of the type
}

// reply acknowledges or rejects a response.
type reply struct {
	nonce   string
	version string // SotW: of the last response that the handler took
	reason  string // why it was rejected; empty for an acknowledgement
}

// size is roughly the memory of a reply in bytes.
func (r reply) size() int { return 64 + len(r.nonce) + len(r.version) + len(r.reason) }

// maxReplies bounds the replies of one type that wait to be written, in bytes: a server that does not read must not fill the memory.
// Beyond it the oldest are dropped; later ones imply them.
const maxReplies = 4 << 20

// reply queues a reply to the last response.
func (a *exchange) reply(rejected error) {
	r := reply{nonce: a.nonce, version: a.version}
	if rejected != nil {
		r.reason = reasonOf(rejected)
	}
	a.replies = append(a.replies, r)
	if a.queued += r.size(); a.queued <= maxReplies {
		return
	}
	n := 0
	for ; n < len(a.replies)-1 && a.queued > maxReplies*9/10; n++ {
		a.queued -= a.replies[n].size()
	}
	a.replies = slices.Delete(a.replies, 0, n)
}

// markDue has a request written for each type whose subscription differs from what was sent, in the order of the subscriptions.
func (s *stream) markDue() {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sub := range c.subs {
		if a := s.exchanges[sub.typeURL]; a == nil && !sub.wants.nothing() || a != nil && (a.sub != sub || sub.due(a.sent) || c.unread(sub)) {
			s.mark(sub.typeURL)
		}
	}
	for typeURL, a := range s.exchanges {
		if c.find(typeURL) == nil && !a.sent.nothing() {
			s.mark(typeURL)
		}
	}
}

func (s *stream) mark(typeURL string) {
	if !slices.Contains(s.due, typeURL) {
		s.due = append(s.due, typeURL)
	}
}

// next returns the next request to write, or nil. The types take turns.
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

// request returns the next request of a type, or nil if the server has everything, and whether there is more.
func (s *stream) request(typeURL string) (r *request, more bool, err error) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	sub, a := c.find(typeURL), s.exchanges[typeURL]
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
		return a.nextReply(), len(a.replies) > 0 || a.due(sub, wanted), nil
	}
	if len(a.replies) == 0 && !a.due(sub, wanted) {
		return nil, false, nil
	}
	target := wants{} // nothing, of a type that was dropped
	if wanted {
		target = sub.nextWants(a.sent)
	}
	before := a.sent
	if s.delta {
		r = a.change(target)
	} else {
		r = a.state(target)
	}
	s.await(a.sub, a.sub.resources.called(without(target.names, before.names)))
	return r, len(a.replies) > 0 || a.due(sub, wanted), nil
}

// due reports whether what was sent differs from what is wanted, which is nothing if the type is not wanted.
func (a *exchange) due(sub *subscription, wanted bool) bool {
	if !wanted {
		return !a.sent.nothing()
	}
	return sub.due(a.sent)
}

// nextReply removes the oldest reply from the queue.
func (a *exchange) nextReply() *request {
	r := a.replies[0]
	a.replies[0] = reply{}
	a.replies = a.replies[1:]
	a.queued -= r.size()
	return &request{typeURL: a.sub.typeURL, nonce: r.nonce, version: r.version, reason: r.reason}
}

// change returns the delta request that subscribes to target instead of what was sent.
func (a *exchange) change(target wants) *request {
	r := &request{typeURL: a.sub.typeURL, subscribe: target.without(a.sent), unsubscribe: a.sent.without(target)}
	a.sent = target
	return r
}

// state returns the state-of-the-world request for target, which replies to the last response, too.
func (a *exchange) state(target wants) *request {
	r := &request{typeURL: a.sub.typeURL, nonce: a.nonce, version: a.version}
	if len(a.replies) > 0 {
		r = a.nextReply()
	}
	if target.nothing() && !a.named {
		target = wants{all: true} // without an earlier name no names mean all, so to drop everything takes two requests
		a.named = true
	}
	a.named = a.named || len(target.names) > 0
	if a.named {
		r.names = target.list()
	}
	a.sent = target
	return r
}

// whole reports whether the server has yet to send everything of the type.
func (a *exchange) whole() bool { return a.fresh && !a.begun }

// first returns the first request of a type on the stream.
func (s *stream) first(sub *subscription) *request {
	if s.client.unread(sub) {
		sub.version, sub.comparing = "", true
	}
	a := &exchange{sub: sub, sent: sub.wants, named: len(sub.wants.names) > 0}
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
	s.exchanges[sub.typeURL] = a
	s.await(sub, sub.open(a.fresh && s.delta))
	return r
}

// without returns the names of a sorted list that another does not have.
func without(names, others []string) []string {
	return wants{names: names}.without(wants{names: others})
}
