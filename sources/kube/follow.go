package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// maxRetry bounds the time between two attempts.
const maxRetry = 10 * time.Second

// patience is how often in a row a server fails to read a kind before the others go on without it.
const patience = 5

// maxWait bounds what a server may ask for with Retry-After.
const maxWait = 5 * time.Minute

// follow lists and watches a stream until ctx ends.
func (r *run) follow(ctx context.Context, s *stream) {
	f := follower{run: r, stream: s, retry: r.newBackOff()}
	for ctx.Err() == nil {
		client, path := r.reach(s)
		if client == nil {
			f.listed = false
			select {
			case <-s.news:
			case <-ctx.Done():
			}
			continue
		}
		var err error
		if f.listed {
			err = f.watch(ctx, client, path)
		} else {
			err = f.list(ctx, client, path)
		}
		if err != nil && ctx.Err() == nil {
			f.pause(ctx, err)
		}
	}
}

// reach returns how a stream is read; nil if there is nothing to read.
func (r *run) reach(s *stream) (client *api, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil || s.version == "" {
		return nil, ""
	}
	return r.client, s.path(s.version)
}

// follower is what follow knows of its stream.
type follower struct {
	*run
	*stream
	retry    backoff.BackOff
	listed   bool      // the next thing to do is to watch
	fresh    bool      // the list is of just now
	failures int       // in a row
	at       time.Time // of the last list
}

// list reads everything, and believes it or not.
func (f *follower) list(ctx context.Context, client *api, path string) error {
	versions := make(map[string]uint64)
	var takes []func()
	version, err := client.list(ctx, path, f.selector, f.pageSize, func(item json.RawMessage) error {
		m, v, err := metaOf(item)
		if err == nil {
			err = f.owns(m)
		}
		if err != nil {
			return err
		}
		if _, twice := versions[m.key()]; twice {
			return fmt.Errorf("the list has %s twice", m.key()) // as if each page were the first
		}
		versions[m.key()] = v
		take, err := f.use.put(m, item)
		takes = append(takes, take)
		return err
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	gone, err := f.judge(time.Now(), version, versions, f.settle, f.settings.Hold)
	if err != nil {
		return err
	}
	for _, take := range takes {
		take()
	}
	for _, key := range gone {
		f.use.drop(key)
	}
	if !f.read {
		f.unsure = f.until
	}
	f.read, f.unkept = true, true
	f.listed, f.fresh, f.at = true, true, time.Now()
	f.well()
	return nil
}

// well notes that the server answers as it should. If it did not before, all that waits to try again does so now. run.mu is held.
func (f *follower) well() {
	f.failures = 0
	if f.err != nil {
		f.err = nil
		f.relook(false)
		for _, s := range f.streams {
			if status, said := errors.AsType[*statusError](s.err); s.err != nil && (!said || status.wait == 0) {
				s.tell() // but those whom the server has told how long to wait
			}
		}
	}
	f.wakeup.Notify()
}

// watch follows the events after what was seen. Unless the list is of just now, the server is asked first whether it went back in time: it
// accepts a resource version of its future, and says nothing until it gets there.
func (f *follower) watch(ctx context.Context, client *api, path string) error {
	if !f.fresh {
		version, err := client.version(ctx, path)
		if err != nil {
			return err
		}
		f.mu.Lock()
		older := version < f.seen
		f.mu.Unlock()
		if older {
			f.listed = false
			return nil
		}
	}
	f.fresh = false
	f.mu.Lock()
	after, lasts := f.seen, f.watchFor/2+rand.N(f.watchFor/2) //nolint:gosec // so that not all end at once
	if len(f.missing) > 0 {
		lasts = min(lasts, max(time.Until(f.until), time.Second))
	}
	f.mu.Unlock()
	began, heard := time.Now(), false
	err := client.watch(ctx, path, f.selector, after, lasts, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.watching = true
		f.well()
	}, func(e event) error {
		heard = true
		f.retry.Reset()
		return f.take(e)
	})
	f.mu.Lock()
	f.watching = false
	holdEnded := len(f.missing) > 0 && !time.Now().Before(f.until)
	f.mu.Unlock()
	f.listed = !holdEnded && !isExpired(err) && !errors.Is(err, errOlder)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil // it was silent; what it kept to itself comes with the next one
	case err == nil && !heard && time.Since(began) < min(time.Second, lasts/2):
		return errors.New("the server ends the watch at once")
	}
	return err
}

// take believes an event.
func (f *follower) take(e event) error {
	m, version, err := metaOf(e.Object)
	if err == nil && e.Type != "BOOKMARK" {
		err = f.owns(m)
	}
	if err != nil {
		return err
	}
	var put func()
	if e.Type == "ADDED" || e.Type == "MODIFIED" {
		if put, err = f.use.put(m, e.Object); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.advance(version); err != nil {
		return err
	}
	switch e.Type {
	case "ADDED", "MODIFIED":
		f.put(m.key(), version)
		put()
	case "DELETED":
		f.drop(m.key())
		f.use.drop(m.key())
	case "BOOKMARK":
		f.unkept = true
		return nil
	default:
		return nil // of a later API
	}
	f.wakeup.Notify()
	return nil
}

// pause notes an error and waits. One connection that ends, or one watch that expires, is no news.
func (f *follower) pause(ctx context.Context, err error) {
	if f.failures++; f.failures > 1 {
		f.listed = false // it was away: if it is restored and already ahead of what was seen, only a list shows that
	}
	status, said := errors.AsType[*statusError](err)
	wait := f.retry.NextBackOff()
	if said {
		wait = max(wait, min(status.wait, maxWait))
	}
	if isExpired(err) && f.failures == 1 && time.Since(f.at) > maxRetry {
		return // it is listed at once
	}
	if said && (status.code == http.StatusNotFound || status.code == http.StatusUnauthorized) {
		f.relook(status.code == http.StatusUnauthorized)
	}
	if said && !isExpired(err) || f.failures > 1 {
		f.mu.Lock()
		f.err = err
		f.broken = said && status.code >= http.StatusInternalServerError && f.failures >= patience
		f.mu.Unlock()
		f.wakeup.Notify()
	}
	select {
	case <-f.news:
	case <-time.After(wait):
	case <-ctx.Done():
	}
}
