package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"tributary/internal/intake"
	"tributary/internal/worker"
	"tributary/sources/registry"
)

// kind is a kind of objects that the source reads.
type kind struct {
	group, plural string
	versions      []string // that are understood, the preferred one first
	cluster       bool     // its objects are in no namespace
	policies      bool     // its objects restrict traffic
	required      bool     // without a right to it, the source ignores the kinds that are read with it
	selector      string
	prefix        string // of the groups of single objects; empty without such groups
	alike         bool   // an object concerns only the groups of the Service of its name
	handlers      []handler
	reuse         handler                               // takes uncertain objects of an earlier run; nil for none
	text          func(m meta) json.RawMessage          // returns the object for reuse, else its Service
	trim          func(json.RawMessage) json.RawMessage // drops unread fields of an object; nil if most are read
}

// handler handles an object, or its deletion if there is none. run.mu is held.
type handler func(m meta, object json.RawMessage)

// read adds a kind with a handler. If the kind has a handler already, both get its objects, and the settings of the
// first one count.
func (r *run) read(wanted kind, handler handler) *kind {
	i := slices.IndexFunc(r.kinds, func(existing *kind) bool { return existing.resource() == wanted.resource() })
	if i < 0 {
		i, r.kinds = len(r.kinds), append(r.kinds, &wanted)
	}
	r.kinds[i].handlers = append(r.kinds[i].handlers, handler)
	return r.kinds[i]
}

// resource is the name of the kind in kubectl and in rules of RBAC.
func (k *kind) resource() string { return strings.TrimSuffix(k.plural+"."+k.group, ".") }

// take passes an object to all handlers. run.mu is held.
func (k *kind) take(m meta, object json.RawMessage) {
	for _, u := range k.handlers {
		u(m, object)
	}
}

// metaNamed returns metadata with a name only.
func metaNamed(key string) meta {
	namespace, name, _ := strings.Cut(key, "/")
	return meta{Namespace: namespace, Name: name, key: key}
}

// stream is the list and the watch of one kind in one namespace.
type stream struct {
	*run
	*kind
	namespace string          // empty for all
	news      registry.Wakeup // the version of the kind changed, or the server answers again

	// owned by follow
	retry  backoff.BackOff
	listed bool      // the next step is a watch
	fresh  bool      // it was listed since the last watch
	relist time.Time // time of the next list, which compares with the watch
	size   int       // bytes of the objects of the last list, and of all events since
	// digests of the objects, by key: a restored cluster reuses resource versions for other content.
	digests map[string]uint64

	// guarded by run.mu
	cache
	cut      context.CancelFunc // ends the watch
	failures int                // failures in a row
	err      error              // of the last attempt
	deleting time.Time          // first of a series of deletions
	deleted  time.Time          // last deletion
}

var digestSeed = maphash.MakeSeed()

// drop tells all handlers that objects were deleted. run.mu is held.
func (s *stream) drop(keys ...string) {
	for _, key := range keys {
		delete(s.digests, key)
		s.take(metaNamed(key), nil)
	}
}

// where names the stream in messages and in the saved state.
func (s *stream) where() string {
	if s.namespace == "" {
		return s.resource()
	}
	return s.resource() + " in namespace " + s.namespace
}

// recall restores the objects of an earlier run, with the content of those in doubt.
func (s *stream) recall(note note) {
	for _, key := range note.Names {
		if !strings.HasPrefix(key, s.namespace+"/") && s.namespace != "" {
			continue
		}
		held, inDoubt := note.Held[key]
		if s.objects.Put(key, 1); inDoubt {
			s.objects.Hold(key)
		}
		if s.reuse != nil && len(held) > len("null") {
			s.reuse(metaNamed(key), held)
		} else if s.reuse != nil || s.prefix == "" || s.alike { // otherwise each object has its own group
			service := ""
			if _ = json.Unmarshal(held, &service); s.alike {
				service = key
			}
			s.unread[key] = service
		}
	}
}

