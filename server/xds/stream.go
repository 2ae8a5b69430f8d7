package xds

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"tributary/server/xds/wire"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// stream is one stream of one client. Two goroutines serve it: receive applies requests to the subscriptions, and send
// writes responses. So a write that blocks delays neither the reading of acknowledgements nor other streams. A review
// starts a third goroutine, which asks the catalog.
type stream struct {
	// read-only
	id        uint64
	server    *Server
	grpc      grpc.ServerStream
	delta     bool
	zip       bool   // responses are compressed
	fixedType string // of a stream of a single-type service; empty on ADS
	peer      string
	identity  string       // that the client has proven
	host      string       // of peer, without the port
	noops     noopThrottle // used by receive
	// unanswered has the types without an answer of the catalog (ErrNoAnswer); used by receive
	unanswered map[string]struct{}
	connected  time.Time
	wakeup     wakeup
	drained    error // the status for the client; set before drain is closed
	drain      chan struct{}

	mu              sync.Mutex
	reviews         uint64 // calls of Review
	closed          bool
	node            *corev3.Node
	subs            []*subscription // in order of rank, then of arrival
	types           map[string]*subscription
	cost            int // of the names of all subscriptions
	unreservedBytes int // bytes of requests that are retained without a reservation
	// awaited has the resources, by type, that the client will wait for once it subscribes to their type: see
	// Type.ChildURL.
	awaited map[string][]string
	cuts    map[*Group]cut // goal of the types with a rank
	// childless has the types of children that the client did not subscribe to in time: no response waits for them.
	childless map[string]bool
	sent      uint64 // responses

	// owned by send
	reviewers  sync.WaitGroup // goroutines that ask the catalog: see review
	nextLook   time.Duration  // when to look again for something to send, without a wakeup; zero for never
	halfClosed bool           // the client sends no more requests
}

// run serves the stream until it ends.
func (s *stream) run(ctx context.Context) error {
	defer s.close()
	received := make(chan error, 1)
	s.server.receivers.Go(func() { received <- s.receive() })
	return s.send(ctx, received)
}

// close releases the subscriptions.
func (s *stream) close() {
	s.mu.Lock()
	s.closed = true
	subs := s.subs
	s.server.names.add(s.host, -s.cost)
	for _, sub := range subs {
		sub.retained.free(s)
	}
	s.mu.Unlock()
	for _, sub := range subs {
		s.releaseSubscription(sub)
	}
}

// collection returns the collection of a subscription, which a review may replace at any time.
func (s *stream) collection(sub *subscription) *Collection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sub.coll
}

func (s *stream) releaseSubscription(sub *subscription) {
	sub.coll.unsubscribe(s.wakeup)
	if sub.release != nil {
		sub.release()
	}
}

// receive reads requests until the stream ends. It returns nil if the client closed the stream.
func (s *stream) receive() error {
	request := &wire.Request{Delta: s.delta, MaxCost: s.server.opts.Limits.NamesPerStream, Host: s.host}
	for {
		if err := s.grpc.RecvMsg(request); err != nil {
			return s.notReceived(err)
		}
		var err error
		if late := runHeavy(s.grpc.Context(), s.host, request.Size > heavyBytes,
			func() { err = s.handle(request, time.Now()) }); late != nil {
			err = late
		}
		if keepErr := s.retain(request); err == nil {
			err = keepErr
		}
		if err != nil {
			return err
		}
		s.throttle(s.grpc.Context(), request, time.Now())
		request.Clear()
	}
}

// errNoOptions tells that the program made its gRPC server without ServerOptions.
var errNoOptions = status.Error(codes.Internal,
	"the gRPC server was not made with the ServerOptions of this xds.Server")

// notReceived returns the error that ends the stream after a failed receive.
func (s *stream) notReceived(err error) error {
	switch code := status.Code(err); {
	case errors.Is(err, io.EOF):
		return nil
	case code == codes.Internal && strings.Contains(err.Error(), "*wire.Request"): // it has another codec
		s.server.log.Error("request cannot be decoded", "err", errNoOptions)
		return errNoOptions
	}
	return err
}

// leaveUnanswered notes that the catalog has no answer for a type.
func (s *stream) leaveUnanswered(typeURL string) {
	put(&s.unanswered, typeURL, struct{}{})
	if s.server.logged.Allow() {
		s.server.log.Info("type left without an answer", "node_id", s.nodeID(), "peer", s.peer, "type_url", typeURL)
	}
}

