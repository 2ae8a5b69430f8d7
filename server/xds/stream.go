package xds

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// stream is one stream of one client. Two goroutines serve it: receive takes requests into the subscriptions, and send
// looks at the subscriptions and writes. A write that blocks thus delays neither the reading of acknowledgements nor
// anybody else.
type stream struct {
	// read-only
	id        uint64
	server    *Server
	grpc      grpc.ServerStream
	delta     bool
	fixedType string // of a stream of a single-type service; empty on ADS
	peer      string
	host      string        // of peer, without the port
	limiter   *rate.Limiter // of requests, or nil; used by receive
	connected time.Time
	bell      bell
	drain     chan struct{}

	mu     sync.Mutex
	closed bool
	node   *corev3.Node
	form   form            // what the client of node understands
	subs   []*subscription // in order of rank, then of arrival
	// owed are resources that the client will wait for once it asks for their type: see Type.ChildURL.
	owed map[string][]string

	// owned by send
	sent uint64
}

// run serves the stream until it ends.
func (s *stream) run(ctx context.Context, turn *turn) error {
	defer s.close()
	received := make(chan error, 1)
	s.server.receivers.Go(func() { received <- s.receive() })
	return s.send(ctx, turn, received)
}

// close gives back what the subscriptions hold.
func (s *stream) close() {
	s.mu.Lock()
	s.closed = true
	subs := s.subs
	s.mu.Unlock()
	for _, sub := range subs {
		s.giveBack(sub)
	}
}

func (s *stream) giveBack(sub *subscription) {
	sub.coll.unsubscribe(s.bell)
	if sub.release != nil {
		sub.release()
	}
}

// receive reads requests until the stream ends. It returns nil when the client is done.
func (s *stream) receive() error {
	req := &request{delta: s.delta}
	for {
		if err := s.grpc.RecvMsg(req); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := s.take(req); err != nil {
			return err
		}
	}
}

// take applies one request.
func (s *stream) take(req *request) error {
	if err := s.checkRequest(req); err != nil {
		return err
	}
	typeURL := cmp.Or(req.typeURL, s.fixedType)
	if typeURL == "" {
		return status.Error(codes.InvalidArgument, "type_url is missing: it is required on an aggregated stream")
	}
	if s.fixedType != "" && typeURL != s.fixedType {
		return status.Errorf(codes.InvalidArgument, "type_url is %q, but this service serves %q", typeURL, s.fixedType)
	}
	now := time.Now()
	sub := s.subscription(typeURL)
	first := sub == nil
	if first {
		var err error
		if sub, err = s.open(req, typeURL); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if first && s.closed {
		s.mu.Unlock()
		s.giveBack(sub)
		return io.ErrClosedPipe
	}
	nacks, lastNack := sub.status.Nacks, sub.status.NackNonce
	if s.delta {
		sub.delta(req, first, now)
	} else {
		sub.sotw(req, first, now)
	}
	if first {
		for _, name := range s.owed[typeURL] {
			if sub.covers(name) {
				sub.sendAgain(name)
				sub.initial.forget(name)
			}
		}
		delete(s.owed, typeURL)
		s.subs = append(s.subs, sub)
		slices.SortStableFunc(s.subs, func(a, b *subscription) int { return cmp.Compare(a.coll.typ.Rank, b.coll.typ.Rank) })
	}
	if err := s.checkSubscriptions(); err != nil {
		s.mu.Unlock()
		return err
	}
	nacked := sub.status.Nacks > nacks
	repeated := sub.status.NackNonce == lastNack
	idle := len(sub.chunks) == 0 && !sub.behind()
	s.mu.Unlock()

	sub.metrics.request(nacked)
	if nacked && !repeated {
		s.server.log.Warn("client rejected a response", "node_id", s.nodeID(), "peer", s.peer, "type_url", typeURL,
			"nonce", req.nonce, "err", req.err.GetMessage())
	}
	if !idle {
		s.bell.ring()
	}
	return nil
}

// subscription returns the subscription of a type, or nil. Only receive adds any.
func (s *stream) subscription(typeURL string) *subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(typeURL)
}

func (s *stream) find(typeURL string) *subscription {
	for _, sub := range s.subs {
		if sub.typeURL == typeURL {
			return sub
		}
	}
	return nil
}

// open makes the subscription of a type that the client asks for the first time.
func (s *stream) open(req *request, typeURL string) (*subscription, error) {
	node := req.node
	if node == nil {
		node = &corev3.Node{}
	}
	s.mu.Lock()
	s.node, s.form = node, formOf(node, s.delta)
	s.mu.Unlock()
	coll, release, err := s.server.catalog.Collection(s.grpc.Context(), node, typeURL)
	if err != nil {
		return nil, err
	}
	coll.subscribe(s.bell)
	return &subscription{
		typeURL: typeURL, isDelta: s.delta, coll: coll, release: release, metrics: s.server.metrics.of(coll.typ.URL),
		status: TypeStatus{TypeURL: typeURL},
	}, nil
}

