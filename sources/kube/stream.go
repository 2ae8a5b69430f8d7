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
	versions      []string // the versions that the source reads, the preferred one first
	cluster       bool     // its objects are in no namespace
	policies      bool     // its objects restrict traffic
	required      bool     // if RBAC forbids it, objects made from it and other kinds stay as they were
	selector      string
	prefix        string // begins the group of each object; empty if objects have no group of their own
	sameName      bool   // an object has the name of the Service that it belongs to
	handlers      []handler
	trim          func(json.RawMessage) json.RawMessage // drops unread fields of an object; nil if most are read

	// For objects that are in doubt when a run ends. nil for none.
	reuse       handler                      // takes a saved object of an earlier run
	savedObject func(m meta) json.RawMessage // returns the object for reuse
	serviceOf   func(m meta) string          // returns the Service that an object belongs to; "" if unknown
}

// handler handles an object, or its deletion if there is none. run.mu is held.
type handler func(m meta, object json.RawMessage)

// addKind adds a kind with a handler. If the kind has a handler already, both get its objects, and the settings of the
// first one count.
func (r *run) addKind(added kind, handler handler) *kind {
	i := slices.IndexFunc(r.kinds, func(existing *kind) bool { return existing.resource() == added.resource() })
	if i < 0 {
		i = len(r.kinds)
		r.kinds = append(r.kinds, &added)
	}
	r.kinds[i].handlers = append(r.kinds[i].handlers, handler)
	return r.kinds[i]
}

// inDoubt returns the text about an object in doubt in the note: the object for reuse, or the name of its Service.
func (k *kind) inDoubt(key string) (text json.RawMessage) {
	if k.savedObject != nil {
		return k.savedObject(metaNamed(key))
	}
	if k.serviceOf == nil {
		return nil
	}
	if service := k.serviceOf(metaNamed(key)); service != "" {
		text, _ = json.Marshal(service)
	}
	return text
}

// resource is the name of the kind in kubectl and in rules of RBAC.
func (k *kind) resource() string { return strings.TrimSuffix(k.plural+"."+k.group, ".") }

// handle passes an object to all handlers. run.mu is held.
func (k *kind) handle(m meta, object json.RawMessage) {
	for _, handler := range k.handlers {
		handler(m, object)
	}
}

// metaNamed returns metadata with a name only.
func metaNamed(key string) meta {
	namespace, name, _ := strings.Cut(key, "/")
	return meta{Namespace: namespace, Name: name, key: key}
}

// stream is the list and the watch of one kind in one namespace.
type stream struct {
	run        *run
	kind       *kind
	namespace  string          // empty for all
	discovered registry.Wakeup // the version of the kind changed, or the server answers again

	// owned by follow
	retry      backoff.BackOff
	watchNext  bool      // the next step is a watch, and not a list
	justListed bool      // it was listed since the last watch
	relist     time.Time // time of the next list, which compares with the watch
	size       int       // bytes of the objects of the last list, and of all events since
	// digests of the objects, by key: a restored cluster reuses resource versions for other content.
	digests map[string]uint64

	// guarded by run.mu
	cache    cache
	endWatch context.CancelFunc // ends the watch
	failures int                // failures in a row
	err      error              // error of the last attempt; nil after a good one
	// The last series of deletions with short pauses.
	seriesBegan  time.Time
	lastDeletion time.Time
}

var digestSeed = maphash.MakeSeed()

// drop tells all handlers that objects were deleted. run.mu is held.
func (s *stream) drop(keys ...string) {
	for _, key := range keys {
		delete(s.digests, key)
		s.kind.handle(metaNamed(key), nil)
	}
}

// where names the stream in messages and in the saved state.
func (s *stream) where() string {
	if s.namespace == "" {
		return s.kind.resource()
	}
	return s.kind.resource() + " in namespace " + s.namespace
}

