package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"tributary/sources/registry"
)

// kind is a kind of objects that the source reads.
type kind struct {
	group, plural string
	versions      []string // that are understood, the preferred one first
	fixed         bool     // it is of Kubernetes itself: the server has it, in the first version
	cluster       bool     // its objects are in no namespace
	selector      string
	use           use
}

// use is what becomes of the objects of a kind.
type use interface {
	// put reads an object, and returns what takes it over; that is called with run.mu held. An error says that nobody can know what it is.
	put(m meta, object json.RawMessage) (take func(), err error)
	// drop lets go of an object. run.mu is held.
	drop(key string)
	// groups returns what the names of the groups begin with that are made of the kind; empty if none is made of one object.
	groups() string
}

// resource is what kubectl and rules of RBAC call the kind.
func (k *kind) resource() string { return strings.TrimSuffix(k.plural+"."+k.group, ".") }

// stream is the list and the watch of one kind in one namespace.
type stream struct {
	*run
	*kind
	namespace string          // empty for all
	news      registry.Wakeup // the server has the kind in another version, or no longer, or answers again

	// owned by follow
	retry  backoff.BackOff
	listed bool // the next thing to do is to watch

	// guarded by run.mu
	memory
	version  string // which the server has; empty if it has none, or nobody has looked
	failures int    // attempts in a row that failed
	err      error  // of the last attempt; nil if it was well
}

// add has a kind read, and returns its streams. If it is read already, both uses take its objects.
func (r *run) add(k *kind) (all []*stream) {
	for _, s := range r.streams {
		if s.resource() == k.resource() {
			all = append(all, s)
		}
	}
	if len(all) > 0 {
		all[0].use = both{all[0].use, k.use} // of the kind, which they share
		return all
	}
	namespaces := r.settings.Namespaces
	if k.cluster {
		namespaces = []string{""}
	}
	for _, n := range namespaces {
		all = append(all, &stream{
			run: r, kind: k, namespace: n, news: registry.NewWakeup(), retry: r.newBackOff(), memory: memory{objects: make(map[string]uint64)},
		})
	}
	r.streams = append(r.streams, all...)
	return all
}

// both are two uses of one kind, of which the first publishes a group for each object, if any does.
type both struct{ first, second use }

func (u both) groups() string { return u.first.groups() }

func (u both) put(m meta, object json.RawMessage) (take func(), err error) {
	first, err := u.first.put(m, object)
	if err != nil {
		return nil, err
	}
	second, err := u.second.put(m, object)
	return func() { first(); second() }, err
}

func (u both) drop(key string) {
	u.first.drop(key)
	u.second.drop(key)
}

// where is how people are told of it, and how the note for the next run names it.
func (s *stream) where() string {
	if s.namespace == "" {
		return s.resource()
	}
	return s.resource() + " in namespace " + s.namespace
}

// path is where the objects are. run.mu is held.
func (s *stream) path() string {
	path := "/apis/" + s.group + "/" + s.version
	if s.group == "" {
		path = "/api/" + s.version
	}
	if s.namespace != "" {
		path += "/namespaces/" + s.namespace
	}
	return path + "/" + s.plural
}

// settled reports whether nothing is to be waited for: it was read, or cannot be, or there is nothing. A server that starts may refuse
// everything for a moment. One that fails may do so for ever, as with a webhook that converts objects and is down. Policies are waited for
// all the same: without them, all may pass. run.mu is held.
func (s *stream) settled() bool {
	return s.whole || s.Absent || s.failures >= confirmed && apierrors.IsForbidden(s.err) ||
		s.failures >= patience && codeOf(s.err) >= http.StatusInternalServerError && s.group != "security.istio.io"
}

// known reports whether all that the server has of it is. If it is optional, one that may not be read and never was has nothing; otherwise
// what was made of it stays as it was. run.mu is held.
func (s *stream) known(now time.Time, optional bool) bool {
	never := optional && s.Seen == 0 && apierrors.IsForbidden(s.err)
	return (s.whole || s.Absent || never) && !now.Before(s.unsure)
}

