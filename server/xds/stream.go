package xds

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tributary/server/xds/wire"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// stream is one stream of one client. Two goroutines serve it: receive applies requests to the subscriptions, and send writes
// responses. So a write that blocks delays neither the reading of acknowledgements nor other streams. A review starts a third
// goroutine, which asks the catalog.
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
	// unanswered are types for which the catalog returned ErrNoAnswer; used by receive
	unanswered map[string]struct{}
	connected  time.Time
	wakeup     wakeup
	drain      chan struct{}

	mu              sync.Mutex
	closed          bool
	node            *corev3.Node
	subs            []*subscription // in order of rank, then of arrival
	types           map[string]*subscription
	cost            int // of the names of all subscriptions
	unreservedBytes int // bytes of requests that are retained without a reservation
	// awaited are resources, by type, that the client will wait for once it subscribes to their type: see Type.ChildURL.
	awaited map[string][]string
	cuts    map[*Group]cut // to which the types with a rank are brought
	// childless are types of children that the client did not subscribe to in time: nothing waits for them.
	childless map[string]bool
	sent      uint64 // responses

	// owned by send
	reviewers sync.WaitGroup // goroutines that ask the catalog: see review
	again     time.Duration  // when to look again for something to send, without a wakeup; zero for never
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
	req := &wire.Request{Delta: s.delta, MaxCost: s.server.opts.Limits.NamesPerStream, Host: s.host, IsDue: s.due}
	for {
		if err := s.grpc.RecvMsg(req); err != nil {
			return s.notReceived(err)
		}
		var err error
		if late := runHeavy(s.grpc.Context(), s.host, req.Size > heavyBytes, func() { err = s.handle(req, time.Now()) }); late != nil {
			err = late
		}
		if keepErr := s.retain(req); err == nil {
			err = keepErr
		}
		if err != nil {
			return err
		}
		s.throttle(s.grpc.Context(), req, time.Now())
		req.Clear()
	}
}

// errNoOptions is the error of a program whose gRPC server cannot be used.
var errNoOptions = status.Error(codes.Internal, "the gRPC server was not made with the ServerOptions of this xds.Server")

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
func (s *stream) handle(req *wire.Request, now time.Time) error {
	if err := s.checkRequest(req); err != nil {
		return err
	}
	typeURL := cmp.Or(req.TypeURL, s.fixedType)
	sub := s.subscription(typeURL)
	first := sub == nil
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
			sub, err = s.open(req, typeURL)
		}
		if errors.Is(err, ErrNoAnswer) {
			req.ChangesSubscription = true
			s.leaveUnanswered(typeURL)
			return nil
		}
		if err != nil {
			return err
		}
	}
	err := s.reduce(sub, req)
	if err == nil {
		err = sub.answerQuery(s.collection(sub).typ.Query, req, first)
	}
	if err != nil {
		if first {
			s.releaseSubscription(sub)
		}
		return err
	}
	s.mu.Lock()
	if first && s.closed {
		s.mu.Unlock()
		s.releaseSubscription(sub)
		return io.ErrClosedPipe
	}
	nacks, rejected, cost := sub.status.Nacks, sub.rejected, sub.cost+sub.droppedCost
	s.apply(sub, req, first, now)
	err = s.chargeFor(sub, sub.cost+sub.droppedCost-cost)
	nacked := sub.status.Nacks > nacks
	idle := s.idle()
	s.mu.Unlock()
	if err != nil {
		return err
	}

	sub.metrics.request(nacked)
	if nacked && !rejected && s.server.logged.Allow() { // once a response
		s.server.log.Warn("client rejected a response", "node_id", s.nodeID(), "peer", s.peer, "type_url", typeURL,
			"nonce", req.Nonce, "err", req.Err.GetMessage())
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
		s.answered(sub)
		return
	}
	after, _ := slices.BinarySearchFunc(s.subs, sub.coll.typ.Rank+1, compareRank)
	s.subs = slices.Insert(s.subs, after, sub)
	put(&s.types, sub.typeURL, sub)
	for _, name := range s.awaited[sub.typeURL] {
		if sub.wants.includes(name) {
			sub.client.mustResend(name)
		}
	}
	delete(s.awaited, sub.typeURL)
}

// split returns the subscriptions without an order, and those that depend on each other, in order of rank.
func (s *stream) split() (free, ordered []*subscription) {
	i, _ := slices.BinarySearchFunc(s.subs, 1, compareRank)
	if len(s.subs)-i == 1 && s.subs[i].resumed.IsZero() { // nothing to depend on
		i = len(s.subs)
	}
	return s.subs[:i], s.subs[i:]
}

func compareRank(sub *subscription, rank int) int { return cmp.Compare(sub.coll.typ.Rank, rank) }

