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
	"tributary/sources/presence"
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
	timeline timeline      // of the caches of streams
	derived  *derive.Set   // nil without derived objects; mu guards it
	pace     *rate.Limiter // of the events of all watches

	mu     sync.Mutex
	client *api // nil until the first discovery
	// version of a kind at the server; empty if it lacks the kind, no entry if that is uncertain
	served    map[*kind]string
	missing   map[*kind]time.Time // the time since which the server does not list a kind
	down      error               // of the last discovery
	looked    time.Time           // time of the last discovery
	pending   map[string]pending  // unpublished changes, by group
	started   bool                // all readable objects were read and published
	savedNote string              // the note for the next run
	holds     string              // its part about holds
	keepAt    time.Time           // the time of the next note
}

// pending makes the content of a group, unless it is unchanged, or an object that it depends on is unknown.
type pending func() (c sources.Content, ready bool)

// ready returns a pending with known content.
func ready(c sources.Content) pending {
	return func() (sources.Content, bool) { return c, true }
}

// A source takes eventBurst events of watches at once, and eventRate a second from then on: each costs processor time
// in all of tributary. The server keeps the others meanwhile.
const (
	eventBurst = 2000
	eventRate  = 500
)

func newRun(source *Source, sink sources.Sink) *run {
	run := &run{
		Source: source, sink: sink, wakeup: registry.NewWakeup(), look: registry.NewWakeup(),
		pending: make(map[string]pending),
	}
	run.missing, run.pace = make(map[*kind]time.Time), rate.NewLimiter(eventRate, eventBurst)
	run.readRules()
	if source.settings.Services != nil {
		run.readServices()
	}
	if source.settings.Derive != nil {
		run.readDerived()
	}
	for _, kind := range run.kinds {
		namespaces := source.settings.Namespaces
		if kind.cluster {
			namespaces = []string{""}
		}
		for _, n := range namespaces {
			m := cache{objects: make(presence.Set[uint64]), unread: make(map[string]string)}
			run.streams = append(run.streams, &stream{
				run: run, kind: kind, namespace: n, news: registry.NewWakeup(), retry: source.newBackOff(), cache: m,
				digests: make(map[string]uint64),
			})
			run.timeline = append(run.timeline, &run.streams[len(run.streams)-1].cache)
		}
	}
	return run
}

func (r *run) run(ctx context.Context) error {
	r.recall()
	workers, ctx := worker.New(ctx)
	defer func() {
		workers.Stop()
		r.client.close()
		r.saveNote(r.keepAt)
	}()
	workers.Go(func() { r.discover(ctx) })
	for _, s := range r.streams {
		workers.Go(func() { s.follow(ctx) })
	}
	registry.Publish(ctx, r.sink, r.wakeup, r.delay, r.takePending)
	return cmp.Or(workers.Wait(), ctx.Err())
}

