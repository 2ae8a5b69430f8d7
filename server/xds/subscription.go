package xds

import (
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/server/xds/wire"
)

// subscription is one type on one stream: the client's selection, its state, and the response on its way. It does no
// I/O and is guarded by the stream's mutex.
type subscription struct {
	typeURL  string // as the client wrote it
	variant         // the form of the responses
	coll     *Collection
	release  func() // gives the collection back
	reviewed uint64 // the number of reviews when the catalog chose coll
	metrics  typeMetrics

	selection     subscriptionNames
	client        clientState
	retained      retained // of the versions in client.brought
	named         bool     // SotW: a request had a name; since then, a request without names asks for none, not for all
	staleNamesSum uint64   // SotW: a sum of the names of the last stale request, if they differ from the selection
	cost          int      // of the names in selection: see wire.NameCost
	// lastQuery has the names that Type.Query was last called with; used by receive
	lastQuery   []string
	missing     *missing // delta: of a type with NoWildcard, else nil
	droppedCost int      // delta: cost of the names unsubscribed under a wildcard that the next response must mention

	goal   *state  // the state that responses lead the client to
	chunks []*body // the unsent ones of the present response; client already includes all of it

	pace pace

	returned bool      // with versions of an earlier stream
	resumed  time.Time // when the client came back; zero if it began without resources
	// formerVersion is the version of the last response on an earlier stream. SotW; empty once the first goal is set.
	formerVersion string
	// childrenBehind: the parents of this cut were sent before it, since a response would have deleted gone resources that
	// the client may use: see deletesGone.
	childrenBehind bool
	lastMoved      time.Time // when a change was last sent after which the client may use other children
	removes        time.Time // since when a removal waits because the client may still use the resource; zero if none does

	preannounced *preannounced // the interim state of the client; nil if there is none

	// of a type that has children: see expect
	children map[string]struct{} // that the client must have before parents of higher rank are sent
	expects  time.Time           // since when
	// of a type of children: those that the last response mentions
	mentionedChildren []string

	// of the last response: the nonces of its chunks, which are numbers in sequence, and whether one was rejected
	firstNonce, lastNonce uint64
	rejected              bool
	// the first nonce of the unanswered responses before the last one; zero if there are none
	unanswered uint64

	answers     answers
	changeTimes changeTimes

	status TypeStatus
}

// ack applies the answer to a response that a request has. It reports whether the request answers the last response, or
// its last chunk.
func (s *subscription) ack(request *wire.Request, now time.Time) (current bool) {
	nonce, err := strconv.ParseUint(request.Nonce, nonceBase, 64)
	if err != nil || nonce > s.lastNonce || s.firstNonce == 0 || strconv.FormatUint(nonce, nonceBase) != request.Nonce {
		return false
	}
	if nonce < s.firstNonce {
		if request.Err != nil && s.unanswered != 0 && nonce >= s.unanswered {
			s.reject(s.mentioned(request.Err.GetMessage()), request.Err.GetMessage(), now)
			s.nacked(request, now)
		}
		return false
	}
	current = nonce == s.lastNonce
	switch {
	case request.Err != nil:
		if entries := s.sentWith(nonce); len(entries) > 0 || !s.rejected { // else it is a repetition
			s.reject(entries, request.Err.GetMessage(), now)
		}
		s.rejected = true
		s.nacked(request, now)
	case current:
		s.status.AckedNonce = request.Nonce
		s.status.AckedVersion = s.status.SentVersion
		s.status.AckedAt = now
		s.accept(nonce)
		if !s.rejected {
			s.metrics.acknowledged(&s.changeTimes, now)
		}
	default:
		s.accept(nonce)
	}
	if current {
		s.answers.forgetResponse()
		s.pace.ackTime = now.Sub(s.status.SentAt)
		s.unanswered = 0
	}
	return current
}

func (s *subscription) nacked(r *wire.Request, now time.Time) {
	s.status.NackNonce = r.Nonce
	s.status.NackError = r.Err.GetMessage()
	s.status.NackAt = now
	s.status.Nacks++
}

// comparedBytes is the size of the versions of a resuming client, which the next plan compares. A comparison with a
// whole state counts as the largest. One of few versions counts as more than its size, since it reads the latest
// commits.
func (s *subscription) comparedBytes() int {
	switch {
	case s.client.brought == nil:
		return 0
	case s.selection.wildcard:
		return math.MaxInt32
	}
	return max(s.client.brought.Size(), heavyBytes/8)
}

// outstanding reports whether the client has yet to answer the last response.
func (s *subscription) outstanding() bool {
	st := &s.status
	return st.SentNonce != st.AckedNonce && st.SentNonce != st.NackNonce
}

