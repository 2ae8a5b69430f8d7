package xds

import (
	"context"
	"errors"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Review has all streams ask the catalog once more which collections their clients are to see. It does not wait for the catalog: from
// when it returns, a stream is sent nothing of what is committed then, until it has asked, and it asks on its own. A client that is to
// see others now is led there as to a newer state of those that it saw: it is sent what differs, in order, and loses nothing before its
// time. A client that the catalog refuses now has its stream ended. Streams that come while Review runs follow what the catalog says
// now as well.
func (s *Server) Review() {
	s.reviews.Add(1)
	for _, st := range s.all() {
		st.mu.Lock() // what is being planned is of what is committed now
		st.bell.ring()
		st.mu.Unlock()
	}
}

// outdated says whether the catalog may say by now that a subscription is to see another collection; s.mu is held.
func (s *stream) outdated() bool {
	now := s.server.reviews.Load()
	return slices.ContainsFunc(s.subs, func(sub *subscription) bool { return sub.reviewed != now })
}

// seen is what the catalog says of a subscription.
type seen struct {
	sub     *subscription
	coll    *Collection
	release func()
}

// review begins to ask the catalog what the client is to see, if that is due, and returns what is sent the result; else nil.
func (s *stream) review(ctx context.Context) <-chan error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.outdated() {
		return nil
	}
	done := make(chan error, 1)
	s.asks.Go(func() { done <- s.ask(ctx) })
	return done
}

// ask has subscriptions see what the catalog says of them now.
func (s *stream) ask(ctx context.Context) error {
	count := s.server.reviews.Load()
	all, err := s.look(ctx)
	if err == nil {
		s.lead(count, all)
	}
	for _, a := range all {
		a.coll.unsubscribe(s.bell)
		if a.release != nil {
			a.release()
		}
	}
	return err
}

// look returns what the catalog says of all subscriptions.
func (s *stream) look(ctx context.Context) (all []seen, err error) {
	node, subs := s.asked()
	for _, sub := range subs {
		coll, release, err := s.server.catalog.Collection(ctx, node, sub.typeURL)
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

// lead has subscriptions see what the catalog said of them after so many reviews, and leaves in all what is to be given back.
func (s *stream) lead(count uint64, all []seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		a := &all[i]
		a.sub.reviewed = count
		if a.coll != a.sub.coll {
			delete(s.cuts, a.sub.coll.group)
			a.sub.release, a.release = a.release, a.sub.release
			a.coll = a.sub.see(a.coll)
		}
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