const (
	maxWait   = 5 * time.Minute // that a server may ask for
	patience  = 5               // failures of a server in a row, before the others go on without a kind
	maxPages  = 4000            // of a list
	confirmed = 3               // refusals in a row, before a kind counts as one without rights
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

// decode reads an object, and returns what takes it over; that is called with run.mu held.
func (s *stream) decode(object json.RawMessage) (m meta, take func(), err error) {
	m, err = metaOf(object)
	switch {
	case err != nil:
	case m.Name == "" || strings.Contains(m.Namespace+m.Name, "/") || s.namespace != "" && m.Namespace != s.namespace:
		err = fmt.Errorf("the server names %q, which cannot be one of %s", m.key(), s.where())
	default:
		take, err = s.use.put(m, object)
	}
	return m, take, err
}

// list reads everything, and believes it or not. All pages are of the resource version of the first.
func (s *stream) list(ctx context.Context, client *api, path string) error {
	listed, takes := make(map[string]uint64), []func(){}
	query := url.Values{"limit": {strconv.Itoa(s.pageSize)}, "labelSelector": {s.selector}}
	version := uint64(0)
	for pages, more := 0, true; more; pages++ {
		p, now, err := client.page(ctx, path, query)
		if err == nil && version > 0 && version != now {
			err = fmt.Errorf("the pages of the list are of resource versions %d and %d", version, now)
		} else if pages == maxPages {
			err = fmt.Errorf("the list has more than %d pages", maxPages)
		}
		for i := 0; err == nil && i < len(p.Items); i++ {
			m, take, wrong := s.decode(p.Items[i])
			if err = wrong; listed[m.key()] > 0 {
				err = fmt.Errorf("the list has %s twice", m.key()) // as if each page were the first
			}
			listed[m.key()], takes = m.version, append(takes, take)
		}
		if err != nil {
			return err
		}
		query.Set("continue", p.Metadata.Continue)
		version, more = now, p.Metadata.Continue != ""
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
	s.listed = true
	s.well()
	return nil
}

// watch follows the events after what was seen. First it asks whether the server went back in time: a server accepts a resource version of
// its future, and says nothing until it gets there.
func (s *stream) watch(ctx context.Context, client *api, path string) error {
	s.mu.Lock()
	after, lasts := s.Seen, s.watchFor/2+rand.N(s.watchFor/2) //nolint:gosec // so that not all end at once
	if s.held() > 0 {
		lasts = min(lasts, max(time.Until(s.Until), time.Second))
	}
	s.mu.Unlock()
	_, version, err := client.page(ctx, path, url.Values{"limit": {"1"}})
	if err != nil {
		return err
	}
	if version < after {
		s.listed = false
		return nil
	}
	began, heard := time.Now(), false
	err = client.watch(ctx, path, s.selector, after, lasts, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.well()
	}, func(e event) error {
		heard = true
		s.retry.Reset()
		return s.take(e)
	})
	s.mu.Lock()
	holdEnded := s.held() > 0 && !time.Now().Before(s.Until)
	s.mu.Unlock()
	s.listed = !holdEnded && !isExpired(err) && !errors.Is(err, errOlder)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil // it was silent; what it kept to itself comes with the next one
	case err == nil && !heard && time.Since(began) < min(time.Second, lasts/2):
		return errors.New("the server ends the watch at once")
	case err == nil:
		s.retry.Reset()
	}
	return err
}

// take believes an event.
func (s *stream) take(e event) (err error) {
	var m meta
	var put func()
	if e.Type == "BOOKMARK" {
		m, err = metaOf(e.Object)
	} else {
		m, put, err = s.decode(e.Object)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.advance(m.version); err != nil {
		return err
	}
	switch e.Type {
	case "ADDED", "MODIFIED":
		s.objects[m.key()] = m.version
		put()
	case "DELETED":
		delete(s.objects, m.key())
		s.use.drop(m.key())
	}
	s.wakeup.Notify()
	return nil
}

// well notes that the server answers as it should. run.mu is held.
func (s *stream) well() {
	s.failures, s.err = 0, nil
	if s.down != nil {
		s.look.Notify()
	}
	s.wakeup.Notify()
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
	if code := codeOf(err); s.down == nil && (code == 0 || code == http.StatusNotFound || code == http.StatusUnauthorized) {
		s.look.Notify()
	}
	s.mu.Unlock()
	if !first {
		s.listed = false // it was away: if it is restored and already ahead of what was seen, only a list shows that
	}
	s.wakeup.Notify()
	s.wait(ctx, time.After(wait))
}