// apply applies a request. The first one of a type is an initial request whatever its nonce (istiod makes one up). It
// reports whether the request answers the last response, or is the first.
func (s *subscription) apply(request *wire.Request, first bool, now time.Time) (current bool) {
	current = first || s.ack(request, now)
	request.ChangesSubscription = first || len(request.Subscribe)+len(request.Unsubscribe) > 0
	switch {
	case s.delta:
		s.applyDelta(request, first, now) // subscriptions count even where the nonce is stale
	case current || request.Nonce == "":
		s.applySotW(request, first, now)
	case s.ours(request.Nonce):
		s.applyStale(request)
	}
	return current
}

// ours reports whether nonce was sent on this stream.
func (s *subscription) ours(nonce string) bool {
	n, err := strconv.ParseUint(nonce, nonceBase, 64)
	return err == nil && n > 0 && n <= s.lastNonce
}

// applyStale applies a SotW request that the client sent before it had the last response. Its names do not count: the
// answer to that response will have them all. But the client has dropped the resources without a name in the request,
// and must get them again.
func (s *subscription) applyStale(request *wire.Request) {
	if s.selection.wildcard && !s.wantsAll(request) {
		s.client.mustRespond = true
	}
	requested := make(map[string]struct{}, len(request.Names))
	for _, name := range request.Names {
		requested[name] = struct{}{}
	}
	dropped := false
	for name := range s.selection.names {
		if _, ok := requested[name]; !ok {
			s.client.mustResend(name)
			dropped = true
		}
	}
	sum := uint64(0)
	if dropped || len(requested) != len(s.selection.names) {
		sum = sumOf(requested)
	}
	request.ChangesSubscription = sum != s.staleNamesSum
	s.staleNamesSum = sum
}

// sumSeed makes sums unpredictable.
var sumSeed = maphash.MakeSeed()

// sumOf returns a sum that identifies a set of names.
func sumOf(names map[string]struct{}) (sum uint64) {
	for name := range names {
		sum += maphash.String(sumSeed, name)
	}
	return sum
}

// wantsAll reports whether a SotW request asks for everything.
func (s *subscription) wantsAll(r *wire.Request) bool {
	return !s.noWildcard && s.wildcard(r)
}

func (s *subscription) wildcard(r *wire.Request) bool {
	return len(r.Names) == 0 && !s.named || slices.Contains(r.Names, "*")
}

// applySotW applies the names of a request, which are all that the client wants.
func (s *subscription) applySotW(request *wire.Request, first bool, now time.Time) {
	wildcard := s.wantsAll(request)
	widens := wildcard && !s.selection.wildcard
	var answered map[string]struct{}
	if widens {
		answered = s.answeredNames()
	}
	s.named = s.named || len(request.Names) > 0
	wanted := subscriptionNames{wildcard: wildcard, names: make(map[string]struct{}, len(request.Names))}
	hadAll := wildcard && s.selection.wildcard && s.client.state != initialState // so it had each named one, too
	added := false
	present := s.coll.current.Load()
	for _, name := range request.Names {
		if name == "*" {
			continue
		}
		wanted.add(name, present)
		if _, ok := s.selection.names[name]; !ok && !hadAll {
			s.client.mustAnswer(name)
			added = true
		}
	}
	request.ChangesSubscription = request.ChangesSubscription || wildcard != s.selection.wildcard ||
		len(wanted.names) != len(s.selection.names)
	for name := range s.selection.names {
		if _, ok := wanted.names[name]; !ok {
			s.client.forget(name)
			request.ChangesSubscription = true
		}
	}
	if first && request.Version != "" {
		s.resumed = now
		s.returned = true
		s.formerVersion = request.Version
	}
	if first && wildcard {
		s.client.version = request.Version
	} else if !wildcard {
		s.client.version = "" // it is the version of everything
	}
	if widens {
		s.client.forgetAllExcept(answered)
	}
	// A response in full answers for all names at once; a partial one, for those that must be answered.
	narrows := s.selection.wildcard && !wildcard
	switch {
	case !wildcard && len(wanted.names) == 0:
		s.client.mustRespond = first && s.noWildcard && s.wildcard(request)
	case widens, !s.partial && (first || added || narrows):
		s.client.mustRespond = true
	}
	s.selection = wanted
	s.cost = request.Cost
	s.staleNamesSum = 0
}

// answeredNames returns the names that the client wants and that responses have mentioned.
func (s *subscription) answeredNames() map[string]struct{} {
	earlier := make(map[string]struct{}, len(s.selection.names))
	for name := range s.selection.names {
		if sent, notHeld := s.client.notHeld[name]; !notHeld || bool(sent) {
			earlier[name] = struct{}{}
		}
	}
	return earlier
}

