package eureka

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/internal/worker"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// run is one run of a source. All of it is owned by its loop.
type run struct {
	*Source
	sink     sources.Sink
	follower *follower
	state    *state
	started  bool      // something was read
	resync   time.Time // when everything is to be read again
	failures int       // in a row
	kept     []byte
	settled  int // how often it had been decided what is believed when that was kept
}

// Run publishes what the Eureka has until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	stop, err := s.counts.Register(s.settings.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer stop()
	defer s.client.Close()
	r := &run{Source: s, sink: sink, state: newState(s.mapper, s.settings)}
	known := r.recall()
	r.follower = newFollower(s.client, s.counts, s.settings.Interval, known.Marks)
	r.follower.hold = s.settings.Hold
	r.follower.recall(known.Elsewhere)
	r.state.keys = known.Keys
	registry.Restore(sink, func(group string, published []*resource.Resource) {
		r.state.restore(mapping.ParseID(group), mapping.Restore(published), known.Doubts)
	})
	// A panic is a failure of the source.
	return worker.Do(func() error { return r.loop(ctx) })
}

func (r *run) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		wait := r.turn(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return ctx.Err()
}

// turn reads once, publishes what is different, and returns after which time to do so again.
func (r *run) turn(ctx context.Context) time.Duration {
	now := time.Now()
	all := !now.Before(r.resync)
	reading, err := r.follower.next(ctx, all)
	now = time.Now()
	if err == nil {
		err = advance(ctx, r.follower, r.state, reading, now)
	}
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		r.failures++
		r.sink.Report(sources.Health{State: registry.StateOf(err, client.ErrDenied), Message: err.Error()})
		// In a while, and not all tributaries at once.
		return time.Duration(float64(r.settings.Interval<<min(r.failures-1, 2)) * (0.75 + rand.Float64()/2)) //nolint:gosec // no secret
	}
	r.failures = 0
	if all {
		r.resync = now.Add(r.settings.Resync)
	}
	if contents := r.contents(); len(contents) > 0 {
		_ = r.sink.ReplaceAll(contents) // what is refused is shown by the status, and not ours to mend
	}
	if !r.started {
		r.started = true
		r.sink.Synced()
	}
	r.keep()
	r.sink.Report(r.health())
	if r.state.next.IsZero() {
		return r.settings.Interval
	}
	return min(r.settings.Interval, max(time.Millisecond, r.state.next.Sub(now)))
}

// contents returns what changed, as the sink takes it.
func (r *run) contents() (all []sources.Content) {
	s := r.state
	if len(s.dirty) == 0 { // nor has anything another name
		return nil
	}
	s.rename()
	opaque := map[mapping.ID]bool{}
	services := map[mapping.ID][]port{}
	for p, of := range s.services {
		opaque[p.ID] = opaque[p.ID] || of.opaque
		services[p.ID] = append(services[p.ID], p)
	}
	for id := range s.dirty {
		if opaque[id] {
			continue
		}
		delete(s.dirty, id)
		slices.SortFunc(services[id], port.compare)
		all = append(all, r.content(id, services[id]))
	}
	slices.SortFunc(all, func(a, b sources.Content) int { return strings.Compare(a.Group, b.Group) })
	return all
}

// content returns what a host has.
func (r *run) content(id mapping.ID, ports []port) sources.Content {
	c := sources.Content{
		Group: id.String(), LeftOut: r.state.leaves[id],
		Explained: r.state.whole && r.state.reading.same && !r.state.reading.outage,
	}
	taken := map[uint32]bool{}
	for _, p := range ports {
		of := r.state.services[p]
		place := r.place(p)
		c.Explained = c.Explained && !of.doubted
		c.Warnings = append(c.Warnings, of.warnings...)
		s := mapping.Service{ID: id, Secure: p.secure, Name: r.state.names[id], Place: place, Apps: of.apps, Port: of.port}
		for _, e := range of.Of() {
			s.Endpoints = append(s.Endpoints, e.Endpoint)
		}
		if taken[of.port.Number] && of.port.Number != 0 {
			registry.Add(&c, place, nil, fmt.Errorf("%s: port %d is the service's plain one already", place, of.port.Number))
			continue
		}
		taken[of.port.Number] = true
		one, warned, err := r.mapper.Entry(s)
		registry.Add(&c, place, warned, err, one)
	}
	return registry.Tidy(c)
}