// recall restores the objects and notes of an earlier run. The first publish withdraws groups that the settings no
// longer select.
func (r *run) recall() {
	var notes map[string]note
	if k, ok := r.sink.(sources.Keeper); ok {
		_ = json.Unmarshal(k.LastNote(), &notes) // without a note, the run begins like the first one
	}
	for _, stream := range r.streams {
		saved, isSaved := notes[stream.where()]
		stream.recall(saved)
		for where, note := range notes { // an earlier run may have read all namespaces together, or each of them
			read, namespace, _ := strings.Cut(where, " ")
			if !isSaved && read == stream.resource() && (namespace == "" || stream.namespace == "") {
				if saved.Seen = max(saved.Seen, note.Seen); note.End.After(saved.End) {
					saved.Suspicion = note.Suspicion
				}
				stream.recall(note)
			}
		}
		stream.note, stream.Names, stream.Held = saved, nil, nil
		stream.Suspicion = stream.Restored(time.Now(), r.settings.Hold)
	}
	for _, group := range r.sink.Groups() {
		owned := r.derived != nil && group == derive.Group
		if owned {
			r.derived.Inherited = true
		}
		for _, stream := range r.streams {
			key, is := strings.CutPrefix(group, stream.prefix)
			if is && stream.prefix != "" && (stream.namespace == "" || strings.HasPrefix(key, stream.namespace+"/")) {
				if _, noted := stream.objects[key]; !noted {
					stream.objects.Hold(key)
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

// saveNote saves the note for the next run: at once if a hold has changed, otherwise from time to time, since a note
// names all objects. run.mu is held.
func (r *run) saveNote(now time.Time) {
	holds, notes, room := "", make(map[string]note, len(r.streams)), maxHeld
	for _, s := range r.streams {
		holds += fmt.Sprint(s.End, s.Absent)
	}
	keeper, ok := r.sink.(sources.Keeper)
	if !ok || !r.started || holds == r.holds && now.Before(r.keepAt) {
		return
	}
	r.holds, r.keepAt = holds, now.Add(keepEvery)
	for _, stream := range r.streams {
		note := stream.note
		note.Names, note.Held = slices.Sorted(maps.Keys(stream.objects)), make(map[string]json.RawMessage)
		for _, key := range note.Names {
			if !stream.objects[key].Held {
				continue
			}
			if note.Held[key] = nil; stream.text != nil && room > 0 {
				note.Held[key] = stream.text(metaNamed(key))
				room -= len(note.Held[key])
			}
		}
		notes[stream.where()] = note
	}
	text, _ := json.Marshal(notes) // times, numbers and texts
	if string(text) != r.savedNote {
		keeper.Keep(text)
		r.savedNote = string(text)
	}
}

// discover discovers the kinds of the server again and again until ctx ends. After a failure, it reads address and
// credentials again.
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
			client.close() // no stream uses it
			return
		}
		pause := r.setServed(client, versions, err)
		if err == nil {
			retry.Reset()
		} else {
			client.close()
			client, pause = nil, retry.NextBackOff()
		}
		_ = worker.Wait(ctx, r.look, pause)
	}
}

// setServed applies the result of a discovery: versions and client, or an error. It returns the time until the next
// one: soon after a kind went missing, and when a hold ends. A server that starts does not list its CRDs yet, so a kind
// that has objects counts as missing only after the settle time.
func (r *run) setServed(client *api, versions map[*kind]string, err error) (pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wakeup.Notify()
	reconnected, before, now := r.down != nil || r.client == nil, r.served, time.Now()
	pause = r.lookEvery
	for _, kind := range r.kinds {
		if err != nil || versions[kind] != "" {
			if err == nil && !r.missing[kind].IsZero() {
				delete(before, kind) // so that it is listed at once
			}
			delete(r.missing, kind)
			continue
		}
		if r.missing[kind].IsZero() {
			r.missing[kind] = now
		}
		if pause = min(pause, max(now.Sub(r.missing[kind]), min(r.lookEvery/30, time.Second))); r.lacks(kind, now) {
			versions[kind] = ""
		} else if before[kind] != "" {
			versions[kind] = before[kind]
		}
	}
	if r.down = err; err == nil {
		if r.client != client {
			r.client.close() // streams close their own connections
		}
		r.client, r.served = client, versions
		r.confirmMissing(now, versions)
	}
	for _, stream := range r.streams {
		if left := stream.End.Sub(now); stream.Absent && left > 0 {
			pause = min(pause, left)
		}
		if stream.Absent && (reconnected || err != nil) && stream.End.After(r.looked) && !r.looked.IsZero() {
			stream.End = stream.End.Add(now.Sub(r.looked)) // the kind may not have been missing all the time
		}
		if err == nil && (reconnected || versions[stream.kind] == "" || before[stream.kind] != versions[stream.kind]) {
			stream.news.Notify() // also while a kind is missing, to end a hold
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

// takePending returns the contents to publish.
func (r *run) takePending(now time.Time) (batch registry.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch.Synced = !r.started && r.settled()
	r.started = r.started || batch.Synced
	batch.Health = r.health()
	if r.started {
		r.tellUnread()
		for _, group := range slices.Sorted(maps.Keys(r.pending)) {
			if c, ready := r.pending[group](); ready {
				c.Group, c.RemovalsObserved = group, !batch.Synced && batch.Health.State == sources.Healthy
				batch.Contents = append(batch.Contents, c)
				delete(r.pending, group)
			}
		}
		r.pending = maps.Collect(maps.All(r.pending)) // the map itself has grown with the first list
		r.saveNote(now)
	}
	if batch.Next = r.lookEvery; len(r.pending) > 0 { // a hold may have ended
		batch.Next = min(batch.Next, 5*r.delay)
	}
	return batch
}

// known reports whether all objects of some kinds that concern a Service are known, or all objects if key is empty.
func (r *run) known(kinds []*kind, key string) bool {
	return !slices.ContainsFunc(r.streams, func(s *stream) bool {
		isSelected := key == "" || s.namespace == "" || strings.HasPrefix(key, s.namespace+"/")
		return isSelected && slices.Contains(kinds, s.kind) && !s.known(key)
	})
}

// settled reports whether all readable kinds were read, and at least one was, unless the cluster has none.
func (r *run) settled() bool {
	read, isPresent := false, false
	for _, stream := range r.streams {
		if !stream.settled() {
			return false
		}
		read, isPresent = read || stream.isListed, isPresent || !stream.Absent
	}
	return r.client != nil && r.down == nil && (read || !isPresent)
}

// health returns the health of the source. run.mu is held.
func (r *run) health() sources.Health {
	var problems, denied []string
	failed, refusal, well, exists, unread := r.down, error(nil), false, false, ""
	unconfirmed, end := 0, time.Time{}
	if failed != nil {
		problems = append(problems, fmt.Sprintf("look for the kinds: %v", failed))
	}
	for _, stream := range r.streams {
		exists = exists || !stream.Absent
		switch {
		case stream.err == nil:
			well = well || stream.isListed && !stream.Absent
		case stateOf(stream.err) == sources.Denied:
			if denied, refusal = append(denied, stream.where()), cmp.Or(refusal, stream.err); stream.isUnread() {
				unread = "; policies were never read, so Envoys refuse all requests: grant the right"
			}
		default:
			if r.down == nil || refused(r.down).Code > 0 || refused(stream.err).Code > 0 { // else one lost connection
				problems = append(problems, fmt.Sprintf("%s: %v", stream.where(), stream.err))
			}
			failed = cmp.Or(failed, stream.err)
		}
		if r.started && stream.err == nil && stream.isUnread() {
			problems = append(problems, stream.whyUnread())
		}
		if held := stream.held(); len(held) > 0 {
			n, deadline, waits := len(held), stream.End.UTC().Format(time.TimeOnly), ""
			if len(stream.unread) > 0 {
				waits = fmt.Sprintf("; until then, what an earlier run made of %d of them waits", len(stream.unread))
			}
			unconfirmed += n
			if stream.End.After(end) {
				end = stream.End
			}
			first := held[0]
			if n > 1 {
				first += fmt.Sprintf(" and %d more", n-1)
			}
			problems = append(problems, fmt.Sprintf("%s: %s held until %s UTC (%s): %s%s", stream.where(),
				words.Count(n, "object is", "objects are"), deadline, first, stream.Why, waits))
		}
	}
	if len(denied) > 0 {
		problems = append(problems, fmt.Sprintf("%s (%v)%s", missingRights(denied), refusal, unread))
		failed = cmp.Or(failed, refusal)
	}
	health := sources.Health{
		State: sources.Degraded, Message: r.shown + ": " + strings.Join(problems, "; "),
		Unconfirmed: unconfirmed, End: end,
	}
	switch {
	case failed != nil && (!well || r.down != nil && refused(r.down).Code == 0):
		health.State = stateOf(failed)
	case len(problems) > 0:
	case !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the objects"}
	case exists:
		return sources.Health{State: sources.Healthy}
	default:
		health = sources.Health{
			State:   sources.Healthy,
			Message: r.shown + ": the cluster has no kind that is read: no CRD of Istio",
		}
	}
	return health
}

// missingRights returns the text about missing permissions.
func missingRights(denied []string) string {
	return "no right to list and watch " + strings.Join(denied, ", ")
}