// path returns the path of the objects at the server.
func (s *stream) path(version string) string {
	path := "/apis/" + s.group + "/" + version
	if s.group == "" {
		path = "/api/" + version
	}
	if s.namespace != "" {
		path += "/namespaces/" + s.namespace
	}
	return path + "/" + s.plural
}

// settled reports that the source need not wait for the kind: it was read, cannot be read, or is absent. A starting
// server may refuse all requests for a moment. A failing one may do so for ever, for example while a conversion webhook
// is down. The source does wait for policies: without them, all traffic could pass. run.mu is held.
func (s *stream) settled() bool {
	code := refused(s.err).Code
	fails := code == http.StatusForbidden || code >= http.StatusInternalServerError && s.group != "security.istio.io"
	return s.isListed || s.Absent || fails && s.failures >= patience
}

// known reports whether all objects that concern a Service were read, or all objects if key is empty. A kind that RBAC
// forbids and that was never read counts as empty, unless it is required. Otherwise the groups of its objects stay as
// they were. run.mu is held.
func (s *stream) known(key string) bool {
	never := !s.required && s.Seen == 0 && refused(s.err).Code == http.StatusForbidden
	if !s.isListed && !s.Absent && !never || key == "" && len(s.unread) > 0 || s.losing(key) {
		return false
	}
	for name, service := range s.unread {
		namespace, _, _ := strings.Cut(name, "/")
		if service == key || service == "" && (namespace == "" || strings.HasPrefix(key, namespace+"/")) {
			return false
		}
	}
	return true
}

// losing reports whether the object of a key, or any if key is empty, was deleted in a series that goes on: with a CRD,
// the server deletes the objects one by one, and the guard has to see that as one loss. Groups that are not named after
// the kind do not wait. run.mu is held.
func (s *stream) losing(key string) bool {
	_, exists := s.objects[key]
	return !exists && (key == "" || s.prefix != "") &&
		time.Since(s.deleted) < 5*s.delay && time.Since(s.deleting) < 100*s.delay
}

const (
	maxWait    = 5 * time.Minute  // longest Retry-After
	patience   = 4                // failures in a row, before the source goes on without the kind
	maxPages   = 4000             // of a list
	watchGrace = 10 * time.Second // for the server to end a watch
	maxEvent   = 16 << 20         // bytes; etcd takes objects of some 1.5 MiB
	// listTimeout is that of continue tokens: a server compacts their versions after five minutes.
	listTimeout = 5 * time.Minute
)

// follow lists and watches until ctx ends.
func (s *stream) follow(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		client := s.client
		version, looked := s.served[s.kind]
		if now := time.Now(); looked && s.down == nil && (version == "" && s.lacks(s.kind, now) || s.Absent) {
			s.drop(s.setAbsent(now, version == "", s.settings.Hold)...)
			s.err = nil
			s.wakeup.Notify()
		}
		s.mu.Unlock()
		step := s.list
		if s.listed {
			step = s.watch
		}
		if version == "" {
			s.listed = false
			_ = worker.Wait(ctx, s.news, time.Hour)
		} else if err := step(ctx, client, s.path(version)); err != nil && ctx.Err() == nil {
			s.noteFailure(ctx, err)
		}
		s.mu.Lock()
		stale := client != s.client
		s.mu.Unlock()
		if stale {
			client.close()
		}
	}
}

// metaOf reads the metadata of an object, or of a bookmark, which only has a version.
func (s *stream) metaOf(object json.RawMessage, isBookmark bool) (meta, error) {
	var o struct{ Metadata meta }
	err := json.Unmarshal(object, &o)
	meta := o.Metadata
	meta.key = meta.Namespace + "/" + meta.Name
	switch isOther := s.namespace != "" && meta.Namespace != s.namespace; {
	case err == nil && meta.Version == 0:
		err = errors.New("it has no resource version")
	case err == nil && !isBookmark && (meta.Name == "" || strings.Contains(meta.Namespace+meta.Name, "/") || isOther):
		err = errors.New("it cannot be one of " + s.where())
	}
	if err != nil {
		err = fmt.Errorf("read object %s: %w", meta.key, err)
	}
	return meta, err
}