// handle applies one request.
func (s *stream) handle(request *wire.Request, now time.Time) error {
	if err := s.checkRequest(request); err != nil {
		return err
	}
	typeURL := cmp.Or(request.TypeURL, s.fixedType)
	subscription := s.subscription(typeURL)
	first := subscription == nil
	if first {
		if err := wire.CheckTypeURL(typeURL); err != nil {
			return err
		}
	}
	if _, ok := s.unanswered[typeURL]; ok {
		return nil
	}
	if typeURL == "" {
		return status.Error(codes.InvalidArgument, "type_url is missing: it is required on an aggregated stream")
	}
	if s.fixedType != "" && typeURL != s.fixedType {
		return status.Errorf(codes.InvalidArgument, "type_url is %q, but this service serves %q", typeURL, s.fixedType)
	}
	if first {
		err := s.checkTypes()
		if err == nil {
			subscription, err = s.open(request, typeURL)
		}
		if errors.Is(err, ErrNoAnswer) {
			request.ChangesSubscription = true
			s.leaveUnanswered(typeURL)
			return nil
		}
		if err != nil {
			return err
		}
	}
	err := s.reduce(subscription, request)
	if err == nil {
		err = subscription.answerQuery(s.collection(subscription).typ.Query, request, first)
	}
	if err != nil {
		if first {
			s.releaseSubscription(subscription)
		}
		return err
	}
	s.mu.Lock()
	if first && s.closed {
		s.mu.Unlock()
		s.releaseSubscription(subscription)
		return io.ErrClosedPipe
	}
	nacks := subscription.status.Nacks
	rejected := subscription.rejected
	cost := subscription.cost + subscription.droppedCost
	s.apply(subscription, request, first, now)
	err = s.chargeFor(subscription, subscription.cost+subscription.droppedCost-cost)
	nacked := subscription.status.Nacks > nacks
	idle := s.idle()
	s.mu.Unlock()
	if err != nil {
		return err
	}

	subscription.metrics.request(nacked)
	if nacked && !rejected && s.server.logged.Allow() { // once a response
		s.server.log.Warn("client rejected a response", "node_id", s.nodeID(), "peer", s.peer, "type_url", typeURL,
			"nonce", request.Nonce, "err", request.Err.GetMessage())
	}
	if !idle {
		s.wakeup.notify()
	}
	return nil
}

// apply applies a request to its subscription, and adds the subscription if the request is the first; s.mu is held.
func (s *stream) apply(sub *subscription, req *wire.Request, first bool, now time.Time) {
	if !sub.apply(req, first, now) {
		return
	}
	if !first {
		s.noteAnswer(sub)
		return
	}
	after, _ := slices.BinarySearchFunc(s.subs, sub.coll.typ.Rank+1, compareRank)
	s.subs = slices.Insert(s.subs, after, sub)
	put(&s.types, sub.typeURL, sub)
	for _, name := range s.awaited[sub.typeURL] {
		if sub.selection.includes(name) {
			sub.client.mustResend(name)
		}
	}
	delete(s.awaited, sub.typeURL)
}

// byOrder returns the subscriptions without an order, and those that depend on each other, in order of rank.
func (s *stream) byOrder() (free, ordered []*subscription) {
	i, _ := slices.BinarySearchFunc(s.subs, 1, compareRank)
	if len(s.subs)-i == 1 && s.subs[i].resumed.IsZero() { // no dependencies
		i = len(s.subs)
	}
	return s.subs[:i], s.subs[i:]
}

func compareRank(sub *subscription, rank int) int { return cmp.Compare(sub.coll.typ.Rank, rank) }

// idle reports whether there is no response to send; s.mu is held.
func (s *stream) idle() bool {
	if s.outdated() {
		return false
	}
	for _, sub := range s.subs {
		if len(sub.chunks) > 0 || sub.client.answersRequest() || !sub.client.matches(sub.shown()) {
			return false
		}
	}
	return true
}

// subscription returns the subscription of a type, or nil. Only receive adds any.
func (s *stream) subscription(typeURL string) *subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.types[typeURL]
}

// open makes the subscription for the client's first request of a type.
func (s *stream) open(req *wire.Request, typeURL string) (*subscription, error) {
	node := req.Node
	if node == nil {
		node = &corev3.Node{}
	}
	s.mu.Lock()
	first := s.node == nil
	s.node = node
	reviewed := s.reviews
	s.mu.Unlock()
	if first {
		s.logConnected()
	}
	coll, release, err := s.collectionOf(s.grpc.Context(), node, typeURL)
	if err != nil {
		return nil, err
	}
	if coll == nil {
		return nil, noCollection(typeURL)
	}
	s.server.warnIfUnsynced(coll)
	coll.subscribe(s.wakeup)
	var absent *missing
	if s.delta && coll.typ.NoWildcard {
		absent = newMissing(&s.server.opts.Limits)
	}
	return &subscription{
		typeURL:  typeURL,
		coll:     coll,
		release:  release,
		reviewed: reviewed,
		variant: variant{
			delta:          s.delta,
			partial:        !s.delta && coll.typ.Partial,
			onePerResponse: s.delta && coll.typ.OnePerResponse,
			noWildcard:     coll.typ.NoWildcard,
			aliases:        s.delta && coll.typ.Aliases,
		},
		metrics: s.server.metrics.forType(coll.typ.URL),
		missing: absent,
		client:  clientState{state: initialState},
		goal:    initialState,
		status:  TypeStatus{TypeURL: typeURL},
	}, nil
}

// noCollection is the error of a catalog without a result.
func noCollection(typeURL string) error {
	return status.Errorf(codes.Internal, "the catalog has neither a collection nor an error for type %q", typeURL)
}

func (s *stream) nodeID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.GetId()
}
