package xds

import (
	"hash/maphash"
	"slices"
	"strconv"
	"time"
)

// subscription is one type on one stream: what the client wants of it, what the client has of it, and the response that is
// on its way. It does no I/O and is guarded by the stream's mutex.
type subscription struct {
	typeURL string // as the client wrote it
	variant
	coll     *Collection
	release  func() // gives the collection back
	reviewed uint64 // after how many reviews the catalog said that it is the one
	metrics  typeMetrics

	wants wants
	has   holding
	kept  kept   // of the versions in has.brought
	named bool   // SotW: a name was given once, so that no names no longer means all
	stale uint64 // SotW: a sum of the names of the last request that was stale, if they were others than those that are wanted
	cost  int    // of the names that are wanted: see nameCost
	// questions are those that were asked last, of a type that has them; used by receive
	questions []string
	missing   *missing // delta: of a type that is handed out by name only, else nil
	owed      int      // delta: of those that were unsubscribed from while everything is wanted, since nothing was owed

	goal   *state  // what the client is being brought to
	chunks []*body // of a response of which the first ones are sent already; the client is taken to have all of it

	pace pace
	beat time.Time // when the TTLs were last renewed

	resumed time.Time // when the client came back; zero if it began with nothing
	led     time.Time // when the client was last sent something that may lead it to other children
	since   time.Time // when the last response was sent, heartbeats apart
	removes time.Time // since when something is to be removed that the client may yet use; zero if nothing is
	beating bool      // what is being sent is a heartbeat

	via *via // where the client is while it is introduced to what it is to be led to; else nil

	// of a type that has children: see expect
	children map[string]struct{} // that the client is expected to have before a parent leads to them
	expects  time.Time           // since when
	// of a type of children: which of them the last response spoke of
	spoken []string

	// of the last response: the nonces of its chunks, which are numbers in sequence, and whether one was rejected
	firstNonce, lastNonce uint64
	rejected              bool
	// the first nonce of the responses before it that the client has yet to answer, since it was not waited for; or zero
	unanswered uint64

	answers answers
	news    news

	status TypeStatus
}

// ack takes what a request says of an earlier response. It reports whether the request is about the last one, or its last
// chunk; about an earlier chunk it says something only if it is a rejection.
func (s *subscription) ack(r *request, now time.Time) (current bool) {
	nonce, err := strconv.ParseUint(r.nonce, nonceBase, 64)
	if err != nil || nonce > s.lastNonce || s.firstNonce == 0 || strconv.FormatUint(nonce, nonceBase) != r.nonce {
		return false
	}
	if nonce < s.firstNonce {
		if r.err != nil && s.unanswered != 0 && nonce >= s.unanswered {
			s.reject(nil, r.err.GetMessage(), now)
			s.nacked(r, now)
		}
		return false
	}
	current = nonce == s.lastNonce
	switch {
	case r.err != nil:
		if about := s.about(nonce); len(about) > 0 || !s.rejected { // else it repeats itself
			s.reject(about, r.err.GetMessage(), now)
		}
		s.rejected = true
		s.nacked(r, now)
	case current:
		s.status.AckedNonce, s.status.AckedVersion, s.status.AckedAt = r.nonce, s.status.SentVersion, now
		s.accept(nonce)
		if !s.rejected {
			s.metrics.acknowledged(&s.news, now)
		}
	default:
		s.accept(nonce)
	}
	if current {
		s.answers.answered()
		s.pace.took = now.Sub(s.status.SentAt)
		s.unanswered = 0
	}
	return current
}

func (s *subscription) nacked(r *request, now time.Time) {
	s.status.NackNonce, s.status.NackError, s.status.NackAt = r.nonce, r.err.GetMessage(), now
	s.status.Nacks++
}

// outstanding says whether the client has yet to answer the last response.
func (s *subscription) outstanding() bool {
	st := &s.status
	return st.SentNonce != st.AckedNonce && st.SentNonce != st.NackNonce
}

// take takes a request. The first one of a type is an initial request whatever its nonce (istiod makes one up). It reports
// whether the request answers the last response, or is the first.
func (s *subscription) take(r *request, first bool, now time.Time) (current bool) {
	current = first || s.ack(r, now)
	r.asks = first || len(r.subscribe)+len(r.unsub) > 0
	switch {
	case s.delta:
		s.takeDelta(r, first, now) // subscriptions count even where the nonce is stale
	case current || r.nonce == "":
		s.takeSotW(r, first)
	case s.ours(r.nonce):
		s.takeStale(r)
	}
	return current
}

// ours says whether nonce was sent on this stream.
func (s *subscription) ours(nonce string) bool {
	n, err := strconv.ParseUint(nonce, nonceBase, 64)
	return err == nil && n > 0 && n <= s.lastNonce
}

// takeStale takes a SotW request that was sent before the client had seen the last response. The client will answer that
// with all its names, which is when they count. But what is not among them now it has dropped, even if it is then.
func (s *subscription) takeStale(r *request) {
	if s.wants.all && !s.all(r) {
		s.has.asks = true
	}
	kept := make(map[string]struct{}, len(r.names))
	for _, name := range r.names {
		kept[name] = struct{}{}
	}
	dropped := false
	for name := range s.wants.names {
		if _, ok := kept[name]; !ok {
			s.has.renew(name)
			dropped = true
		}
	}
	sum := uint64(0)
	if dropped || len(kept) != len(s.wants.names) {
		sum = sumOf(kept)
	}
	r.asks, s.stale = sum != s.stale, sum
}

// sumSeed makes sums that nobody can foresee.
var sumSeed = maphash.MakeSeed()

