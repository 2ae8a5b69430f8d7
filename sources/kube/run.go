package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

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
	sink     sources.Sink
	wakeup   registry.Wakeup
	look     registry.Wakeup // to look for the kinds
	kinds    []*kind
	streams  []*stream
	timeline timeline      // the memories of streams
	derived  *derive.Set   // nil if nothing is; mu guards it
	pace     *rate.Limiter // of the events of all watches

	mu      sync.Mutex
	client  *api                // nil until the kinds are known
	served  map[*kind]string    // in which version the server has a kind; empty if it does not, no entry if that is uncertain
	missing map[*kind]time.Time // since when the server does not list a kind
	down    error               // why the kinds are not known; nil if they are
	looked  time.Time           // when that was last found out
	pending map[string]pending  // by group, what is to be published
	started bool                // what can be read was, and is published
	kept    string              // the note for the next run
	holds   string              // what it says of holds
	keepAt  time.Time           // when it is made again
}

// pending makes the content of a group, unless it has not changed, or not all is known that it is made of.
type pending func() (c sources.Content, ready bool)

// ready is for content that is known.
func ready(c sources.Content) pending {
	return func() (sources.Content, bool) { return c, true }
}

// A source takes eventBurst events of watches at once, and eventRate a second from then on: each costs processor time
// in all of tributary. The server keeps the others meanwhile.
const (
	eventBurst = 2000
	eventRate  = 500
)

func newRun(s *Source, sink sources.Sink) *run {
	r := &run{Source: s, sink: sink, wakeup: registry.NewWakeup(), look: registry.NewWakeup(), pending: make(map[string]pending)}
	r.missing, r.pace = make(map[*kind]time.Time), rate.NewLimiter(eventRate, eventBurst)
	r.readRules()
	if s.settings.Services != nil {
		r.readServices()
	}
	if s.settings.Derive != nil {
		r.readDerived()
	}
	for _, k := range r.kinds {
		namespaces := s.settings.Namespaces
		if k.cluster {
			namespaces = []string{""}
		}
		for _, n := range namespaces {
			m := memory{objects: make(map[string]uint64), unread: make(map[string]string)}
			r.streams = append(r.streams, &stream{
				run: r, kind: k, namespace: n, news: registry.NewWakeup(), retry: s.newBackOff(), memory: m,
				digests: make(map[string]uint64),
			})
			r.timeline = append(r.timeline, &r.streams[len(r.streams)-1].memory)
		}
	}
	return r
}

func (r *run) run(ctx context.Context) error {
	r.recall()
	workers, ctx := worker.New(ctx)
	defer func() {
		workers.Stop()
		r.client.close()
		r.keep(r.keepAt)
	}()
	workers.Go(func() { r.discover(ctx) })
	for _, s := range r.streams {
		workers.Go(func() { s.follow(ctx) })
	}
	registry.Publish(ctx, r.sink, r.wakeup, r.delay, r.gather)
	return cmp.Or(workers.Wait(), ctx.Err())
}

// recall takes over what an earlier run published and knew. What the settings no longer select is withdrawn with what is published first.
func (r *run) recall() {
	var notes map[string]note
	if k, ok := r.sink.(sources.Keeper); ok {
		_ = json.Unmarshal(k.Kept(), &notes) // without it we know as much as the first time
	}
	for _, s := range r.streams {
		n, known := notes[s.where()]
		s.recall(n)
		for where, other := range notes { // of all namespaces, if this one was read with them; of each, if all are read now
			read, namespace, _ := strings.Cut(where, " ")
			if !known && read == s.resource() && (namespace == "" || s.namespace == "") {
				if n.Seen = max(n.Seen, other.Seen); other.Until.After(n.Until) {
					n.Until, n.Why = other.Until, other.Why
				}
				s.recall(other)
			}
		}
		s.note, s.Names, s.Held = n, nil, nil
		s.Until = time.Now().Add(min(time.Until(s.Until), r.settings.Hold)) // the clock may have been wrong
	}
	for _, group := range r.sink.Groups() {
		owned := r.derived != nil && group == derive.Group
		if owned {
			r.derived.Inherited = true
		}
		for _, s := range r.streams {
			key, is := strings.CutPrefix(group, s.prefix)
			if is && s.prefix != "" && (s.namespace == "" || strings.HasPrefix(key, s.namespace+"/")) {
				if _, noted := s.objects[key]; !noted {
					s.objects[key] = 0
				}
				owned = true
			}
		}
		if !owned {
			r.pending[group] = ready(sources.Content{})
		}
	}
}

