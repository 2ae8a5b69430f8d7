package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tributary/internal/words"
	"tributary/internal/worker"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/registry"
)

// run is one run of a source.
type run struct {
	// read-only
	*Source
	sink       sources.Sink
	wakeup     registry.Wakeup
	kinds      []*kind
	streams    []*stream
	ofServices *services // nil if none are read
	derived    *derived  // nil if nothing is
	look       chan bool // to look for the kinds; true if the credentials are stale

	mu      sync.Mutex
	client  *api
	down    error // why the kinds are not known; nil if they are
	pending map[string]sources.Content
	started bool // what can be read was, and is published
	synced  bool
	unkept  bool // the note for the next run is old
}

var errNotYet = errors.New("not connected yet")

func newRun(s *Source, sink sources.Sink) *run {
	r := &run{
		Source: s, sink: sink, wakeup: registry.NewWakeup(), look: make(chan bool, 1), down: errNotYet,
		pending: make(map[string]sources.Content),
	}
	r.addRules()
	if s.settings.Services != nil {
		r.ofServices = newServices(r)
	}
	if s.settings.Derive != nil {
		r.derived = newDerived(r)
	}
	return r
}

func (r *run) run(ctx context.Context) error {
	r.recall()
	workers, ctx := worker.New(ctx)
	defer func() {
		workers.Stop()
		if r.client != nil {
			r.client.close()
		}
	}()
	workers.Go(func() { r.discover(ctx) })
	for _, s := range r.streams {
		workers.Go(func() { r.follow(ctx, s) })
	}
	registry.Publish(ctx, r.sink, r.wakeup, r.delay, r.gather)
	if err := workers.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// note is what a run knew of a stream.
type note struct {
	Seen  uint64
	Until time.Time
	Why   string
	// Absent is since when the server has no such kind.
	Absent time.Time
}

// recall takes over what an earlier run published and knew. What the settings no longer select is withdrawn with what is published first.
func (r *run) recall() {
	var notes map[string]note
	if k, ok := r.sink.(sources.Keeper); ok {
		_ = json.Unmarshal(k.Kept(), &notes) // without it we know as much as the first time
	}
	for _, s := range r.streams {
		n := notes[s.id()]
		s.seen, s.until, s.why, s.absent = n.Seen, n.Until, n.Why, n.Absent
	}
	for _, group := range r.sink.Groups() {
		if r.derived != nil && group == derive.Group {
			r.derived.Inherited = true
			continue
		}
		if !slices.ContainsFunc(r.streams, func(s *stream) bool {
			key, ok := s.has(group)
			if ok {
				s.objects[key] = 0
			}
			return ok
		}) {
			r.pending[group] = sources.Content{Group: group}
		}
	}
}

// keep has what is known kept for the next run. run.mu is held.
func (r *run) keep() {
	k, ok := r.sink.(sources.Keeper)
	if !ok || !r.unkept {
		return
	}
	notes := make(map[string]note, len(r.streams))
	for _, s := range r.streams {
		notes[s.id()] = note{s.seen, s.until, s.why, s.absent}
	}
	if text, err := json.Marshal(notes); err == nil {
		k.Keep(text)
		r.unkept = false
	}
}

// gather returns what there is to hand on.
func (r *run) gather(now time.Time) (b registry.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.Next = time.Hour
	if !r.started {
		if r.down != nil || !r.settled() {
			b.Health = r.health()
			return b
		}
		r.started = true
	}
	for _, group := range slices.Sorted(maps.Keys(r.pending)) {
		b.Contents = append(b.Contents, r.pending[group])
	}
	clear(r.pending)
	if r.ofServices != nil {
		b.Contents = append(b.Contents, r.ofServices.contents(now)...)
	}
	if r.derived != nil {
		b.Contents = append(b.Contents, r.derived.contents(now)...)
	}
	r.keep()
	b.Health = r.health()
	for i := range b.Contents {
		b.Contents[i].Explained = r.synced && b.Health.State == sources.Healthy
	}
	b.Synced = !r.synced && r.anyRead()
	r.synced = r.synced || b.Synced
	b.Next = registry.Wait(r.next(now), now)
	return b
}

// next returns when something happens by itself; zero if nothing does.
func (r *run) next(now time.Time) (at time.Time) {
	for _, s := range r.streams {
		if s.unsure.After(now) {
			at = registry.Earlier(at, s.unsure)
		}
	}
	return at
}

// anyRead reports whether something was read, or there is nothing to read.
func (r *run) anyRead() bool {
	has := slices.DeleteFunc(slices.Clone(r.streams), (*stream).missingKind)
	return len(has) == 0 || slices.ContainsFunc(has, func(s *stream) bool { return s.read })
}

func (r *run) settled() bool {
	return !slices.ContainsFunc(r.streams, func(s *stream) bool { return !s.settled() })
}

// health says how the source is. run.mu is held.
func (r *run) health() sources.Health {
	var well, missing int
	var problems []string
	var denied []*stream
	var failed error
	for _, s := range r.streams {
		switch {
		case s.err != nil && stateOf(s.err) == sources.Denied:
			denied = append(denied, s)
		case s.err != nil:
			failed = s.err
			problems = append(problems, fmt.Sprintf("%s: %v", s.where(), s.err))
		case s.missingKind():
			missing++
		case s.read:
			well++
		}
		if n := s.held(); n > 0 && s.looked {
			problems = append(problems, fmt.Sprintf("%s: %s held until %s UTC: %s", s.where(), words.Count(n, "object is", "objects are"),
				s.until.UTC().Format(time.TimeOnly), s.why))
		}
	}
	if len(denied) > 0 {
		problems = append(problems, fmt.Sprintf("%s (%v)", deniedText(denied), denied[0].err))
	}
	if r.down != nil && !errors.Is(r.down, errNotYet) {
		problems = slices.Insert(problems, 0, fmt.Sprintf("look for the kinds: %v", r.down))
		failed = r.down
	}
	h := sources.Health{State: sources.Degraded, Message: strings.Join(problems, "; ")}
	switch {
	case errors.Is(r.down, errNotYet):
		return sources.Health{State: sources.Starting, Message: errNotYet.Error()}
	case well == 0 && failed != nil:
		h.State = stateOf(failed)
	case well == 0 && len(denied) > 0:
		h.State = sources.Denied
	case len(problems) > 0:
	case !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the objects"}
	case missing == len(r.streams):
		return sources.Health{State: sources.Healthy, Message: "the cluster has no kind that is read: no CRD of Istio"}
	default:
		return sources.Health{State: sources.Healthy}
	}
	h.Message = r.shown + ": " + h.Message
	return h
}

// deniedText names what there is no right to.
func deniedText(all []*stream) string {
	byNamespace := make(map[string][]string)
	for _, s := range all {
		byNamespace[s.namespace] = append(byNamespace[s.namespace], s.resource())
	}
	var texts []string
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		in := "in the cluster"
		if namespace != "" {
			in = "in namespace " + namespace
		}
		texts = append(texts, fmt.Sprintf("no right to list and watch %s %s", strings.Join(byNamespace[namespace], ", "), in))
	}
	return strings.Join(texts, "; ")
}