func (s *stream) nodeID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.GetId()
}

// send writes responses until the stream ends. The turn is over when the first of them are out.
func (s *stream) send(ctx context.Context, turn *turn, received <-chan error) error {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		turn.work()
		out, wait := s.next(time.Now())
		turn.wait()
		if out != nil {
			if err := s.grpc.SendMsg(out); err != nil {
				return err
			}
		}
		if wait > 0 {
			retry.Reset(wait)
		}
		select {
		case err := <-received: // looked at first even where there is more to send
			return err
		case <-s.drain:
			return errDraining
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		default:
		}
		if out != nil {
			continue
		}
		if s.sent > 0 {
			turn.end()
			turn = nil
		}
		select {
		case err := <-received:
			return err
		case <-s.drain:
			return errDraining
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-s.bell:
		case <-retry.C:
		}
	}
}

// next returns the next message to send, or nil. If a subscription waits for an acknowledgement, wait says after what
// time to look again without one.
func (s *stream) next(now time.Time) (out *frame, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*response
	var held held
	for _, sub := range s.subs {
		if len(sub.chunks) > 0 {
			return s.emit(sub, now), 0
		}
		ranked := sub.coll.typ.Rank > 0
		if ranked && held.adds {
			continue
		}
		gate := s.gate(sub, now)
		if gate > 0 && !ranked {
			if sub.behind() {
				wait = minPositive(wait, gate)
			}
			continue
		}
		switch r := sub.next(); {
		case r == nil:
		case gate > 0:
			wait = minPositive(wait, gate)
			held.adds = held.adds || r.adds()
			held.rank = sub.coll.typ.Rank
		default:
			due = append(due, r)
		}
	}
	r := pick(due, held)
	if r == nil {
		out, w := s.heartbeat(now)
		return out, minPositive(wait, w)
	}
	s.plan(r, now)
	return s.emit(r.sub, now), 0
}

// gate returns how long sub has to wait for an acknowledgement before it may be sent more, or zero.
func (s *stream) gate(sub *subscription, now time.Time) time.Duration {
	if sub.coll.typ.NoAck || !sub.outstanding() {
		return 0
	}
	return max(sub.status.SentAt.Add(s.server.opts.AckTimeout).Sub(now), 0)
}

// held is what the ranked types that wait for an acknowledgement have to say.
type held struct {
	adds bool // one of them has something to add
	rank int  // the highest of their ranks
}

// pick chooses the response to send first, of those due in order of rank: what adds in that order, then what removes in
// reverse. A response of a ranked type loses its removals for now while other ranked types have something to say.
func pick(due []*response, held held) *response {
	if len(due) == 0 {
		return nil
	}
	if due[0].sub.coll.typ.Rank == 0 || len(due) == 1 && held.rank == 0 {
		return due[0]
	}
	for _, r := range due {
		if r.adds() {
			return r.withoutRemovals()
		}
	}
	last := due[len(due)-1]
	if held.adds || last.sub.coll.typ.Rank < held.rank {
		return nil
	}
	return last
}

// plan lays out the chunks of a response and notes what follows from its being sent.
func (s *stream) plan(r *response, now time.Time) {
	sub := r.sub
	if url := sub.coll.typ.ChildURL; url != "" {
		resumed := sub.initial != nil
		child := s.find(url)
		for _, e := range r.changed() {
			switch {
			case e.Child == "":
			case child != nil && child.state != nil && child.covers(e.Child):
				child.sendAgain(e.Child)
			case child == nil && resumed:
				if s.owed == nil {
					s.owed = make(map[string][]string)
				}
				s.owed[url] = append(s.owed[url], e.Child)
			}
		}
	}
	sub.chunks = r.bodies(s.form)
	sub.settle(r.to)
	if sub.beat.IsZero() {
		sub.beat = now
	}
}

// emit takes the next chunk of a subscription and gives it a header.
func (s *stream) emit(sub *subscription, now time.Time) *frame {
	b := sub.chunks[0]
	if sub.chunks = sub.chunks[1:]; len(sub.chunks) == 0 {
		sub.chunks = nil // what was sent must not be kept from the collector
	}
	s.sent++
	st := &sub.status
	st.SentVersion, st.SentNonce, st.SentAt = sub.state.version, strconv.FormatUint(s.sent, 36), now
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
	sub.metrics.response(len(h)+b.size, b.count)
	return newFrame(h, b)
}
