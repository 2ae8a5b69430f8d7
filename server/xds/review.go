package xds

import (
	"errors"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Review has all streams ask the catalog once more which collections their clients are to see. A client that is to see others now is led there as to a newer
// state of those that it saw: it is sent what differs, in order, and loses nothing before its time. A client that the catalog refuses now has its stream
// ended. When Review returns, streams follow what the catalog says now, those included that come while it runs.
func (s *Server) Review() {
	s.reviews.Add(1)
	for _, st := range s.all() {
		if err := st.review(); err != nil {
			st.end(err)
		}
	}
}

// seen is what the catalog says of a subscription.
type seen struct {
	sub     *subscription
	coll    *Collection
	release func()
}

// review asks the catalog what the client is to see, until that is what it sees.
func (s *stream) review() error {
	for {
		turn := s.server.reviews.Load()
		all, err := s.look()
		over := err != nil || s.lead(turn, all)
		for _, a := range all {
			a.coll.unsubscribe(s.bell)
			if a.release != nil {
				a.release()
			}
		}
		s.bell.ring()
		if over {
			return err
		}
	}
}

// look returns what the catalog says of all subscriptions.
func (s *stream) look() (all []seen, err error) {
	node, subs := s.asked()
	for _, sub := range subs {
		coll, release, err := s.server.catalog.Collection(s.grpc.Context(), node, sub.typeURL)
		if errors.Is(err, ErrNoAnswer) {
			err = status.Errorf(codes.Unavailable, "type %s is no longer served here", sub.typeURL)
		}
		if err == nil && coll == nil {
			err = noCollection(sub.typeURL)
		}
		if err != nil {
			return all, err
		}
		coll.subscribe(s.bell)
		all = append(all, seen{sub, coll, release})
	}
	return all, nil
}

// asked returns the node of the client and what it subscribed to.
func (s *stream) asked() (*corev3.Node, []*subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, append([]*subscription(nil), s.subs...)
}

// lead has subscriptions see what the catalog says of them, and leaves in all what is to be given back. It reports false if the catalog may say something
// else by now.
func (s *stream) lead(turn uint64, all []seen) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true
	}
	if s.server.reviews.Load() != turn {
		return false
	}
	for i := range all {
		if a := &all[i]; a.coll != a.sub.coll {
			delete(s.cuts, a.sub.coll.group)
			a.sub.release, a.release = a.release, a.sub.release
			a.coll = a.sub.see(a.coll)
		}
	}
	return true
}

// end ends the stream.
func (s *stream) end(err error) {
	select {
	case s.ended <- err:
	default: // it is ended already
	}
}

// see has the subscription see another collection, and returns the one that it saw.
func (s *subscription) see(coll *Collection) (was *Collection) {
	was, s.coll = s.coll, coll
	s.goal, s.via = nothing, nil
	s.has.at = s.has.at.abroad()
	return was
}

// abroad returns the state as one of no commit, for another collection, whose revisions are others.
func (s *state) abroad() *state {
	if s == nothing || s.revision == 0 {
		return s
	}
	return &state{version: s.version, given: s.given, sum: s.sum, len: s.len, pages: s.pages, minTTL: s.minTTL, made: s.made}
}
