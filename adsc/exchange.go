package adsc

import (
	"slices"
	"time"
)

// exchange is the state of one type on a stream: its last request and its unsent replies.
type exchange struct {
	subscription *subscription // requested on the stream; the client may have another one now
	requested    selection     // by the last request
	hasNames     bool          // SotW: a request had names, so a request without names selects no resource
	nonce        string        // of the last response
	version      string        // SotW: of the last response that the handler accepted
	replies      []reply       // the unsent ones
	replyBytes   int           // their size
	// sendsAll says that the first request had no versions, so that the server sends all resources, and that they are not
	// complete yet. A change of names has no effect on it: the caller forgets the resources of removed names.
	sendsAll         bool
	setContinues     bool // the last response announced another one of the same set
	sentVersionBytes int  // bytes of names and versions in the first request
	hasResponse      bool // the server sent a response of the type
}

// reply acknowledges or rejects a response.
type reply struct {
	nonce   string
	version string // SotW: of the last response that the handler accepted
	reason  string // of a rejection; empty for an acknowledgement
}

// size is roughly the memory of a reply in bytes.
func (r reply) size() int { return 64 + len(r.nonce) + len(r.version) + len(r.reason) }

// maxReplies limits the bytes of the unsent replies of one type: a server that does not read must not fill the memory.
// Beyond it the client discards the oldest replies; later ones imply them.
const maxReplies = 4 << 20

// reply queues a reply to the last response.
func (e *exchange) reply(rejected error) {
	reply := reply{nonce: e.nonce, version: e.version}
	if rejected != nil {
		reply.reason = rejectionReason(rejected)
	}
	e.replies = append(e.replies, reply)
	e.replyBytes += reply.size()
	if e.replyBytes <= maxReplies {
		return
	}
	discarded := 0
	for ; discarded < len(e.replies)-1 && e.replyBytes > maxReplies*9/10; discarded++ {
		e.replyBytes -= e.replies[discarded].size()
	}
	e.replies = slices.Delete(e.replies, 0, discarded)
}

// enqueueChanged queues the types with a subscription that differs from the last request, in the order of the
// subscriptions.
func (s *stream) enqueueChanged() {
	client := s.client
	client.mu.Lock()
	defer client.mu.Unlock()
	for _, subscription := range client.subscriptions {
		exchange := s.exchanges[subscription.typeURL]
		var changed bool
		switch {
		case exchange == nil:
			changed = !subscription.selection.isEmpty()
		case exchange.subscription != subscription:
			changed = true
		default:
			changed = subscription.needsRequest(exchange.requested)
		}
		if changed {
			s.enqueue(subscription.typeURL)
		}
	}
	for typeURL, exchange := range s.exchanges {
		if client.find(typeURL) == nil && !exchange.requested.isEmpty() {
			s.enqueue(typeURL)
		}
	}
}

func (s *stream) enqueue(typeURL string) {
	if !slices.Contains(s.pending, typeURL) {
		s.pending = append(s.pending, typeURL)
	}
}

// nextRequest returns the next request to write, or nil. The types take turns.
func (s *stream) nextRequest() (*request, error) {
	for len(s.pending) > 0 {
		typeURL := s.pending[0]
		s.pending = s.pending[1:]
		request, hasMore, err := s.requestFor(typeURL)
		if err != nil {
			return nil, err
		}
		if hasMore {
			s.pending = append(s.pending, typeURL)
		}
		if request != nil {
			request.node, s.node = s.node, nil
			return request, nil
		}
	}
	return nil, nil
}

// requestFor returns the next request of a type, or nil without one, and whether there is another one.
func (s *stream) requestFor(typeURL string) (request *request, hasMore bool, err error) {
	client := s.client
	client.mu.Lock()
	defer client.mu.Unlock()
	subscription, exchange := client.find(typeURL), s.exchanges[typeURL]
	switch {
	case exchange == nil && (subscription == nil || subscription.selection.isEmpty()):
		return nil, false, nil // a first request without names would select all
	case exchange == nil:
		return s.firstRequest(subscription), false, nil
	case subscription != nil && subscription != exchange.subscription && !subscription.selection.isEmpty():
		// The caller unsubscribed from the type and subscribed again. On this stream, responses for the old subscription
		// look like those for the new one.
		return nil, false, errReconnect
	}
	if subscription != exchange.subscription {
		subscription = nil // without a name to request, it is as good as none
	}
	if s.wire.delta && len(exchange.replies) > 0 {
		return exchange.nextReply(), len(exchange.replies) > 0 || exchange.needsRequest(subscription), nil
	}
	if len(exchange.replies) == 0 && !exchange.needsRequest(subscription) {
		return nil, false, nil
	}
	target := selection{} // without a subscription
	if subscription != nil {
		target = subscription.nextSelection(exchange.requested)
	}
	if s.wire.delta {
		request = exchange.deltaRequest(target)
	} else {
		request = exchange.sotwRequest(target)
	}
	return request, len(exchange.replies) > 0 || exchange.needsRequest(subscription), nil
}

// needsRequest reports whether the last request differs from the subscription, which is nil after Unsubscribe.
func (e *exchange) needsRequest(subscription *subscription) bool {
	if subscription == nil {
		return !e.requested.isEmpty()
	}
	return subscription.needsRequest(e.requested)
}

// nextReply removes the oldest reply from the queue.
func (e *exchange) nextReply() *request {
	next := e.replies[0]
	e.replies[0] = reply{}
	e.replies = e.replies[1:]
	e.replyBytes -= next.size()
	return &request{typeURL: e.subscription.typeURL, nonce: next.nonce, version: next.version, reason: next.reason}
}

// deltaRequest returns the delta request that changes the selection to target.
func (e *exchange) deltaRequest(target selection) *request {
	request := &request{
		typeURL:   e.subscription.typeURL,
		subscribe: target.without(e.requested), unsubscribe: e.requested.without(target),
	}
	e.requested = target
	return request
}

// sotwRequest returns the state-of-the-world request for target, which replies to the last response, too.
func (e *exchange) sotwRequest(target selection) *request {
	request := &request{typeURL: e.subscription.typeURL, nonce: e.nonce, version: e.version}
	if len(e.replies) > 0 {
		request = e.nextReply()
	}
	if target.isEmpty() && !e.hasNames {
		// Before a request with names, an empty list selects all resources. So this request names the wildcard, and the
		// next one is empty.
		target = selection{wildcard: true}
		e.hasNames = true
	}
	e.hasNames = e.hasNames || len(target.names) > 0
	if e.hasNames {
		request.names = target.list()
	}
	e.requested = target
	return request
}

// firstRequest returns the first request of a type on the stream.
func (s *stream) firstRequest(subscription *subscription) *request {
	exchange := &exchange{
		subscription: subscription, requested: subscription.selection, hasNames: len(subscription.selection.names) > 0,
	}
	subscription.retainedSinceRequest = subscription.selection
	subscription.changedOnStream = false
	request := &request{typeURL: subscription.typeURL}
	if exchange.hasNames { // an empty list selects all, also for servers that do not know the wildcard
		request.names = subscription.selection.list()
		request.subscribe = request.names
	}
	if s.wire.delta {
		request.versions = subscription.startDelta(time.Now())
		for name, version := range request.versions {
			exchange.sentVersionBytes += len(name) + len(version)
		}
		exchange.sendsAll = len(request.versions) == 0
	} else {
		exchange.version = subscription.version
		request.version = exchange.version
	}
	s.exchanges[subscription.typeURL] = exchange
	return request
}