// list lists all objects, and applies the list if it is trusted. All pages have the resource version of the first.
func (s *stream) list(ctx context.Context, client *api, path string) error {
	listed, metas, objects := make(map[string]uint64), []meta{}, []json.RawMessage{}
	query := url.Values{"limit": {strconv.Itoa(s.pageSize)}, "labelSelector": {s.selector}}
	s.mu.Lock()
	version, seen := uint64(0), s.timeline.seen()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("the list is not complete after %s", listTimeout))
	defer cancel()
	ctx, list := intake.Begin(ctx)
	defer list.Release()
	size, taken, digests := 0, 0, make(map[string]uint64)
	for pages, hasMore := 0, true; hasMore; pages++ {
		page, err := client.page(ctx, path, query)
		if now := page.Metadata.Version; err == nil && version > 0 && version != now {
			err = fmt.Errorf("the pages of the list are of resource versions %d and %d", version, now)
		} else if pages == maxPages {
			err = fmt.Errorf("the list has more than %d pages", maxPages)
		}
		for i := 0; err == nil && i < len(page.Items); i++ {
			meta, wrong := s.metaOf(page.Items[i], false)
			if err = wrong; listed[meta.key] > 0 {
				err = fmt.Errorf("the list has %s twice", meta.key) // perhaps each page was the first one
			}
			digests[meta.key] = maphash.Bytes(digestSeed, page.Items[i])
			if s.trim != nil {
				page.Items[i] = s.trim(page.Items[i])
			}
			size += objectSize(page.Items[i])
			listed[meta.key], metas, objects = meta.Version, append(metas, meta), append(objects, page.Items[i])
		}
		if err = cmp.Or(err, s.reserveMemory(ctx, max(size, s.size)), list.Take(ctx, size-taken)); err != nil {
			return err
		}
		taken = size
		query.Set("continue", page.Metadata.Continue)
		version, hasMore = page.Metadata.Version, page.Metadata.Continue != ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wasOlder := !s.rollbackSince.IsZero()
	deleted, err := s.checkList(s.timeline, time.Now(), seen, version, listed, s.settle, s.settings.Hold)
	if err != nil {
		return err
	}
	_ = s.reserveMemory(ctx, size) // less than before
	for i, m := range metas {
		if s.digests[m.key] != digests[m.key] {
			s.take(m, objects[i])
		}
	}
	s.digests = digests
	s.drop(deleted...)
	for _, stream := range s.streams {
		if wasOlder && stream.cut != nil {
			stream.cut() // it may wait for a version that a restored server reaches much later
		}
	}
	s.listed, s.fresh, s.relist = true, true, time.Now().Add(2*s.watchFor)
	s.noteSuccess()
	return nil
}

