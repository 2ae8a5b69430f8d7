package xds

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// send writes responses until the stream ends. A client that half-closes it gets the answers to its requests. Before
// the first one it waits for a start slot, which it holds until no response is due.
func (s *stream) send(ctx context.Context, received <-chan error) error {
	retry := time.NewTimer(time.Hour)
	start := streamStart{limiter: &s.server.startLimiter, host: s.host, started: s.server.startLimiter.turns == nil}
	defer start.end()
	asking, stopAsking := context.WithCancel(ctx)
	var reviewing <-chan error // the result of asking the catalog; until then no response is sent
	defer s.reviewers.Wait()
	defer stopAsking()
	for {
		var response *frame
		var wait time.Duration
		if ctx.Err() != nil { // its identity or its access may have ended
			return ended(ctx)
		}
		if s.halfClosed && s.answeredAll() {
			return nil
		}
		if reviewing == nil {
			reviewing = s.review(asking)
		}
		switch {
		case reviewing != nil:
			start.giveUp() // other streams start meanwhile
		case start.started:
			start.slot.work()
			if runHeavy(ctx, s.host, s.isHeavy(), func() { response, wait = s.next(time.Now()) }) != nil {
				return ended(ctx)
			}
			s.freeCompared()
			start.slot.wait()
		case start.queued == nil && s.due() && start.request():
			continue
		}
		if wait > 0 {
			retry.Reset(wait)
		}
		if response != nil {
			if err := s.grpc.SendMsg(response); err != nil {
				return err
			}
			select { // more may be due
			case err := <-received:
				if err != nil {
					return err
				}
				s.halfClosed = true
			case <-s.drain:
				return s.drained
			case <-ctx.Done():
				return ended(ctx)
			default:
			}
			continue
		}
		start.pause()
		select {
		case err := <-received:
			if err != nil {
				return err
			}
			s.halfClosed = true
		case <-s.drain:
			return s.drained
		case <-ctx.Done():
			return ended(ctx)
		case err := <-reviewing:
			reviewing = nil
			if err != nil && ctx.Err() == nil {
				return err
			}
		case <-start.queued:
			start.begin()
		case <-start.changes(s.wakeup):
		case <-retry.C:
		}
	}
}

// streamStart is the start of a stream, which needs a slot of the limiter.
type streamStart struct {
	limiter *startLimiter
	host    string
	queued  <-chan struct{} // signals a slot while the stream waits for one
	slot    *startSlot      // nil while the stream does not work
	started bool            // the stream has started
}

// request starts the stream if a slot is free, and reports whether it did; else it queues the stream.
func (s *streamStart) request() (started bool) {
	s.queued = s.limiter.turns.Queue(s.host)
	if s.queued == nil {
		s.begin()
	}
	return s.started
}

// changes returns the wakeup of the stream. It is nil while the stream is in the queue: changes are sent when it
// starts.
func (s *streamStart) changes(wakeup wakeup) wakeup {
	if s.queued != nil {
		return nil
	}
	return wakeup
}

func (s *streamStart) begin() {
	s.slot = s.limiter.newSlot()
	s.started = true
	s.queued = nil
}

// giveUp leaves the queue.
func (s *streamStart) giveUp() {
	if s.queued != nil {
		s.limiter.turns.GiveUp(s.host, s.queued)
		s.queued = nil
	}
}

// end leaves the queue and gives the slot back.
func (s *streamStart) end() {
	s.giveUp()
	s.pause()
}

// pause gives the slot back.
func (s *streamStart) pause() {
	s.slot.end()
	s.slot = nil
}

// ended returns the status of a stream with an ended context. An interceptor that ends the context sets the status as
// its cause.
func ended(ctx context.Context) error {
	if _, ok := status.FromError(context.Cause(ctx)); ok {
		return context.Cause(ctx)
	}
	return status.FromContextError(ctx.Err()).Err()
}

// answeredAll reports whether the client has the answers to its requests.
func (s *stream) answeredAll() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.subs, func(sub *subscription) bool {
		return !sub.coll.Synced() || len(sub.chunks) > 0 || sub.client.answersRequest() || !sub.client.matches(sub.goal)
	})
}

// isHeavy reports whether planning the next response is heavy work.
func (s *stream) isHeavy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	compared := 0
	for _, subscription := range s.subs {
		if len(subscription.chunks) > 0 {
			return false // they are planned
		}
		compared += subscription.comparedBytes()
	}
	return s.cost >= heavyNames || compared > heavyBytes
}

// due reports whether a response may be due. It plans none.
func (s *stream) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.subs, func(sub *subscription) bool {
		return sub.coll.Synced() && (sub.client.answersRequest() || !sub.client.matches(sub.shown()))
	})
}

