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
	streams    []*stream
	ofServices *services       // nil if none are read
	derived    *derived        // nil if nothing is
	look       registry.Wakeup // to look for the kinds

	mu      sync.Mutex
	client  *api
	down    error // why the kinds are not known; nil if they are
	pending map[string]sources.Content
	started bool   // what can be read was, and is published
	kept    string // the note for the next run
}

func newRun(s *Source, sink sources.Sink) *run {
	r := &run{Source: s, sink: sink, wakeup: registry.NewWakeup(), look: registry.NewWakeup(), pending: make(map[string]sources.Content)}
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
		r.client.close()
	}()
	workers.Go(func() { r.discover(ctx) })
	for _, s := range r.streams {
		workers.Go(func() { s.follow(ctx) })
	}
	registry.Publish(ctx, r.sink, r.wakeup, r.delay, r.gather)
	if err := workers.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// recall takes over what an earlier run published and knew. What the settings no longer select is withdrawn with what is published first.
func (r *run) recall() {
	var notes map[string]note
	if k, ok := r.sink.(sources.Keeper); ok {
		_ = json.Unmarshal(k.Kept(), &notes) // without it we know as much as the first time
	}
	seen := make(map[string]uint64) // by resource, for namespaces that are read for the first time
	for where, n := range notes {
		resource, _, _ := strings.Cut(where, " ")
		seen[resource] = max(seen[resource], n.Seen)
	}
	for _, s := range r.streams {
		n, known := notes[s.where()]
		if s.note = n; !known {
			s.Seen = seen[s.resource()]
		}
	}
	for _, group := range r.sink.Groups() {
		owned := r.derived != nil && group == derive.Group
		if owned {
			r.derived.Inherited = true
		}
		for _, s := range r.streams {
			prefix := s.use.groups()
			key, is := strings.CutPrefix(group, prefix)
			if is && prefix != "" && (s.namespace == "" || strings.HasPrefix(key, s.namespace+"/")) {
				s.objects[key], owned = 0, true
			}
		}
		if !owned {
			r.pending[group] = sources.Content{Group: group}
		}
	}
}

// keep has what is known kept for the next run. run.mu is held.
func (r *run) keep() {
	notes := make(map[string]note, len(r.streams))
	for _, s := range r.streams {
		notes[s.where()] = s.note
	}
	text, _ := json.Marshal(notes) // times, numbers and texts
	if k, ok := r.sink.(sources.Keeper); ok && string(text) != r.kept {
		k.Keep(text)
		r.kept = string(text)
	}
}

// discover finds out which kinds the server has, again and again, until ctx ends. If that fails, it reads address and credentials anew.
func (r *run) discover(ctx context.Context) {
	retry, client := r.newBackOff(), (*api)(nil)
	defer func() { client.close() }()
	for ctx.Err() == nil {
		var versions map[string]string
		var err error
		if client == nil {
			client, err = r.cluster.connect()
		}
		if err == nil {
			versions, err = lookAt(ctx, client, r.streams)
		}
		if ctx.Err() != nil {
			return
		}
		r.found(client, versions, err)
		wait := r.lookEvery
		if err == nil {
			retry.Reset()
		} else {
			client.close()
			client, wait = nil, retry.NextBackOff()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-r.look:
		}
	}
}

// found takes over which versions there are, by resource, and the client that knows; or that they are not known.
func (r *run) found(client *api, versions map[string]string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wakeup.Notify()
	wasDown := r.down != nil
	if r.down = err; err != nil {
		for _, s := range r.streams {
			if s.Absent {
				s.hold(time.Now().Add(r.settings.Hold), s.Why) // nobody knows whether the kind is missing all the time
			}
		}
		return
	}
	if r.client != client {
		defer r.client.close()
	}
	r.client = client
	for _, s := range r.streams {
		version := versions[s.resource()]
		if version == "" && s.version != "" && s.whole && s.failures == 0 {
			continue // the server contradicts itself
		}
		for _, key := range s.setAbsent(time.Now(), version == "", r.settings.Hold) {
			s.use.drop(key)
		}
		if s.Absent {
			s.err = nil
		}
		if wasDown || s.version != version {
			s.version = version
			s.news.Notify()
		}
	}
}

// gather returns what there is to hand on.
func (r *run) gather(now time.Time) (b registry.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.Synced = !r.started && r.settled()
	r.started = r.started || b.Synced
	b.Health = r.health()
	if r.started {
		for _, group := range slices.Sorted(maps.Keys(r.pending)) {
			b.Contents = append(b.Contents, r.pending[group])
		}
		r.pending = make(map[string]sources.Content) // an emptied one is as large as it ever was
		if r.ofServices != nil {
			b.Contents = append(b.Contents, r.ofServices.contents(now)...)
		}
		if r.derived != nil {
			b.Contents = append(b.Contents, r.derived.contents(now)...)
		}
		r.keep()
	}
	for i := range b.Contents {
		b.Contents[i].Explained = !b.Synced && b.Health.State == sources.Healthy
	}
	var next time.Time
	for _, s := range r.streams {
		if s.unsure.After(now) {
			next = registry.Earlier(next, s.unsure)
		}
	}
	b.Next = registry.Wait(next, now)
	return b
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
func (r *run) health() (h sources.Health) {
	var problems []string
	var denied []*stream
	well, absent, failed := 0, 0, r.down
	if failed != nil {
		problems = append(problems, fmt.Sprintf("look for the kinds: %v", failed))
	}
	for _, s := range r.streams {
		switch {
		case s.err != nil && stateOf(s.err) == sources.Denied:
			denied = append(denied, s)
		case s.err != nil:
			problems = append(problems, fmt.Sprintf("%s: %v", s.where(), s.err))
			failed = cmp.Or(failed, s.err)
		case s.Absent:
			absent++
		case s.whole:
			well++
		}
		if n := s.held(); n > 0 {
			problems = append(problems, fmt.Sprintf("%s: %s held until %s UTC: %s", s.where(), words.Count(n, "object is", "objects are"),
				s.Until.UTC().Format(time.TimeOnly), s.Why))
		}
	}
	if len(denied) > 0 {
		problems = append(problems, fmt.Sprintf("%s (%v)", deniedText(denied), denied[0].err))
		failed = cmp.Or(failed, denied[0].err)
	}
	switch {
	case failed != nil && (well == 0 || r.down != nil && codeOf(r.down) == 0):
		h.State = stateOf(failed)
	case len(problems) > 0:
		h.State = sources.Degraded
	case !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the objects"}
	case absent < len(r.streams):
		return sources.Health{State: sources.Healthy}
	default:
		h.State, problems = sources.Healthy, []string{"the cluster has no kind that is read: no CRD of Istio"}
	}
	h.Message = r.shown + ": " + strings.Join(problems, "; ")
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