// idle says whether there is nothing to send; s.mu is held.
func (s *stream) idle() bool {
	if s.outdated() {
		return false
	}
	for _, sub := range s.subs {
		if len(sub.chunks) > 0 || sub.client.answersRequest() || !sub.client.matches(sub.coll.shown.Load()) {
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
	s.mu.Unlock()
	if first {
		s.logConnected()
	}
	reviewed := s.server.reviews.Load()
	coll, release, err := s.server.catalog.Collection(s.grpc.Context(), node, typeURL)
	if err != nil {
		return nil, err
	}
	if coll == nil {
		return nil, noCollection(typeURL)
	}
	s.server.warnIfUnsynced(coll)
	coll.subscribe(s.wakeup)
	var m *missing
	if s.delta && coll.typ.NoWildcard {
		m = newMissing(&s.server.opts.Limits)
	}
	return &subscription{
		typeURL: typeURL, coll: coll, release: release, reviewed: reviewed,
		variant: variant{
			delta: s.delta, partial: !s.delta && coll.typ.Partial, onePerResponse: s.delta && coll.typ.OnePerResponse,
			noWildcard: coll.typ.NoWildcard, aliases: s.delta && coll.typ.Aliases,
		},
		metrics: s.server.metrics.of(coll.typ.URL), missing: m, client: clientState{state: nothing}, goal: nothing,
		status: TypeStatus{TypeURL: typeURL},
	}, nil
}

// noCollection is the error of a catalog that returns nothing.
func noCollection(typeURL string) error {
	return status.Errorf(codes.Internal, "the catalog has neither a collection nor an error for type %q", typeURL)
}

func (s *stream) nodeID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.GetId()
}

// send writes responses until the stream ends. Before the first one it waits for a start slot, which it holds until nothing more is
// due.
func (s *stream) send(ctx context.Context, received <-chan error) error {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	limiter := &s.server.startLimiter
	var slot *startSlot
	var queued <-chan struct{} // signals a slot while the stream waits for one
	defer func() {
		slot.end()
		if queued != nil {
			limiter.turns.GiveUp(s.host, queued)
		}
	}()
	started := limiter.turns == nil
	asking, stopAsking := context.WithCancel(ctx)
	var reviewing <-chan error // the result of asking the catalog; until then nothing is sent
	defer s.reviewers.Wait()
	defer stopAsking()
	for {
		var out *frame
		var wait time.Duration
		wakeup := s.wakeup
		if ctx.Err() != nil { // its identity or its access may have ended
			return ended(ctx)
		}
		if reviewing == nil {
			reviewing = s.review(asking)
		}
		switch {
		case reviewing != nil:
			if queued != nil { // other streams start meanwhile
				limiter.turns.GiveUp(s.host, queued)
				queued = nil
			}
		case started:
			slot.work()
			if runHeavy(ctx, s.host, s.isHeavy(), func() { out, wait = s.next(time.Now()) }) != nil {
				return ended(ctx)
			}
			s.freeCompared()
			slot.wait()
		case queued == nil && s.due():
			if queued = limiter.turns.Queue(s.host); queued == nil {
				slot, started = limiter.newSlot(), true
				continue
			}
		}
		if queued != nil {
			wakeup = nil // changes are sent when the stream starts
		}
		if out != nil {
			if err := s.grpc.SendMsg(out); err != nil {
				return err
			}
		}
		if wait > 0 {
			retry.Reset(wait)
		}
		if out != nil { // more may be due
			select {
			case err := <-received:
				return err
			case <-s.drain:
				return errDraining
			case <-ctx.Done():
				return ended(ctx)
			default:
			}
			continue
		}
		slot.end()
		slot = nil
		select {
		case err := <-received:
			return err
		case <-s.drain:
			return errDraining
		case <-ctx.Done():
			return ended(ctx)
		case err := <-reviewing:
			if reviewing = nil; err != nil && ctx.Err() == nil {
				return err
			}
		case <-queued:
			slot, started, queued = limiter.newSlot(), true, nil
		case <-wakeup:
		case <-retry.C:
		}
	}
}

// ended returns the status of a stream whose context has ended. An interceptor that ends a context gives the status as its cause.
func ended(ctx context.Context) error {
	if _, ok := status.FromError(context.Cause(ctx)); ok {
		return context.Cause(ctx)
	}
	return status.FromContextError(ctx.Err()).Err()
}

// isHeavy says whether it is heavy work to plan the next response.
func (s *stream) isHeavy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cost < heavyNames && !slices.ContainsFunc(s.subs, func(sub *subscription) bool { return sub.client.brought != nil }) {
		return false
	}
	return !slices.ContainsFunc(s.subs, func(sub *subscription) bool { return len(sub.chunks) > 0 }) // they are planned
}