// recall restores the objects of an earlier run, with the content of those in doubt.
func (s *stream) recall(note note) {
	for _, key := range note.Names {
		if !strings.HasPrefix(key, s.namespace+"/") && s.namespace != "" {
			continue
		}
		held, inDoubt := note.Held[key]
		s.cache.objects.Put(key, 1)
		if inDoubt {
			s.cache.objects.Hold(key)
		}
		ownGroup := s.kind.prefix != "" && !s.kind.sameName
		switch {
		case s.kind.reuse != nil && len(held) > len("null"):
			s.kind.reuse(metaNamed(key), held)
		case s.kind.reuse == nil && ownGroup: // the group has its content
		case s.kind.sameName:
			s.cache.contentUnknown[key] = key
		default:
			service := ""
			_ = json.Unmarshal(held, &service)
			s.cache.contentUnknown[key] = service
		}
	}
}

// path returns the path of the objects at the server.
func (s *stream) path(version string) string {
	path := "/apis/" + s.kind.group + "/" + version
	if s.kind.group == "" {
		path = "/api/" + version
	}
	if s.namespace != "" {
		path += "/namespaces/" + s.namespace
	}
	return path + "/" + s.kind.plural
}

// settled reports whether a start may go on without the kind: it was read, cannot be read, or is absent. A starting
// server may refuse all requests for a moment. A failing one may do so for ever, for example while a conversion webhook
// is down. The source does wait for policies: without them, all traffic could pass. run.mu is held.
func (s *stream) settled() bool {
	code := refused(s.err).Code
	unavailable := code == http.StatusForbidden ||
		code >= http.StatusInternalServerError && s.kind.group != "security.istio.io"
	return s.cache.hasList || s.cache.absent || unavailable && s.failures >= maxFailuresAtStart
}

// allKeys stands for the keys of all Services.
const allKeys = ""

// isComplete reports whether all objects that concern a Service, or allKeys, were read. A kind that RBAC forbids and
// that was never read counts as empty, unless it is required. Otherwise the groups of its objects stay as they were.
// run.mu is held.
func (s *stream) isComplete(key string) bool {
	forbiddenAndNeverRead := s.cache.seen == 0 && refused(s.err).Code == http.StatusForbidden
	wasRead := s.cache.hasList || s.cache.absent || forbiddenAndNeverRead && !s.kind.required
	if !wasRead || s.inDeletionSeries(key) || key == allKeys && len(s.cache.contentUnknown) > 0 {
		return false
	}
	for name, service := range s.cache.contentUnknown {
		namespace, _, _ := strings.Cut(name, "/")
		if service == key || service == "" && (namespace == "" || strings.HasPrefix(key, namespace+"/")) {
			return false
		}
	}
	return true
}

// inDeletionSeries reports whether a series of deletions goes on, and the object of a key, or of any of allKeys, may be
// part of it. With a CRD, the server deletes the objects one by one, and the guard has to see that as one loss. Groups
// that are not named after the kind do not wait. run.mu is held.
func (s *stream) inDeletionSeries(key string) bool {
	_, exists := s.cache.objects[key]
	return !exists && (key == allKeys || s.kind.prefix != "") &&
		time.Since(s.lastDeletion) < 5*s.run.collectTime && time.Since(s.seriesBegan) < 100*s.run.collectTime
}

const (
	maxWait            = 5 * time.Minute  // longest Retry-After
	maxFailuresAtStart = 4                // failures in a row, before the source goes on without the kind
	maxPages           = 4000             // limit of the pages of a list
	watchGrace         = 10 * time.Second // the server has this time to end a watch
	maxEvent           = 16 << 20         // bytes; etcd takes objects of some 1.5 MiB
	// listTimeout is the life of continue tokens: a server compacts their versions after five minutes.
	listTimeout = 5 * time.Minute
)

// follow lists and watches until ctx ends.
func (s *stream) follow(ctx context.Context) {
	for ctx.Err() == nil {
		s.run.mu.Lock()
		client := s.run.client
		version, certain := s.run.versions[s.kind]
		now := time.Now()
		isAbsent := version == "" && s.run.countsAsMissing(s.kind, now)
		if certain && s.run.discoveryErr == nil && (isAbsent || s.cache.absent) {
			s.drop(s.cache.setAbsent(now, version == "", s.run.settings.Hold)...)
			s.err = nil
			s.run.wakeup.Notify()
		}
		s.run.mu.Unlock()
		step := s.list
		if s.watchNext {
			step = s.watch
		}
		if version == "" {
			s.watchNext = false
			_ = worker.Wait(ctx, s.discovered, time.Hour)
		} else if err := step(ctx, client, s.path(version)); err != nil && ctx.Err() == nil {
			s.noteFailure(ctx, err)
		}
		s.run.mu.Lock()
		stale := client != s.run.client
		s.run.mu.Unlock()
		if stale {
			client.close()
		}
	}
}