// applyDelta applies the names that a request subscribes to and unsubscribes from.
func (s *subscription) applyDelta(request *wire.Request, first bool, now time.Time) {
	if first {
		s.client.brought = request.Initial
		if request.Initial != nil {
			s.resumed = now
			s.returned = true
		}
		if len(request.Subscribe) == 0 {
			s.selection.wildcard = !s.noWildcard
			s.client.mustRespond = true
		}
	}
	if len(s.client.notHeld) == 0 {
		s.droppedCost = 0
	}
	present := s.coll.current.Load()
	for _, name := range request.Subscribe {
		if name == "*" {
			if !s.selection.wildcard {
				s.selection.wildcard = !s.noWildcard
				s.client.mustRespond = true
				s.client.resendAll = !first && !s.noWildcard
			}
			continue
		}
		if _, ok := s.selection.names[name]; !ok {
			s.cost += wire.NameCost(len(name))
		}
		s.selection.add(name, present)
		if s.missing != nil && !s.exists(name) {
			s.missing.add(name)
		}
		if !first {
			s.client.mustAnswer(name)
		} else if s.client.brought == nil { // else the client may have it
			s.client.mentionAll = true
		}
	}
	for _, name := range request.Unsubscribe {
		if name == "*" {
			s.selection.wildcard = false
			continue
		}
		if _, ok := s.selection.names[name]; ok {
			s.cost -= wire.NameCost(len(name))
		}
		delete(s.selection.names, name)
		if s.missing != nil {
			s.missing.remove(name)
		}
		if s.selection.wildcard {
			s.client.mustAnswer(name) // the client dropped the resource, but still wants it
			s.droppedCost += wire.NameCost(len(name))
		} else {
			s.client.forget(name)
		}
	}
	if !s.selection.wildcard { // names under a wildcard need no answer any more
		s.client.forgetAllBut(s.selection.names)
	}
}

// followCollection makes the newest state of the collection the goal. If it is too early for that, it returns how long
// to wait.
func (s *subscription) followCollection(now time.Time, pacing Pacing) (wait time.Duration) {
	shown := s.shown()
	if s.goal == shown {
		return 0
	}
	wait = s.paceWait(now, pacing)
	if wait == 0 {
		s.setGoal(shown)
	}
	return wait
}

// paceWait returns how long the next change must wait, or zero. Requests are answered at once.
func (s *subscription) paceWait(now time.Time, pacing Pacing) time.Duration {
	switch {
	case s.client.answersRequest():
		return 0
	case s.inFull(&s.selection):
		return s.pace.wait(now, pacing)
	}
	return s.pace.preannounceWait(now, pacing)
}

// planAll plans the response that leads to the goal, or to the interim state while there is one.
func (s *subscription) planAll() responsePlan { return s.planTo(s.nextGoal(), allChanges) }

// planAdditions is planAll without removals.
func (s *subscription) planAdditions() responsePlan { return s.planTo(s.nextGoal(), additionsOnly) }

func (s *subscription) nextGoal() *state {
	if s.preannounced != nil && !s.preannounced.ready {
		return s.preannounced.state
	}
	return s.goal
}

func (s *subscription) planTo(goal *state, extent planExtent) responsePlan {
	return plan(s.variant, &s.client, &s.selection, goal, extent)
}

// adoptGoal applies a plan that needs no response: the client has the goal already.
func (s *subscription) adoptGoal(p *responsePlan) {
	if p.to == s.goal || p.to != nil && s.client.brought != nil { // the versions in brought must be freed
		s.client = p.client
		if p.to == s.goal {
			s.changeTimes.due = time.Time{}
		}
	}
}

// synced reports whether the client has acknowledged everything.
func (s *subscription) synced() bool {
	return s.client.matches(s.shown()) && !s.client.answersRequest() && len(s.chunks) == 0 &&
		(!s.outstanding() || s.coll.typ.NoAck) && !s.rejected && len(s.rejections()) == 0
}

// answerQuery calls Query with the names of a request that differ from the last query, and removes them from the
// request: the client gets the whole collection. It refuses requests above heavyBytes: they run under the heavy-work
// limit, where Query must not block.
func (s *subscription) answerQuery(query func([]string) error, request *wire.Request, first bool) error {
	if query == nil {
		return nil
	}
	if request.Size > heavyBytes {
		return status.Errorf(codes.InvalidArgument, "a query of %d bytes: the limit is %d", request.Size, heavyBytes)
	}
	names := slices.Concat(request.Names, request.Subscribe)
	request.Names = nil
	request.Subscribe = nil
	request.Unsubscribe = nil
	if !first && request.Nonce != "" && !s.isNewQuery(names) {
		return nil
	}
	s.lastQuery = names
	return query(names)
}

// isNewQuery reports whether names differ from the last query. A delta acknowledgement has none.
func (s *subscription) isNewQuery(names []string) bool {
	return len(names) > 0 && !slices.Equal(names, s.lastQuery)
}