// sumOf is a sum of names by which others are told from them.
func sumOf(names map[string]struct{}) (sum uint64) {
	for name := range names {
		sum += maphash.String(sumSeed, name)
	}
	return sum
}

// all says whether a SotW request asks for everything.
func (s *subscription) all(r *request) bool {
	return !s.byName && s.wildcard(r)
}

func (s *subscription) wildcard(r *request) bool {
	return len(r.names) == 0 && !s.named || slices.Contains(r.names, "*")
}

// takeSotW takes the names of a request, which are all that the client wants.
func (s *subscription) takeSotW(r *request, first bool) {
	all := s.all(r)
	more := all && !s.wants.all
	var kept map[string]struct{} // of what it has
	if more {
		kept = s.had()
	}
	s.named = s.named || len(r.names) > 0
	wanted := wants{all: all, names: make(map[string]struct{}, len(r.names))}
	had := all && s.wants.all && s.has.at != nothing // with everything else
	added, known := false, s.coll.current.Load()
	for _, name := range r.names {
		if name == "*" {
			continue
		}
		wanted.add(name, known)
		if _, ok := s.wants.names[name]; !ok && !had {
			s.has.owe(name)
			added = true
		}
	}
	r.asks = r.asks || all != s.wants.all || len(wanted.names) != len(s.wants.names)
	for name := range s.wants.names {
		if _, ok := wanted.names[name]; !ok {
			s.has.forget(name)
			r.asks = true
		}
	}
	if first && all {
		s.has.version = r.version
	} else if !all {
		s.has.version = "" // that was of everything
	}
	if more {
		s.has.keepOnly(kept)
	}
	// A response of a type in full speaks of all names at once; a part, of those that are owed.
	switch less := s.wants.all && !all; {
	case !all && len(wanted.names) == 0:
		s.has.asks = first && s.byName && s.wildcard(r)
	case more, !s.partial && (first || added || less):
		s.has.asks = true
	}
	s.wants, s.cost, s.stale = wanted, r.cost, 0
}

// had are the names that the client wants and has been told of.
func (s *subscription) had() map[string]struct{} {
	had := make(map[string]struct{}, len(s.wants.names))
	for name := range s.wants.names {
		if told, lacks := s.has.lacks[name]; !lacks || bool(told) {
			had[name] = struct{}{}
		}
	}
	return had
}

// takeDelta takes what a request adds to what the client wants, and what it takes away.
func (s *subscription) takeDelta(r *request, first bool, now time.Time) {
	if first {
		if s.has.brought = r.initial; r.initial != nil {
			s.resumed = now
		}
		if len(r.subscribe) == 0 {
			s.wants.all, s.has.asks = !s.byName, true
		}
	}
	if len(s.has.lacks) == 0 {
		s.owed = 0
	}
	known := s.coll.current.Load()
	for _, name := range r.subscribe {
		if name == "*" {
			if !s.wants.all {
				s.wants.all, s.has.asks, s.has.again = !s.byName, true, !first && !s.byName
			}
			continue
		}
		if _, ok := s.wants.names[name]; !ok {
			s.cost += nameCost(len(name))
		}
		s.wants.add(name, known)
		if s.missing != nil && !s.there(name) {
			s.missing.add(name)
		}
		if !first || s.has.brought == nil { // else it may have it
			s.has.owe(name)
		}
	}
	for _, name := range r.unsub {
		if name == "*" {
			s.wants.all = false
			continue
		}
		if _, ok := s.wants.names[name]; ok {
			s.cost -= nameCost(len(name))
		}
		delete(s.wants.names, name)
		if s.missing != nil {
			s.missing.drop(name)
		}
		if s.wants.all {
			s.has.owe(name) // the client dropped the resource, but still wants it
			s.owed += nameCost(len(name))
		} else {
			s.has.forget(name)
		}
	}
	if !s.wants.all { // what was owed under a wildcard is no longer
		s.has.forgetAllBut(s.wants.names)
	}
}

// aim makes what is in the collection now the goal, unless it is too early for that: then it returns how long to wait.
func (s *subscription) aim(now time.Time, pacing Pacing) (wait time.Duration) {
	shown := s.coll.shown.Load()
	if s.goal == shown {
		return 0
	}
	if wait = s.paced(now, pacing); wait == 0 {
		s.head(shown)
	}
	return wait
}

// paced returns how long the subscription must leave its client alone, or zero. Who asks is answered at once.
func (s *subscription) paced(now time.Time, pacing Pacing) time.Duration {
	switch {
	case s.has.asked():
		return 0
	case s.inFull(&s.wants):
		return s.pace.wait(now, pacing)
	}
	return s.pace.settle(now, pacing)
}

// plan says how the client is brought to the goal, or to where it is while it is introduced to something.
func (s *subscription) plan(keep bool) step {
	goal := s.goal
	if s.via != nil && !s.via.over {
		goal = s.via.at
	}
	return plan(s.variant, &s.has, &s.wants, goal, keep)
}

// rest notes where a step leads that has nothing to say.
func (s *subscription) rest(p *step) {
	if p.to == s.goal || p.to != nil && s.has.brought != nil { // what was brought along is not to be kept
		s.has = p.has
		if p.to == s.goal {
			s.news.due = time.Time{}
		}
	}
}

// synced says whether the client acknowledged everything.
func (s *subscription) synced() bool {
	return s.has.is(s.coll.shown.Load()) && !s.has.asked() && len(s.chunks) == 0 && (!s.outstanding() || s.coll.typ.NoAck) && !s.rejected &&
		len(s.rejections()) == 0
}