// place is where a service is, for people.
func (r *run) place(p port) string {
	text := "eureka "
	if p.VIP != "" {
		text += "vip " + p.VIP
	}
	if p.VIP != "" && p.App != "" {
		text += " "
	}
	if p.App != "" {
		text += "app " + p.App
	}
	if p.secure {
		text += " (secure)"
	}
	return text
}

// shownOut is how many instances that are left out are named.
const shownOut = 3

// health says how the source is while it can read.
func (r *run) health() sources.Health {
	var problems []string
	if out := r.state.out; len(out) > 0 {
		problems = append(problems, out[:min(len(out), shownOut)]...)
		if more := len(out) - shownOut; more > 0 {
			problems = append(problems, fmt.Sprintf("and %d more instances", more))
		}
	}
	if n := r.state.others; n > 0 {
		problems = append(problems, fmt.Sprintf("%s at %s, and there are renewals at another server",
			words.Count(n, "instance expired", "instances expired"), r.follower.server))
	}
	if held := r.state.held(); held > 0 {
		problems = append(problems, fmt.Sprintf("%s for %s at most, as the server was started anew, or is another one", registry.HeldText(held),
			r.settings.Hold))
	}
	if len(problems) > 0 {
		return sources.Health{State: sources.Degraded, Message: strings.Join(problems, "; ")}
	}
	if len(r.state.services) == 0 {
		message := "there is no instance"
		if left := r.state.left; left > 0 {
			message = "none of " + words.Count(left, "application", "applications") + " is selected"
		}
		return sources.Health{State: sources.Healthy, Message: message}
	}
	if n := len(r.state.vouched); n > 0 {
		return sources.Health{State: sources.Healthy, Message: fmt.Sprintf("%s there, and not in the listing that %s has in its cache",
			words.Count(n, "instance is", "instances are"), r.follower.server)}
	}
	return sources.Health{State: sources.Healthy}
}

// note is what a run keeps for the next one, so that a restart or a reload believes no more than a run that goes on.
type note struct {
	Marks  view.Marks           `json:"marks"`
	Doubts map[string]time.Time `json:"doubts,omitempty"`
	// Keys are those of the instances in doubt.
	Keys map[mapping.Instance]wire.Key `json:"keys,omitempty"`
	// Elsewhere is what another server lists than the one that is followed.
	Elsewhere []wire.Key `json:"elsewhere,omitempty"`
}

// recall returns what an earlier run kept. Without it, we know as much as the first time.
func (r *run) recall() note {
	known := note{Marks: view.Marks{}}
	if keeper, ok := r.sink.(sources.Keeper); ok {
		if json.Unmarshal(keeper.Kept(), &known) != nil || known.Marks == nil {
			return note{Marks: view.Marks{}}
		}
	}
	return known
}

// keep keeps what the next run has to know, if that has changed. It has not if nothing was decided anew.
func (r *run) keep() {
	keeper, ok := r.sink.(sources.Keeper)
	if !ok || r.settled == r.state.settled {
		return
	}
	r.settled = r.state.settled
	text, err := json.Marshal(note{
		Marks: r.follower.signs(), Doubts: r.state.doubts(), Keys: r.state.doubtful(),
		Elsewhere: r.follower.keys(),
	})
	if err == nil && !bytes.Equal(text, r.kept) { // texts, numbers and times can be encoded
		r.kept = text
		keeper.Keep(text)
	}
}
