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
	sink        sources.Sink
	wakeup      registry.Wakeup // publishes
	discoverNow registry.Wakeup
	kinds       []*kind
	streams     []*stream
	timeline    timeline      // the caches of streams
	pace        *rate.Limiter // limits the events of all watches

	mu      sync.Mutex
	derived *derive.Set // nil without derived objects

	// Discovery.
	client *api // nil before the first discovery
	// versions has the version of each kind at the server; "" if the server lacks the kind. A kind without an entry may
	// exist.
	versions      map[*kind]string
	missingSince  map[*kind]time.Time // when the server began not to list a kind
	discoveryErr  error               // error of the last discovery; nil after a good one
	lastDiscovery time.Time

	// Publishing.
	pending map[string]pending // unpublished changes, by group
	started bool               // all readable objects were read and published

	// The note for the next run.
	savedNote  string
	savedHolds string // holds at the last note
	nextNote   time.Time
}

// pending makes the content of a group. It is not ready if it is unchanged, or depends on an object that is not read
// yet.
type pending func() (content sources.Content, ready bool)

// ready returns a pending with fixed content.
func ready(content sources.Content) pending {
	return func() (sources.Content, bool) { return content, true }
}

// A source takes eventBurst events of watches at once, and eventRate a second from then on, because each costs
// processor time in all of tributary. The server keeps the others meanwhile.
const (
	eventBurst = 2000
	eventRate  = 500
)

