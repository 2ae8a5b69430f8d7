package xds

import (
	"context"
	"errors"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Review makes every stream ask the catalog again which collections it sees, and returns at once. A stream sends nothing committed later
// until it has its answer; then the client moves to the new collection by the difference, in order. A refusal ends the stream.
func (s *Server) Review() {
	s.reviews.Add(1)
	for _, st := range s.all() {
		st.mu.Lock() // wait for a plan that is being made
		st.bell.ring()
		st.mu.Unlock()
	}
}

// outdated says whether the catalog may choose another collection for a subscription by now; s.mu is held.
func (s *stream) outdated() bool {
	now := s.server.reviews.Load()
	return slices.ContainsFunc(s.subs, func(sub *subscription) bool { return sub.reviewed != now })
}

// seen is the catalog's choice for a subscription.
type seen struct {
	sub     *subscription
	coll    *Collection
	release func()
}

// review starts to ask the catalog, if that is due, and returns a channel for the result; else nil.
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

// reviewCollections switches the subscriptions to the collections that the catalog chooses now.
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

// askCatalog returns the catalog's choice for all subscriptions.
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

// nodeAndSubscriptions returns the node of the client and its subscriptions.
func (s *stream) asked() (*corev3.Node, []*subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, append([]*subscription(nil), s.subs...)
}

// applyReview switches the subscriptions to the catalog's choices after so many reviews, and leaves in all the collections to release.
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

// switchTo switches the subscription to another collection and returns the old one.
func (s *subscription) see(coll *Collection) (was *Collection) {
	was, s.coll = s.coll, coll
	s.goal, s.via = nothing, nil
	s.has.at = s.has.at.abroad()
	return was
}

// detached returns the state as one of no commit, for use with another collection, which has revisions of its own.
func (s *state) abroad() *state {
	if s == nothing || s.revision == 0 {
		return s
	}
	return &state{version: s.version, given: s.given, sum: s.sum, len: s.len, pages: s.pages, minTTL: s.minTTL, made: s.made}
}
