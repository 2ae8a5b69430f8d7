package adsc

import (
	"slices"
	"time"
)

// exchange is the state of one type on a stream: its last request and its unsent replies.
type exchange struct {
	sub        *subscription // requested on the stream; the client may have another one now
	requested  selection     // by the last request
	hasNames   bool          // SotW: a request had names, so a request without names selects no resource
	nonce      string        // SotW: of the last response
	version    string        // SotW: of the last response that the handler took
	replies    []reply       // unsent
	replyBytes int           // size of replies
	// isFresh says that the first request had no versions, so that the server sends all resources; hasBegun, that a
	// response came. A change of names does not matter for them: the caller drops the resources of removed names.
	isFresh, hasBegun bool
	sentVersionBytes  int  // bytes of names and versions in the first request
	answered          bool // the server sent a response of the type
}

// reply acknowledges or rejects a response.
type reply struct {
	nonce   string
	version string // SotW: of the last response that the handler took
	reason  string // of a rejection; empty for an acknowledgement
}

// size is roughly the memory of a reply in bytes.
func (r reply) size() int { return 64 + len(r.nonce) + len(r.version) + len(r.reason) }

// maxReplies bounds the replies of one type that wait to be written, in bytes: a server that does not read must not
// fill the memory. Beyond it the oldest are dropped; later ones imply them.
const maxReplies = 4 << 20

// reply queues a reply to the last response.
func (e *exchange) reply(rejected error) {
	reply := reply{nonce: e.nonce, version: e.version}
	if rejected != nil {
		reply.reason = reasonOf(rejected)
	}
	e.replies = append(e.replies, reply)
	if e.replyBytes += reply.size(); e.replyBytes <= maxReplies {
		return
	}
	n := 0
	for ; n < len(e.replies)-1 && e.replyBytes > maxReplies*9/10; n++ {
		e.replyBytes -= e.replies[n].size()
	}
	e.replies = slices.Delete(e.replies, 0, n)
}

// markDue marks the types with a subscription that differs from the last request, in the order of the subscriptions.
func (s *stream) markDue() {
	client := s.client
	client.mu.Lock()
	defer client.mu.Unlock()
	for _, subscription := range client.subs {
		exchange := s.exchanges[subscription.typeURL]
		if exchange == nil && !subscription.selection.isEmpty() || exchange != nil &&
			(exchange.sub != subscription || subscription.due(exchange.requested)) {
			s.mark(subscription.typeURL)
		}
	}
	for typeURL, exchange := range s.exchanges {
		if client.find(typeURL) == nil && !exchange.requested.isEmpty() {
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
		request, hasMore, err := s.request(typeURL)
		if err != nil {
			return nil, err
		}
		if hasMore {
			s.due = append(s.due, typeURL)
		}
		if request != nil {
			request.node, s.node = s.node, nil
			return request, nil
		}
	}
	return nil, nil
}

// request returns the next request of a type, or nil without one, and whether there is another one.
func (s *stream) request(typeURL string) (request *request, hasMore bool, err error) {
	client := s.client
	client.mu.Lock()
	defer client.mu.Unlock()
	subscription, exchange := client.find(typeURL), s.exchanges[typeURL]
	switch {
	case exchange == nil && (subscription == nil || subscription.selection.isEmpty()):
		return nil, false, nil // a first request without names would select all
	case exchange == nil:
		return s.first(subscription), false, nil
	case subscription != nil && subscription != exchange.sub && !subscription.selection.isEmpty():
		// The type was dropped and is subscribed again. On this stream, responses for the old subscription cannot be told
		// from those for the new one.
		return nil, false, errReconnect
	}
	wanted := subscription != nil && subscription == exchange.sub
	if s.wire.delta && len(exchange.replies) > 0 {
		return exchange.nextReply(), len(exchange.replies) > 0 || exchange.due(subscription, wanted), nil
	}
	if len(exchange.replies) == 0 && !exchange.due(subscription, wanted) {
		return nil, false, nil
	}
	target := selection{} // empty for a type that was dropped
	if wanted {
		target = subscription.nextSelection(exchange.requested)
	}
	if s.wire.delta {
		request = exchange.deltaRequest(target)
	} else {
		request = exchange.sotwRequest(target)
	}
	return request, len(exchange.replies) > 0 || exchange.due(subscription, wanted), nil
}

// due reports whether the last request differs from the subscription; a type that is not wanted has none.
func (e *exchange) due(subscription *subscription, wanted bool) bool {
	if !wanted {
		return !e.requested.isEmpty()
	}
	return subscription.due(e.requested)
}

// nextReply removes the oldest reply from the queue.
func (e *exchange) nextReply() *request {
	next := e.replies[0]
	e.replies[0] = reply{}
	e.replies = e.replies[1:]
	e.replyBytes -= next.size()
	return &request{typeURL: e.sub.typeURL, nonce: next.nonce, version: next.version, reason: next.reason}
}

// deltaRequest returns the delta request that changes the selection to target.
func (e *exchange) deltaRequest(target selection) *request {
	r := &request{typeURL: e.sub.typeURL, subscribe: target.without(e.requested), unsubscribe: e.requested.without(target)}
	e.requested = target
	return r
}

// sotwRequest returns the state-of-the-world request for target, which replies to the last response, too.
func (e *exchange) sotwRequest(target selection) *request {
	request := &request{typeURL: e.sub.typeURL, nonce: e.nonce, version: e.version}
	if len(e.replies) > 0 {
		request = e.nextReply()
	}
	if target.isEmpty() && !e.hasNames {
		target = selection{wildcard: true} // without an earlier name, no names mean all: dropping all takes two requests
		e.hasNames = true
	}
	e.hasNames = e.hasNames || len(target.names) > 0
	if e.hasNames {
		request.names = target.list()
	}
	e.requested = target
	return request
}

// first returns the first request of a type on the stream.
func (s *stream) first(subscription *subscription) *request {
	exchange := &exchange{
		sub: subscription, requested: subscription.selection, hasNames: len(subscription.selection.names) > 0,
	}
	subscription.keptSelection, subscription.hasChanged = subscription.selection, false
	request := &request{typeURL: subscription.typeURL}
	if exchange.hasNames {
		request.names = subscription.selection.list() // else none, which means all also to servers without wildcard names
	}
	request.subscribe = request.names
	if s.wire.delta {
		request.versions = subscription.resume(time.Now())
		for name, version := range request.versions {
			exchange.sentVersionBytes += len(name) + len(version)
		}
		exchange.isFresh = len(request.versions) == 0
	} else {
		exchange.version = subscription.version
		request.version, exchange.isFresh = exchange.version, exchange.version == ""
	}
	s.exchanges[subscription.typeURL] = exchange
	return request
}