const (
	keepEvery = 5 * time.Second
	maxHeld   = 1 << 20 // bytes of a note
)

// keep saves the note for the next run: at once if a hold has changed, otherwise from time to time, since a note names all
// objects. run.mu is held.
func (r *run) keep(now time.Time) {
	holds, notes, room := "", make(map[string]note, len(r.streams)), maxHeld
	for _, s := range r.streams {
		holds += fmt.Sprint(s.Until, s.Absent)
	}
	keeper, ok := r.sink.(sources.Keeper)
	if !ok || !r.started || holds == r.holds && now.Before(r.keepAt) {
		return
	}
	r.holds, r.keepAt = holds, now.Add(keepEvery)
	for _, s := range r.streams {
		n := s.note
		n.Names, n.Held = slices.Sorted(maps.Keys(s.objects)), make(map[string]json.RawMessage)
		for _, key := range n.Names {
			if s.objects[key] > 0 {
				continue
			}
			if n.Held[key] = nil; s.text != nil && room > 0 {
				n.Held[key] = s.text(metaNamed(key))
				room -= len(n.Held[key])
			}
		}
		notes[s.where()] = n
	}
	text, _ := json.Marshal(notes) // times, numbers and texts
	if string(text) != r.kept {
		keeper.Keep(text)
		r.kept = string(text)
	}
}

// discover finds out which kinds the server has, again and again, until ctx ends. If that fails, it reads address and credentials anew.
func (r *run) discover(ctx context.Context) {
	retry, client := r.newBackOff(), (*api)(nil)
	for ctx.Err() == nil {
		versions, err := map[*kind]string(nil), error(nil)
		if client == nil {
			client, err = r.cluster.connect()
		}
		if err == nil {
			versions, err = client.lookAt(ctx, r.kinds)
		}
		if ctx.Err() != nil {
			client.close() // nobody else may know it
			return
		}
		pause := r.found(client, versions, err)
		if err == nil {
			retry.Reset()
		} else {
			client.close()
			client, pause = nil, retry.NextBackOff()
		}
		wait(ctx, r.look, time.After(pause))
	}
}

// found takes over which versions there are, and the client that knows; or that they are not known. It returns when to
// look again: soon after a kind went missing, and when a hold ends. A server that starts does not list its CRDs yet, so a
// kind that has objects counts as missing only after the settle time.
func (r *run) found(client *api, versions map[*kind]string, err error) (pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wakeup.Notify()
	again, before, now := r.down != nil || r.client == nil, r.served, time.Now()
	pause = r.lookEvery
	for _, k := range r.kinds {
		if err != nil || versions[k] != "" {
			if err == nil && !r.missing[k].IsZero() {
				delete(before, k) // so that it is listed at once
			}
			delete(r.missing, k)
			continue
		}
		if r.missing[k].IsZero() {
			r.missing[k] = now
		}
		if pause = min(pause, max(now.Sub(r.missing[k]), min(r.lookEvery/30, time.Second))); r.lacks(k, now) {
			versions[k] = ""
		} else if before[k] != "" {
			versions[k] = before[k]
		}
	}
	if r.down = err; err == nil {
		if r.client != client {
			r.client.close() // streams close their connections themselves
		}
		r.client, r.served = client, versions
		r.confirmMissing(now, versions)
	}
	for _, s := range r.streams {
		if left := s.Until.Sub(now); s.Absent && left > 0 {
			pause = min(pause, left)
		}
		if s.Absent && (again || err != nil) && s.Until.After(r.looked) && !r.looked.IsZero() {
			s.Until = s.Until.Add(now.Sub(r.looked)) // nobody knows whether the kind was missing all the time
		}
		if err == nil && (again || versions[s.kind] == "" || before[s.kind] != versions[s.kind]) {
			s.news.Notify() // each time that a kind is missing, too: only that ends a hold
		}
	}
	r.looked = now
	return pause
}

// lacks reports whether a kind that /apis does not list counts as missing. run.mu is held.
func (r *run) lacks(k *kind, now time.Time) bool {
	return now.Sub(r.missing[k]) >= r.settle || !slices.ContainsFunc(r.streams, func(s *stream) bool {
		return s.kind == k && len(s.objects) > 0 && !s.Absent
	})
}

