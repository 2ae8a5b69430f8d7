package xds

import (
	"slices"
	"time"
)

// subscription is what a stream knows of one type: what the client asked for and what it was sent. It does no I/O and is
// guarded by the stream's mutex.
//
// It holds no versions of resources. The client has, of everything that it subscribed to and that is not in resend, what
// is in state.
type subscription struct {
	typeURL string // as the client wrote it
	isDelta bool
	coll    *Collection
	release func() // gives the collection back
	metrics typeMetrics

	wildcard bool
	named    bool                // SotW: a name was given once, so that no names no longer means all
	names    map[string]struct{} // "*" apart
	resend   map[string]struct{} // names to be sent even if they have not changed, or to be answered as missing
	must     bool                // an answer is owed even if it is empty

	state   *state    // what the client was last sent; nil before the first response
	initial *versions // delta, before the first response: initial_resource_versions
	have    string    // SotW, before the first response: version_info

	chunks []*body // the rest of a response that was cut; each leads towards state

	beat time.Time // when the TTLs were last renewed

	status TypeStatus
}

// ack takes what a request says of an earlier response. It reports whether the request is about the last one.
func (s *subscription) ack(r *request, now time.Time) bool {
	if r.nonce == "" || r.nonce != s.status.SentNonce {
		return false
	}
	if r.err != nil {
		s.status.NackNonce, s.status.NackError, s.status.NackAt = r.nonce, r.err.GetMessage(), now
		s.status.Nacks++
		return true
	}
	s.status.AckedNonce, s.status.AckedVersion, s.status.AckedAt = r.nonce, s.status.SentVersion, now
	return true
}

// outstanding says whether the client has yet to answer the last response.
func (s *subscription) outstanding() bool {
	st := &s.status
	return st.SentNonce != st.AckedNonce && st.SentNonce != st.NackNonce
}

// sotw takes a SotW request. The first one of a type is an initial request whatever its nonce (istiod makes one up); of
// the later ones, those with a stale nonce are ignored: the client will answer the newer response, with all its names.
func (s *subscription) sotw(r *request, first bool, now time.Time) {
	if !first && r.nonce != "" && !s.ack(r, now) {
		return
	}
	wildcard := len(r.names) == 0 && !s.named || slices.Contains(r.names, "*")
	s.named = s.named || len(r.names) > 0
	added := false
	for _, name := range r.names {
		if _, ok := s.names[name]; !ok && name != "*" {
			s.add(name)
			added = true
		}
	}
	if len(s.names) > len(r.names) || len(s.names) > 0 && !s.namesAre(r.names) {
		keep := make(map[string]struct{}, len(r.names))
		for _, name := range r.names {
			if name != "*" {
				keep[name] = struct{}{}
			}
		}
		s.names = keep
		for name := range s.resend {
			if _, ok := keep[name]; !ok {
				delete(s.resend, name)
			}
		}
	}
	if first {
		s.have = r.version
	}
	// A response of a full type speaks of all names at once; one of a partial type of those in resend.
	switch full := !s.coll.typ.Partial; {
	case !wildcard && len(s.names) == 0:
		s.must = false
	case wildcard && !s.wildcard, full && (first || added || wildcard != s.wildcard):
		s.must = true
	}
	s.wildcard = wildcard
}

// namesAre says whether names are those subscribed to, given that all of names are.
func (s *subscription) namesAre(names []string) bool {
	distinct := len(names)
	if slices.Contains(names, "*") {
		distinct--
	}
	return distinct == len(s.names) // repeated names only cost a rebuild
}

// delta takes a delta request. Subscriptions count even where the nonce is stale.
func (s *subscription) delta(r *request, first bool, now time.Time) {
	if !first {
		s.ack(r, now)
	}
	if first {
		s.initial = r.initial
		if len(r.subscribe) == 0 {
			s.wildcard, s.must = true, true
		}
	}
	for _, name := range r.subscribe {
		if name == "*" {
			if !s.wildcard {
				s.wildcard, s.must = true, true
				s.state = nil // everything is new to the client but what is in initial
			}
			continue
		}
		s.add(name)
	}
	for _, name := range r.unsub {
		if name == "*" {
			s.wildcard = false
			continue
		}
		_, subscribed := s.names[name]
		delete(s.names, name)
		delete(s.resend, name)
		if s.wildcard && (subscribed || s.state != nil) {
			// The client dropped the resource, but its wildcard still covers it.
			s.sendAgain(name)
		}
	}
}

func (s *subscription) add(name string) {
	if s.names == nil {
		s.names = make(map[string]struct{})
	}
	s.names[name] = struct{}{}
	s.sendAgain(name)
}

// sendAgain makes the next response speak of name.
func (s *subscription) sendAgain(name string) {
	if s.resend == nil {
		s.resend = make(map[string]struct{})
	}
	s.resend[name] = struct{}{}
}

// behind says whether there may be something to send.
func (s *subscription) behind() bool {
	return s.must || len(s.resend) > 0 || s.state != s.coll.current.Load()
}

// covers says whether the client subscribed to name.
func (s *subscription) covers(name string) bool {
	_, ok := s.names[name]
	return ok || s.wildcard
}
