package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	maxRetry = 10 * time.Second // between two attempts
	maxWait  = 5 * time.Minute  // that a server may ask for
	patience = 5                // failures of a server in a row, before the others go on without a kind
)

// follow lists and watches until ctx ends.
func (s *stream) follow(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		client, path, ready := s.client, s.path(), s.client != nil && s.version != ""
		s.mu.Unlock()
		var err error
		switch {
		case !ready:
			s.listed = false
			s.wait(ctx, nil)
		case s.listed:
			err = s.watch(ctx, client, path)
		default:
			err = s.list(ctx, client, path)
		}
		if err != nil && ctx.Err() == nil {
			s.failed(ctx, err)
		}
	}
}

// wait waits until there is news or the time is over.
func (s *stream) wait(ctx context.Context, over <-chan time.Time) {
	select {
	case <-s.news:
	case <-over:
	case <-ctx.Done():
	}
}

// list reads everything, and believes it or not.
func (s *stream) list(ctx context.Context, client *api, path string) error {
	listed := make(map[string]uint64)
	var takes []func()
	version, err := client.list(ctx, path, s.selector, s.pageSize, func(item json.RawMessage) error {
		m, err := metaOf(item)
		if err == nil {
			err = s.owns(m)
		}
		if err != nil {
			return err
		}
		if listed[m.key()] > 0 {
			return fmt.Errorf("the list has %s twice", m.key()) // as if each page were the first
		}
		listed[m.key()] = m.version
		take, err := s.use.put(m, item)
		takes = append(takes, take)
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	gone, err := s.judge(time.Now(), version, listed, s.settle, s.settings.Hold)
	if err != nil {
		return err
	}
	for _, take := range takes {
		take()
	}
	for _, key := range gone {
		s.use.drop(key)
	}
	if !s.read {
		s.unsure = s.Until
	}
	s.read, s.unkept = true, true
	s.listed, s.fresh, s.at = true, true, time.Now()
	s.well()
	return nil
}

// watch follows the events after what was seen. Unless the list is of just now, the server is asked first whether it went back in time: it
// accepts a resource version of its future, and says nothing until it gets there.
func (s *stream) watch(ctx context.Context, client *api, path string) error {
	s.mu.Lock()
	after, lasts := s.Seen, s.watchFor/2+rand.N(s.watchFor/2) //nolint:gosec // so that not all end at once
	if s.held() > 0 {
		lasts = min(lasts, max(time.Until(s.Until), time.Second))
	}
	s.mu.Unlock()
	if !s.fresh {
		version, err := client.version(ctx, path)
		if err != nil {
			return err
		}
		if version < after {
			s.listed = false
			return nil
		}
	}
	s.fresh = false
	began, heard := time.Now(), false
	err := client.watch(ctx, path, s.selector, after, lasts, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watching = true
		s.well()
	}, func(e event) error {
		heard = true
		s.retry.Reset()
		return s.take(e)
	})
	s.mu.Lock()
	s.watching = false
	holdEnded := s.held() > 0 && !time.Now().Before(s.Until)
	s.mu.Unlock()
	s.listed = !holdEnded && !isExpired(err) && !errors.Is(err, errOlder)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil // it was silent; what it kept to itself comes with the next one
	case err == nil && !heard && time.Since(began) < min(time.Second, lasts/2):
		return errors.New("the server ends the watch at once")
	}
	return err
}

// take believes an event.
func (s *stream) take(e event) error {
	there, gone, take := e.Type == "ADDED" || e.Type == "MODIFIED", e.Type == "DELETED", func() {}
	m, err := metaOf(e.Object)
	if err == nil && (there || gone) {
		err = s.owns(m)
	}
	if err == nil && there {
		take, err = s.use.put(m, e.Object)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.advance(m.version); err != nil {
		return err
	}
	switch {
	case there:
		s.objects[m.key()] = m.version
		take()
	case gone:
		delete(s.objects, m.key())
		s.use.drop(m.key())
	default: // a bookmark
		s.unkept = true
		return nil
	}
	s.wakeup.Notify()
	return nil
}

// well notes that the server answers as it should. If it did not before, all that waits to try again does so now. run.mu is held.
func (s *stream) well() {
	failed := s.err != nil
	s.failures, s.err = 0, nil
	s.wakeup.Notify()
	if !failed {
		return
	}
	s.relook()
	for _, other := range s.streams {
		if seconds, _ := apierrors.SuggestsClientDelay(other.err); other.err != nil && seconds == 0 {
			other.tell() // but those whom the server has told how long to wait
		}
	}
}

// failed notes an error and waits. One connection that ends, or one watch that expires, is no news.
func (s *stream) failed(ctx context.Context, err error) {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	wait := max(s.retry.NextBackOff(), min(time.Duration(seconds)*time.Second, maxWait))
	s.mu.Lock()
	s.failures++
	first := s.failures == 1
	if codeOf(err) > 0 && !isExpired(err) || !first {
		s.err = err
	}
	s.mu.Unlock()
	if first && isExpired(err) && time.Since(s.at) > maxRetry {
		return // it is listed at once
	}
	if !first {
		s.listed = false // it was away: if it is restored and already ahead of what was seen, only a list shows that
	}
	s.wakeup.Notify()
	if apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) {
		s.relook()
	}
	s.wait(ctx, time.After(wait))
}