// gather returns what there is to hand on.
func (r *run) gather(now time.Time) (b registry.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.Synced = !r.started && r.settled()
	r.started = r.started || b.Synced
	b.Health = r.health()
	if r.started {
		r.tellUnread()
		for _, group := range slices.Sorted(maps.Keys(r.pending)) {
			if c, ready := r.pending[group](); ready {
				c.Group, c.Explained = group, !b.Synced && b.Health.State == sources.Healthy
				b.Contents = append(b.Contents, c)
				delete(r.pending, group)
			}
		}
		r.pending = maps.Collect(maps.All(r.pending)) // the map itself has grown with the first list
		r.keep(now)
	}
	if b.Next = r.lookEvery; len(r.pending) > 0 { // something may not be held any longer
		b.Next = min(b.Next, 5*r.delay)
	}
	return b
}

// known reports whether all objects of some kinds are known that concern a Service, or all of them if key is empty.
func (r *run) known(kinds []*kind, key string) bool {
	return !slices.ContainsFunc(r.streams, func(s *stream) bool {
		in := key == "" || s.namespace == "" || strings.HasPrefix(key, s.namespace+"/")
		return in && slices.Contains(kinds, s.kind) && !s.known(key)
	})
}

// settled reports whether everything was read that can be, and that is something, unless there is nothing.
func (r *run) settled() bool {
	read, there := false, false
	for _, s := range r.streams {
		if !s.settled() {
			return false
		}
		read, there = read || s.whole, there || !s.Absent
	}
	return r.client != nil && r.down == nil && (read || !there)
}

// health says how the source is. run.mu is held.
func (r *run) health() sources.Health {
	var problems, denied []string
	failed, refusal, well, there, unread := r.down, error(nil), false, false, ""
	unconfirmed, end := 0, time.Time{}
	if failed != nil {
		problems = append(problems, fmt.Sprintf("look for the kinds: %v", failed))
	}
	for _, s := range r.streams {
		there = there || !s.Absent
		switch {
		case s.err == nil:
			well = well || s.whole && !s.Absent
		case stateOf(s.err) == sources.Denied:
			if denied, refusal = append(denied, s.where()), cmp.Or(refusal, s.err); s.isUnread() {
				unread = "; policies were never read, so Envoys refuse all requests: grant the right"
			}
		default:
			problems = append(problems, fmt.Sprintf("%s: %v", s.where(), s.err))
			failed = cmp.Or(failed, s.err)
		}
		if r.started && s.err == nil && s.isUnread() {
			problems = append(problems, s.whyUnread())
		}
		if n := s.held(); n > 0 {
			until, waits := s.Until.UTC().Format(time.TimeOnly), ""
			if len(s.unread) > 0 {
				waits = fmt.Sprintf("; until then, what an earlier run made of %d of them waits", len(s.unread))
			}
			unconfirmed += n
			if s.Until.After(end) {
				end = s.Until
			}
			first := s.firstInDoubt()
			if n > 1 {
				first += fmt.Sprintf(" and %d more", n-1)
			}
			problems = append(problems, fmt.Sprintf("%s: %s held until %s UTC (%s): %s%s", s.where(),
				words.Count(n, "object is", "objects are"), until, first, s.Why, waits))
		}
	}
	if len(denied) > 0 {
		problems = append(problems, fmt.Sprintf("%s (%v)%s", lack(denied), refusal, unread))
		failed = cmp.Or(failed, refusal)
	}
	h := sources.Health{
		State: sources.Degraded, Message: r.shown + ": " + strings.Join(problems, "; "),
		Unconfirmed: unconfirmed, End: end,
	}
	switch {
	case failed != nil && (!well || r.down != nil && refused(r.down).Code == 0):
		h.State = stateOf(failed)
	case len(problems) > 0:
	case !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the objects"}
	case there:
		return sources.Health{State: sources.Healthy}
	default:
		h = sources.Health{State: sources.Healthy, Message: r.shown + ": the cluster has no kind that is read: no CRD of Istio"}
	}
	return h
}

// lack is the text about what there is no right to.
func lack(denied []string) string { return "no right to list and watch " + strings.Join(denied, ", ") }