// metaOf reads the metadata of an object, or of a bookmark, which only has a version.
func (s *stream) metaOf(object json.RawMessage, isBookmark bool) (meta, error) {
	var read struct{ Metadata meta }
	err := json.Unmarshal(object, &read)
	meta := read.Metadata
	meta.key = meta.Namespace + "/" + meta.Name
	isOther := meta.Name == "" || strings.Contains(meta.Namespace+meta.Name, "/") ||
		s.namespace != "" && meta.Namespace != s.namespace
	switch {
	case err != nil:
	case meta.Version == 0:
		err = errors.New("it has no resource version")
	case isOther && !isBookmark:
		err = errors.New("it cannot be one of " + s.where())
	}
	if err != nil {
		err = fmt.Errorf("read object %s: %w", meta.key, err)
	}
	return meta, err
}

// list lists all objects, and applies the list if it is trusted. All pages have the resource version of the first.
func (s *stream) list(ctx context.Context, client *api, path string) error {
	var metas []meta
	var objects []json.RawMessage
	digests := make(map[string]uint64)
	query := url.Values{"limit": {strconv.Itoa(s.run.pageSize)}, "labelSelector": {s.kind.selector}}
	s.run.mu.Lock()
	answer := list{requestedAt: s.run.timeline.seen(), objects: make(map[string]uint64)}
	s.run.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("the list is not complete after %s", listTimeout))
	defer cancel()
	ctx, memory := intake.Begin(ctx)
	defer memory.Release()
	size, taken := 0, 0
	for pages, hasMore := 0, true; hasMore; pages++ {
		page, err := client.page(ctx, path, query)
		if version := page.Metadata.Version; err == nil && answer.version > 0 && answer.version != version {
			err = fmt.Errorf("the pages of the list are of resource versions %d and %d", answer.version, version)
		} else if pages == maxPages {
			err = fmt.Errorf("the list has more than %d pages", maxPages)
		}
		for i := 0; err == nil && i < len(page.Items); i++ {
			meta, wrong := s.metaOf(page.Items[i], false)
			err = wrong
			if answer.objects[meta.key] > 0 {
				err = fmt.Errorf("the list has %s twice", meta.key) // perhaps each page was the first one
			}
			digests[meta.key] = maphash.Bytes(digestSeed, page.Items[i])
			if s.kind.trim != nil {
				page.Items[i] = s.kind.trim(page.Items[i])
			}
			size += objectSize(page.Items[i])
			answer.objects[meta.key] = meta.Version
			metas = append(metas, meta)
			objects = append(objects, page.Items[i])
		}
		if err = cmp.Or(err, s.reserveMemory(ctx, max(size, s.size)), memory.Take(ctx, size-taken)); err != nil {
			return err
		}
		taken = size
		answer.version = page.Metadata.Version
		hasMore = page.Metadata.Continue != ""
		query.Set("continue", page.Metadata.Continue)
	}
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	wasOlder := !s.cache.rollbackSince.IsZero()
	deleted, err := s.cache.checkList(s.run.timeline, time.Now(), answer, s.run.settleTime, s.run.settings.Hold)
	if err != nil {
		return err
	}
	_ = s.reserveMemory(ctx, size) // less than before
	for i, meta := range metas {
		if s.digests[meta.key] != digests[meta.key] {
			s.kind.handle(meta, objects[i])
		}
	}
	s.digests = digests
	s.drop(deleted...)
	for _, stream := range s.run.streams {
		if wasOlder && stream.endWatch != nil {
			stream.endWatch() // it may wait for a version that a restored server reaches much later
		}
	}
	s.watchNext = true
	s.justListed = true
	s.relist = time.Now().Add(2 * s.run.maxWatch)
	s.noteSuccess()
	return nil
}