// next returns the next message to send, or nil. If a subscription waits for something, wait says when to look again
// without a wakeup.
func (s *stream) next(now time.Time) (out *frame, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subs {
		if len(sub.chunks) > 0 {
			return s.emit(sub, now), 0
		}
	}
	s.nextLook = 0
	if s.outdated() {
		return nil, 0
	}
	free, ordered := s.byOrder()
	subscription, responsePlan := s.nextUnordered(free, now)
	if subscription == nil {
		subscription, responsePlan = s.nextOrdered(ordered, now)
	}
	if subscription != nil {
		s.begin(subscription, &responsePlan, now)
		return s.emit(subscription, now), 0
	}
	return nil, s.nextLook
}

// nextUnordered returns the subscription that is sent next and its response. The subscriptions have no order.
func (s *stream) nextUnordered(subs []*subscription, now time.Time) (next *subscription, response responsePlan) {
	for _, sub := range subs {
		if !sub.coll.Synced() {
			continue
		}
		if sub.client.matches(sub.shown()) && !sub.client.answersRequest() {
			continue // the usual case
		}
		s.dueIn(sub.followCollection(now, s.server.opts.Pacing))
		response := sub.planAll()
		if !response.due() {
			sub.adoptGoal(&response)
		} else if s.maySend(sub, now) {
			return sub, response
		}
	}
	return nil, responsePlan{}
}

// dueIn makes the stream look again after wait, if that is positive, and reports whether it is.
func (s *stream) dueIn(wait time.Duration) bool {
	if wait <= 0 {
		return false
	}
	if s.nextLook == 0 || wait < s.nextLook {
		s.nextLook = wait
	}
	return true
}

// maySend reports whether the next response of a subscription may be sent: the last one is answered or cannot be
// answered, or AckTimeout has passed.
func (s *stream) maySend(sub *subscription, now time.Time) bool {
	return sub.coll.typ.NoAck || s.halfClosed || !sub.outstanding() ||
		!s.dueIn(sub.status.SentAt.Add(s.server.opts.AckTimeout).Sub(now))
}

// begin encodes the chunks of a response and updates the subscription.
func (s *stream) begin(sub *subscription, response *responsePlan, now time.Time) {
	s.expect(sub, response, now)
	sub.chunks = response.bodies(sub.variant)
	sub.pace.begin(&sub.client, now)
	if !sub.client.fresh() && sub.client.moves(response) {
		sub.lastMoved = now
	}
	if sub.outstanding() && sub.unanswered == 0 {
		sub.unanswered = sub.firstNonce
	}
	sub.answers.begin(&sub.client, response, sub.chunks, sub.variant)
	sub.client = response.client
	sub.changeTimes.begin(sub.client.state == sub.goal)
	s.forgetMissing(sub)
	sub.notePreannounced(response.preannounced, now)
	sub.firstNonce = s.sent + 1
	sub.rejected = false
}

// nonceBase is the base of nonces, which are numbers, counted on each stream.
const nonceBase = 36

// emit returns the next chunk of a subscription, with its header.
func (s *stream) emit(sub *subscription, now time.Time) *frame {
	body := sub.chunks[0]
	sub.chunks = sub.chunks[1:]
	if len(sub.chunks) == 0 {
		sub.chunks = nil // for the garbage collector
	}
	s.sent++
	typeStatus := &sub.status
	sub.lastNonce = s.sent
	typeStatus.SentVersion = sub.sentVersion()
	typeStatus.SentNonce = strconv.FormatUint(s.sent, nonceBase)
	typeStatus.SentAt = now
	typeStatus.Responses++
	control := s.server.sotwControl
	if s.delta {
		control = s.server.deltaControl
	}
	header := make([]byte, 0, 16+len(typeStatus.SentVersion)+len(sub.typeURL)+len(typeStatus.SentNonce)+len(control))
	if len(sub.chunks) == 0 { // see chunkMark
		header = protowire.AppendTag(header, sotwVersion, protowire.BytesType) // deltaVersion is the same
		header = protowire.AppendString(header, typeStatus.SentVersion)
	}
	header = protowire.AppendTag(header, respTypeURL, protowire.BytesType)
	header = protowire.AppendString(header, sub.typeURL)
	header = protowire.AppendTag(header, respNonce, protowire.BytesType)
	header = protowire.AppendString(header, typeStatus.SentNonce)
	header = append(header, control...)
	response := newFrame(header, body, s.zip)
	sub.metrics.response(response.size(), body.count)
	if len(sub.chunks) == 0 {
		sub.metrics.sent(&sub.changeTimes, now)
	}
	return response
}
