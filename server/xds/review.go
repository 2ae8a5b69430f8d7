package xds

import (
	"context"
	"errors"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Review makes every stream ask the catalog again for its collections, and returns at once. Until the catalog answers,
// a stream sends no later commit. Then the client moves to the new collection by the difference, in order. A refusal
// ends the stream.
func (s *Server) Review() {
	for _, st := range s.streamList() {
		st.Review()
	}
}

// Reviewer makes one client's stream ask the catalog again. Reviewers are comparable: each stream has one.
type Reviewer interface {
	// Review is as Server.Review, for one stream.
	Review()
}

// streamKey is the key of the stream in the context of a call of Catalog.Collection.
type streamKey struct{}

// ReviewerOf returns the Reviewer of the stream of a catalog's request, or nil if ctx is of no stream.
func ReviewerOf(ctx context.Context) Reviewer {
	s, _ := ctx.Value(streamKey{}).(Reviewer)
	return s
}

// collectionOf asks the catalog which collection the client sees under a type.
func (s *stream) collectionOf(ctx context.Context, node *corev3.Node, typeURL string) (*Collection, func(), error) {
	return s.server.catalog.Collection(context.WithValue(ctx, streamKey{}, Reviewer(s)), node, typeURL)
}

// Review makes the stream ask the catalog again, and returns at once.
func (s *stream) Review() {
	s.mu.Lock() // wait for a plan that is being made
	defer s.mu.Unlock()
	s.reviews++
	s.wakeup.notify()
}

// outdated reports whether the catalog may choose another collection for a subscription by now; s.mu is held.
func (s *stream) outdated() bool {
	return slices.ContainsFunc(s.subs, func(sub *subscription) bool { return sub.reviewed != s.reviews })
}

// choice is the catalog's choice for a subscription.
type choice struct {
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
	finished := make(chan error, 1)
	s.reviewers.Go(func() { finished <- s.reviewCollections(ctx) })
	return finished
}

// reviewCollections switches the subscriptions to the collections that the catalog chooses now.
func (s *stream) reviewCollections(ctx context.Context) error {
	count, choices, err := s.askCatalog(ctx)
	if err == nil {
		s.applyReview(count, choices)
	}
	for _, a := range choices {
		a.coll.unsubscribe(s.wakeup)
		if a.release != nil {
			a.release()
		}
	}
	return err
}

// askCatalog returns the catalog's choice for all subscriptions, after so many reviews.
func (s *stream) askCatalog(ctx context.Context) (reviews uint64, choices []choice, err error) {
	s.mu.Lock()
	reviews = s.reviews
	node, subs := s.node, slices.Clone(s.subs)
	s.mu.Unlock()
	for _, subscription := range subs {
		coll, release, err := s.collectionOf(ctx, node, subscription.typeURL)
		if errors.Is(err, ErrNoAnswer) {
			err = status.Errorf(codes.Unavailable, "type %s is no longer served here", subscription.typeURL)
		}
		if err == nil && coll == nil {
			err = noCollection(subscription.typeURL)
		}
		if err != nil {
			return reviews, choices, err
		}
		coll.subscribe(s.wakeup)
		choices = append(choices, choice{subscription, coll, release})
	}
	return reviews, choices, nil
}

// applyReview switches the subscriptions to the catalog's choices after count reviews. It leaves the collections to
// release in the choices.
func (s *stream) applyReview(count uint64, choices []choice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range choices {
		selected := &choices[i]
		selected.sub.reviewed = count
		if selected.coll != selected.sub.coll {
			selected.sub.release, selected.release = selected.release, selected.sub.release
			selected.coll = selected.sub.switchTo(selected.coll)
			s.cuts = nil // all types take a new one, also those that keep their collection: it may be of the same group
		}
	}
}

// switchTo switches the subscription to another collection and returns the old one.
func (s *subscription) switchTo(coll *Collection) (former *Collection) {
	former = s.coll
	s.coll = coll
	s.goal = initialState
	s.preannounced = nil
	s.client.state = s.client.state.detached()
	return former
}

// detached returns the state as one of no commit, for use with another collection, which has revisions of its own.
func (s *state) detached() *state {
	if s == initialState || s.revision == 0 {
		return s
	}
	return &state{
		version: s.version, given: s.given, sum: s.sum, fingerprint: s.fingerprint, len: s.len, pages: s.pages,
		commitRevision: s.commitRevision,
	}
}