// watch takes the events after the version that was seen, until the server ends the watch or watchGrace is over. Before
// that, it compares the current resource version and the number of objects: a restored server accepts a version of its
// future, and stays silent until it gets there. A watch that ends early may have missed a restore, so a list follows.
func (s *stream) watch(ctx context.Context, client *api, path string) error {
	s.run.mu.Lock()
	after := s.cache.seen
	holdEnd := s.cache.suspicion.End
	lasts := s.run.maxWatch/2 + rand.N(s.run.maxWatch/2) //nolint:gosec // so that not all end at once
	held := len(s.cache.held())
	present := len(s.cache.objects) - held
	revision := s.run.timeline.seen()
	if s.cache.ownVersions {
		revision = after
	}
	ctx, cancel := context.WithCancel(ctx)
	s.endWatch = cancel
	s.run.mu.Unlock()
	defer cancel()
	if held > 0 {
		lasts = min(lasts, max(time.Until(holdEnd), time.Second))
	}
	justListed := s.justListed
	s.justListed = false
	s.watchNext = false
	if !justListed {
		page, err := client.page(ctx, path, url.Values{"limit": {"1"}})
		rest := page.Metadata.Remaining
		counted := s.kind.selector == "" && (page.Metadata.Continue == "" || rest > 0)
		if err != nil || page.Metadata.Version < revision || counted && len(page.Items)+rest != present {
			return err
		}
	}
	ends := time.AfterFunc(lasts+watchGrace, cancel)
	defer ends.Stop()
	response, err := client.do(ctx, path, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {strconv.FormatUint(after, 10)},
		"timeoutSeconds": {strconv.Itoa(max(1, int(lasts.Seconds())))}, "labelSelector": {s.kind.selector},
	}, "")
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	s.run.mu.Lock()
	s.noteSuccess()
	s.run.mu.Unlock()
	began := time.Now()
	heard := 0
	from := &io.LimitedReader{R: response.Body}
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
		_ = s.run.pace.Wait(ctx)
	}
	ended := errors.Is(err, io.EOF) || ctx.Err() != nil // the next watch repeats events that a silent one withheld
	due := !time.Now().Before(s.relist) || held > 0 && !time.Now().Before(holdEnd)
	s.watchNext = ended && time.Since(began) > lasts-time.Second && !due
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
		refusal := new(refusal)
		return cmp.Or[error](json.Unmarshal(object, refusal), refusal)
	}
	meta, err := s.metaOf(object, kind == "BOOKMARK")
	if err != nil {
		return err
	}
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	if meta.Version < s.cache.seen {
		return fmt.Errorf("%w: resource version %d comes after %d", errOlder, meta.Version, s.cache.seen)
	}
	now := time.Now()
	s.cache.seen = meta.Version
	s.cache.confirmedAt = now
	switch kind {
	case "ADDED", "MODIFIED":
		s.cache.objects.Put(meta.key, meta.Version)
		delete(s.cache.contentUnknown, meta.key)
		s.digests[meta.key] = maphash.Bytes(digestSeed, object)
		s.kind.handle(meta, object)
	case "DELETED":
		if now.Sub(s.lastDeletion) >= 5*s.run.collectTime {
			s.seriesBegan = now
		}
		s.lastDeletion = now
		s.cache.forget(meta.key)
		s.drop(meta.key)
	}
	s.run.wakeup.Notify()
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
	s.failures = 0
	s.err = nil
	s.run.wakeup.Notify()
}

// noteFailure notes an error and waits. The end of one connection or watch is not reported.
func (s *stream) noteFailure(ctx context.Context, err error) {
	refusal := refused(err)
	pause := max(s.retry.NextBackOff(), min(time.Duration(refusal.RetryAfter)*time.Second, maxWait))
	s.run.mu.Lock()
	s.failures++
	code := refusal.Code
	if code > 0 && !refusal.isExpired() || s.failures > 1 || errors.Is(err, intake.ErrLimit) {
		s.err = err
	}
	if s.run.discoveryErr == nil && (code == 0 || code == http.StatusNotFound || code == http.StatusUnauthorized) {
		s.run.discoverNow.Notify()
	}
	s.run.mu.Unlock()
	s.run.wakeup.Notify()
	_ = worker.Wait(ctx, s.discovered, pause)
}