func newRun(source *Source, sink sources.Sink) *run {
	run := &run{
		Source: source, sink: sink, wakeup: registry.NewWakeup(), discoverNow: registry.NewWakeup(),
		pending: make(map[string]pending), missingSince: make(map[*kind]time.Time),
		pace: rate.NewLimiter(eventRate, eventBurst),
	}
	run.addIstioKinds()
	if source.settings.Services != nil {
		run.addServiceKinds()
	}
	if source.settings.Derive != nil {
		run.addDerivedKinds()
	}
	for _, kind := range run.kinds {
		namespaces := source.settings.Namespaces
		if kind.cluster {
			namespaces = []string{""}
		}
		for _, namespace := range namespaces {
			stream := &stream{
				run: run, kind: kind, namespace: namespace, discovered: registry.NewWakeup(), retry: source.newBackOff(),
				cache: newCache(), digests: make(map[string]uint64),
			}
			run.streams = append(run.streams, stream)
			run.timeline = append(run.timeline, &stream.cache)
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
		r.saveNote(r.nextNote)
	}()
	workers.Go(func() { r.discover(ctx) })
	for _, stream := range r.streams {
		workers.Go(func() { stream.follow(ctx) })
	}
	registry.Publish(ctx, r.sink, r.wakeup, r.collectTime, r.takePending)
	return cmp.Or(workers.Wait(), ctx.Err())
}

// recall restores the objects and notes of an earlier run. The first publish withdraws groups that the settings no
// longer select.
func (r *run) recall() {
	var notes map[string]note
	if keeper, ok := r.sink.(sources.Keeper); ok {
		_ = json.Unmarshal(keeper.LastNote(), &notes) // without a note, the run begins like the first one
	}
	for _, stream := range r.streams {
		saved, isSaved := notes[stream.where()]
		stream.recall(saved)
		for where, note := range notes { // an earlier run may have read all namespaces together, or each of them
			resource, namespace, _ := strings.Cut(where, " ")
			if isSaved || resource != stream.kind.resource() || namespace != "" && stream.namespace != "" {
				continue
			}
			saved.Seen = max(saved.Seen, note.Seen)
			if note.End.After(saved.End) {
				saved.Suspicion = note.Suspicion
			}
			stream.recall(note)
		}
		stream.cache.restore(saved)
		stream.cache.suspicion = saved.Restored(time.Now(), r.settings.Hold)
	}
	for _, group := range r.sink.Groups() {
		owned := r.derived != nil && group == derive.Group
		if owned {
			r.derived.Inherited = true
		}
		for _, stream := range r.streams {
			key, isOfKind := strings.CutPrefix(group, stream.kind.prefix)
			isOfKind = isOfKind && stream.kind.prefix != ""
			if !isOfKind || stream.namespace != "" && !strings.HasPrefix(key, stream.namespace+"/") {
				continue
			}
			if _, noted := stream.cache.objects[key]; !noted {
				stream.cache.objects.Hold(key)
			}
			owned = true
		}
		if !owned {
			r.pending[group] = ready(sources.Content{})
		}
	}
}

const (
	noteInterval = 5 * time.Second
	maxHeld      = 1 << 20 // bytes of the objects in doubt in a note
)

// saveNote saves the note for the next run: at once if a hold has changed, otherwise from time to time, since a note
// names all objects. run.mu is held.
func (r *run) saveNote(now time.Time) {
	var builder strings.Builder
	for _, stream := range r.streams {
		fmt.Fprint(&builder, stream.cache.suspicion.End, stream.cache.absent)
	}
	holds := builder.String()
	keeper, ok := r.sink.(sources.Keeper)
	if !ok || !r.started || holds == r.savedHolds && now.Before(r.nextNote) {
		return
	}
	r.savedHolds = holds
	r.nextNote = now.Add(noteInterval)
	notes := make(map[string]note, len(r.streams))
	room := maxHeld
	for _, stream := range r.streams {
		note := stream.cache.note()
		note.Held = make(map[string]json.RawMessage)
		for _, key := range note.Names {
			if !stream.cache.objects[key].Held {
				continue
			}
			note.Held[key] = nil
			if room > 0 {
				note.Held[key] = stream.kind.inDoubt(key)
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
	retry := r.newBackOff()
	var client *api
	for ctx.Err() == nil {
		var versions map[*kind]string
		var err error
		if client == nil {
			client, err = r.cluster.connect()
		}
		if err == nil {
			versions, err = client.discover(ctx, r.kinds)
		}
		if ctx.Err() != nil {
			client.close() // no stream uses it
			return
		}
		pause := r.applyDiscovery(client, versions, err)
		if err == nil {
			retry.Reset()
		} else {
			client.close()
			client = nil
			pause = retry.NextBackOff()
		}
		_ = worker.Wait(ctx, r.discoverNow, pause)
	}
}

// applyDiscovery applies the result of a discovery: client and versions, or an error. It returns the time until the
// next discovery: soon after a kind went missing, and when a hold ends. A server that starts does not list its CRDs
// yet, so a kind that has objects counts as missing only after the settle time.
func (r *run) applyDiscovery(client *api, versions map[*kind]string, err error) (pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wakeup.Notify()
	now := time.Now()
	reconnected := r.discoveryErr != nil || r.client == nil
	before := r.versions
	pause = r.discoveryInterval
	for _, kind := range r.kinds {
		if err != nil || versions[kind] != "" {
			if err == nil && !r.missingSince[kind].IsZero() {
				delete(before, kind) // so that it is listed at once
			}
			delete(r.missingSince, kind)
			continue
		}
		if r.missingSince[kind].IsZero() {
			r.missingSince[kind] = now
		}
		soon := min(r.discoveryInterval/30, time.Second)
		pause = min(pause, max(now.Sub(r.missingSince[kind]), soon))
		if r.countsAsMissing(kind, now) {
			versions[kind] = ""
		} else if before[kind] != "" {
			versions[kind] = before[kind]
		}
	}
	r.discoveryErr = err
	if err == nil {
		if r.client != client {
			r.client.close() // streams close their own connections
		}
		r.client = client
		r.versions = versions
		r.confirmMissing(now, versions)
	}
	for _, stream := range r.streams {
		holdEnd := &stream.cache.suspicion.End
		if rest := holdEnd.Sub(now); stream.cache.absent && rest > 0 {
			pause = min(pause, rest)
		}
		interrupted := (reconnected || err != nil) && !r.lastDiscovery.IsZero()
		if stream.cache.absent && interrupted && holdEnd.After(r.lastDiscovery) {
			*holdEnd = holdEnd.Add(now.Sub(r.lastDiscovery)) // the kind may not have been missing all the time
		}
		if err == nil && (reconnected || versions[stream.kind] == "" || before[stream.kind] != versions[stream.kind]) {
			stream.discovered.Notify() // also while a kind is missing, to end a hold
		}
	}
	r.lastDiscovery = now
	return pause
}

// countsAsMissing reports whether a kind that /apis does not list counts as missing. run.mu is held.
func (r *run) countsAsMissing(kind *kind, now time.Time) bool {
	hasObjects := slices.ContainsFunc(r.streams, func(stream *stream) bool {
		return stream.kind == kind && len(stream.cache.objects) > 0 && !stream.cache.absent
	})
	return !hasObjects || now.Sub(r.missingSince[kind]) >= r.settleTime
}

// takePending returns the contents to publish.
func (r *run) takePending(now time.Time) (batch registry.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch.Synced = !r.started && r.settled()
	r.started = r.started || batch.Synced
	batch.Health, batch.Unconfirmed = r.health(), r.unconfirmed()
	if r.started {
		r.reportNeverRead()
		for _, group := range slices.Sorted(maps.Keys(r.pending)) {
			if content, ready := r.pending[group](); ready {
				content.Group = group
				content.RemovalsObserved = !batch.Synced && batch.Health.State == sources.Healthy
				batch.Contents = append(batch.Contents, content)
				delete(r.pending, group)
			}
		}
		r.pending = maps.Collect(maps.All(r.pending)) // the map itself has grown with the first list
		r.saveNote(now)
	}
	batch.Next = r.discoveryInterval
	if len(r.pending) > 0 { // a hold may have ended
		batch.Next = min(batch.Next, 5*r.collectTime)
	}
	return batch
}

// areComplete reports whether all objects of some kinds that concern a Service, or allKeys, were read.
func (r *run) areComplete(kinds []*kind, key string) bool {
	return !slices.ContainsFunc(r.streams, func(stream *stream) bool {
		isSelected := key == allKeys || stream.namespace == "" || strings.HasPrefix(key, stream.namespace+"/")
		return isSelected && slices.Contains(kinds, stream.kind) && !stream.isComplete(key)
	})
}

// settled reports whether all readable kinds were read, and at least one was, unless the cluster has none.
func (r *run) settled() bool {
	anyRead, anyPresent := false, false
	for _, stream := range r.streams {
		if !stream.settled() {
			return false
		}
		anyRead = anyRead || stream.cache.hasList
		anyPresent = anyPresent || !stream.cache.absent
	}
	return r.client != nil && r.discoveryErr == nil && (anyRead || !anyPresent)
}

// health returns the health of the source. run.mu is held.
func (r *run) health() sources.Health {
	var problems, denied []string
	var refusal error
	failed := r.discoveryErr
	anyWell, anyPresent := false, false
	unreadPolicies := ""
	unconfirmed := 0
	var holdEnd time.Time
	isConnected := r.discoveryErr == nil || refused(r.discoveryErr).Code > 0
	if failed != nil {
		problems = append(problems, fmt.Sprintf("look for the kinds: %v", failed))
	}
	for _, stream := range r.streams {
		anyPresent = anyPresent || !stream.cache.absent
		switch {
		case stream.err == nil:
			anyWell = anyWell || stream.cache.hasList && !stream.cache.absent
		case stateOf(stream.err) == sources.Denied:
			denied = append(denied, stream.where())
			refusal = cmp.Or(refusal, stream.err)
			if stream.neverRead() {
				unreadPolicies = "; policies were never read, so Envoys refuse all requests: grant the right"
			}
		default:
			if isConnected || refused(stream.err).Code > 0 { // else all have the problem of the discovery
				problems = append(problems, fmt.Sprintf("%s: %v", stream.where(), stream.err))
			}
			failed = cmp.Or(failed, stream.err)
		}
		if r.started && stream.err == nil && stream.neverRead() {
			problems = append(problems, stream.neverReadReason())
		}
		if held := stream.cache.held(); len(held) > 0 {
			suspicion := stream.cache.suspicion
			outdated := ""
			if count := len(stream.cache.contentUnknown); count > 0 {
				outdated = fmt.Sprintf("; until then, objects made from %d of them are not updated", count)
			}
			unconfirmed += len(held)
			if suspicion.End.After(holdEnd) {
				holdEnd = suspicion.End
			}
			first := held[0]
			if len(held) > 1 {
				first += fmt.Sprintf(" and %d more", len(held)-1)
			}
			problems = append(problems, fmt.Sprintf("%s: %s held until %s UTC (%s): %s%s", stream.where(),
				words.Count(len(held), "object is", "objects are"), suspicion.End.UTC().Format(time.TimeOnly), first,
				suspicion.Why, outdated))
		}
	}
	if len(denied) > 0 {
		problems = append(problems, fmt.Sprintf("%s (%v)%s", missingRights(denied), refusal, unreadPolicies))
		failed = cmp.Or(failed, refusal)
	}
	health := sources.Health{
		State:       sources.Degraded,
		Message:     r.shownAddress + ": " + strings.Join(problems, "; "),
		Unconfirmed: unconfirmed,
		End:         holdEnd,
	}
	switch {
	case failed != nil && (!anyWell || !isConnected):
		health.State = stateOf(failed)
	case len(problems) > 0:
	case !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the objects"}
	case anyPresent:
		return sources.Health{State: sources.Healthy}
	default:
		return sources.Health{
			State:   sources.Healthy,
			Message: r.shownAddress + ": the cluster has no kind that is read: no CRD of Istio",
		}
	}
	return health
}

// unconfirmed returns the groups of held objects, with the reasons. run.mu is held.
func (r *run) unconfirmed() map[string]string {
	reasons := make(map[string]string)
	for _, stream := range r.streams {
		suspicion := stream.cache.suspicion
		reason := fmt.Sprintf("%s; missing objects stay until %s UTC", suspicion.Why,
			suspicion.End.UTC().Format(time.TimeOnly))
		for _, key := range stream.cache.held() {
			switch kind := stream.kind; {
			case kind.prefix != "":
				reasons[kind.prefix+key] = reason
			case kind.serviceOf != nil:
				reasons["Service/"+kind.serviceOf(metaNamed(key))] = reason
			case kind.reuse != nil:
				reasons[derive.Group] = reason
			}
		}
	}
	return reasons
}

// missingRights returns the text about missing permissions.
func missingRights(denied []string) string {
	return "no right to list and watch " + strings.Join(denied, ", ")
}