// due says whether a response may be due. It plans none.
func (s *stream) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.subs, func(sub *subscription) bool {
		return sub.coll.Synced() && (sub.client.answersRequest() || !sub.client.matches(sub.coll.shown.Load()))
	})
}

// next returns the next message to send, or nil. If a subscription waits for something, wait says when to look again without a
// wakeup.
func (s *stream) next(now time.Time) (out *frame, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subs {
		if len(sub.chunks) > 0 {
			return s.emit(sub, now), 0
		}
	}
	s.again = 0
	if s.outdated() {
		return nil, 0
	}
	free, ordered := s.split()
	sub, p := s.anyOf(free, now)
	if sub == nil {
		sub, p = s.inOrder(ordered, now)
	}
	if sub != nil {
		s.begin(sub, &p, now)
		return s.emit(sub, now), 0
	}
	return nil, s.again
}

// anyOf returns which of subs, which have no order, is sent next, and the response.
func (s *stream) anyOf(subs []*subscription, now time.Time) (next *subscription, p responsePlan) {
	for _, sub := range subs {
		if !sub.coll.Synced() {
			continue
		}
		if sub.client.matches(sub.coll.shown.Load()) && !sub.client.answersRequest() {
			continue // the usual case
		}
		s.lookAgain(sub.followCollection(now, s.server.opts.Pacing))
		if p := sub.plan(false); !p.due() {
			sub.settle(&p)
		} else if s.maySend(sub, now) {
			return sub, p
		}
	}
	return nil, responsePlan{}
}

// lookAgain makes the stream look again after wait, if that is positive, and reports whether it is.
func (s *stream) lookAgain(wait time.Duration) bool {
	if wait <= 0 {
		return false
	}
	if s.again == 0 || wait < s.again {
		s.again = wait
	}
	return true
}

// maySend says whether sub may be sent the next response: the last one is answered, or AckTimeout has passed.
func (s *stream) maySend(sub *subscription, now time.Time) bool {
	return sub.coll.typ.NoAck || !sub.outstanding() || !s.lookAgain(sub.status.SentAt.Add(s.server.opts.AckTimeout).Sub(now))
}

// begin encodes the chunks of a response and updates the subscription.
func (s *stream) begin(sub *subscription, p *responsePlan, now time.Time) {
	s.expect(sub, p, now)
	sub.chunks = p.bodies(sub.variant)
	sub.pace.begin(&sub.client, now)
	if !sub.client.fresh() && sub.client.moves(p) {
		sub.lastMoved = now
	}
	if sub.outstanding() && sub.unanswered == 0 {
		sub.unanswered = sub.firstNonce
	}
	sub.answers.begin(&sub.client, p, sub.chunks, sub.variant)
	sub.client = p.client
	sub.changeTimes.begin(sub.client.state == sub.goal)
	s.forgetMissing(sub)
	sub.notePreannounced(p.preannounced, now)
	sub.firstNonce, sub.rejected = s.sent+1, false
}

// nonceBase is the base of nonces, which are numbers, counted on each stream.
const nonceBase = 36

// emit returns the next chunk of a subscription, with its header.
func (s *stream) emit(sub *subscription, now time.Time) *frame {
	b := sub.chunks[0]
	if sub.chunks = sub.chunks[1:]; len(sub.chunks) == 0 {
		sub.chunks = nil // for the garbage collector
	}
	s.sent++
	st := &sub.status
	sub.lastNonce = s.sent
	st.SentVersion, st.SentNonce, st.SentAt = sub.client.state.version, strconv.FormatUint(s.sent, nonceBase), now
	st.Responses++
	control := s.server.sotwControl
	if s.delta {
		control = s.server.deltaControl
	}
	h := make([]byte, 0, 16+len(st.SentVersion)+len(sub.typeURL)+len(st.SentNonce)+len(control))
	if len(sub.chunks) == 0 { // see chunkMark
		h = protowire.AppendTag(h, sotwVersion, protowire.BytesType) // deltaVersion is the same
		h = protowire.AppendString(h, st.SentVersion)
	}
	h = protowire.AppendTag(h, respTypeURL, protowire.BytesType)
	h = protowire.AppendString(h, sub.typeURL)
	h = protowire.AppendTag(h, respNonce, protowire.BytesType)
	h = protowire.AppendString(h, st.SentNonce)
	h = append(h, control...)
	f := newFrame
	if s.zip {
		f = newZippedFrame
	}
	out := f(h, b)
	sub.metrics.response(out.size(), b.count)
	if len(sub.chunks) == 0 {
		sub.metrics.sent(&sub.changeTimes, now)
	}
	return out
}