// watch takes the events after the version that was seen, until the server ends the watch or watchGrace is over. Before
// that, it compares the current resource version and the number of objects: a restored server accepts a version of its
// future, and stays silent until it gets there. A watch that ends early may have missed a restore, so a list follows.
func (s *stream) watch(ctx context.Context, client *api, path string) error {
	s.mu.Lock()
	after, deadline := s.Seen, s.End
	lasts := s.watchFor/2 + rand.N(s.watchFor/2) //nolint:gosec // so that not all end at once
	held, revision := len(s.held()), s.timeline.seen()
	holds, present := held > 0, len(s.objects)-held
	if s.Apart {
		revision = after
	}
	ctx, cancel := context.WithCancel(ctx)
	s.cut = cancel
	s.mu.Unlock()
	defer cancel()
	if holds {
		lasts = min(lasts, max(time.Until(deadline), time.Second))
	}
	fresh := s.fresh
	if s.listed, s.fresh = false, false; !fresh {
		page, err := client.page(ctx, path, url.Values{"limit": {"1"}})
		rest := page.Metadata.Remaining
		counted := s.selector == "" && (page.Metadata.Continue == "" || rest > 0)
		if err != nil || page.Metadata.Version < revision || counted && len(page.Items)+rest != present {
			return err
		}
	}
	ends := time.AfterFunc(lasts+watchGrace, cancel)
	defer ends.Stop()
	response, err := client.do(ctx, path, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {strconv.FormatUint(after, 10)},
		"timeoutSeconds": {strconv.Itoa(max(1, int(lasts.Seconds())))}, "labelSelector": {s.selector},
	}, "")
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	s.mu.Lock()
	s.noteSuccess()
	s.mu.Unlock()
	began, heard, from := time.Now(), 0, &io.LimitedReader{R: response.Body}
	for events := json.NewDecoder(from); err == nil; heard++ {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		from.N = maxEvent
		if err = events.Decode(&event); err == nil {
			err = cmp.Or(s.applyEvent(event.Type, event.Object), s.reserveMemory(ctx, s.size+objectSize(event.Object)))
		}
		intake.Next(response.Body)
		_ = s.pace.Wait(ctx)
	}
	ended := errors.Is(err, io.EOF) || ctx.Err() != nil // the next watch repeats events that a silent one withheld
	due := !time.Now().Before(s.relist) || holds && !time.Now().Before(deadline)
	s.listed = ended && time.Since(began) > lasts-time.Second && !due
	if ended && heard == 1 && time.Since(began) < min(time.Second, lasts/2) {
		return errors.New("the server ends the watch at once")
	}
	if ended || heard > 1 && !errors.Is(err, intake.ErrLimit) {
		s.retry.Reset()
	}
	if ended {
		return nil
	}
	return fmt.Errorf("read the watch: %w", err)
}

// applyEvent applies an event.
func (s *stream) applyEvent(kind string, object json.RawMessage) error {
	if kind == "ERROR" {
		r := new(refusal)
		return cmp.Or[error](json.Unmarshal(object, r), r)
	}
	meta, err := s.metaOf(object, kind == "BOOKMARK")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if meta.Version < s.Seen {
		return fmt.Errorf("%w: resource version %d comes after %d", errOlder, meta.Version, s.Seen)
	}
	s.Seen, s.confirmedAt = meta.Version, time.Now()
	switch kind {
	case "ADDED", "MODIFIED":
		s.objects.Put(meta.key, meta.Version)
		delete(s.unread, meta.key)
		s.digests[meta.key] = maphash.Bytes(digestSeed, object)
		s.take(meta, object)
	case "DELETED":
		if s.confirmedAt.Sub(s.deleted) >= 5*s.delay {
			s.deleting = s.confirmedAt
		}
		s.deleted = s.confirmedAt
		s.forget(meta.key)
		s.drop(meta.key)
	}
	s.wakeup.Notify()
	return nil
}

// reserveMemory counts the memory of the objects.
func (s *stream) reserveMemory(ctx context.Context, size int) error {
	err := intake.Keep(ctx, s.size, size)
	if err == nil {
		s.size = size
	}
	return err
}

// objectSize returns the memory of an object: small ones take more than their text.
func objectSize(object json.RawMessage) int { return max(len(object), 2<<10) }

// noteSuccess notes a good answer of the server. run.mu is held.
func (s *stream) noteSuccess() {
	s.failures, s.err = 0, nil
	s.wakeup.Notify()
}

// noteFailure notes an error and waits. The end of one connection or watch is not reported.
func (s *stream) noteFailure(ctx context.Context, err error) {
	refusal := refused(err)
	pause := max(s.retry.NextBackOff(), min(time.Duration(refusal.RetryAfter)*time.Second, maxWait))
	s.mu.Lock()
	s.failures++
	code := refusal.Code
	if code > 0 && !refusal.isExpired() || s.failures > 1 || errors.Is(err, intake.ErrLimit) {
		s.err = err
	}
	if s.down == nil && (code == 0 || code == http.StatusNotFound || code == http.StatusUnauthorized) {
		s.look.Notify()
	}
	s.mu.Unlock()
	s.wakeup.Notify()
	_ = worker.Wait(ctx, s.news, pause)
}
