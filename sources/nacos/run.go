package nacos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/nacos/client"
	"tributary/sources/registry"
)

// run is one run of a source. It is the client.Listener.
type run struct {
	// read-only
	*Source
	sink   sources.Sink
	wakeup registry.Wakeup

	mu      sync.Mutex
	state   *state
	down    error // of the connection
	started bool  // all readable services were read and published
	synced  bool  // each group was read
}

// Run publishes the services of the Nacos until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	stop, err := s.counts.Register(s.settings.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer stop()
	run := &run{
		Source: s, sink: sink, wakeup: registry.NewWakeup(), state: newState(s.mapper, s.settings), down: errNotYet,
	}
	registry.Restore(sink, func(group string, published []*resource.Resource) {
		run.state.restore(group, published, s.settings)
	})
	run.state.Resume(sink, time.Now())
	workers, ctx := worker.New(ctx)
	defer workers.Stop()
	workers.Go(func() {
		workers.Fail(s.watcher.Watch(ctx, client.Watched{
			Groups: s.settings.Groups, Selects: func(_, service string) bool { return s.settings.selects(service) },
			Skipped:  run.skipped,
			Interval: s.settings.Interval, Resync: s.settings.Resync,
		}, run))
	})
	registry.Publish(ctx, run.sink, run.wakeup, run.settings.Delay, run.gather)
	return workers.Wait()
}

var errNotYet = errors.New("not connected yet")

func (r *run) change(f func(*state)) {
	r.mu.Lock()
	f(r.state)
	r.mu.Unlock()
	r.wakeup.Notify()
}

func (r *run) Connection(err error) {
	r.change(func(state *state) {
		r.down = err
		if err != nil {
			state.Leave(time.Now())
			return
		}
		r.counts.connections.Add(1)
		state.Return(time.Now(), r.settings.Hold) // services and instances may still register again
	})
}

func (r *run) Services(group string, names []string, err error) {
	r.change(func(s *state) { s.takeNames(group, names, err) })
}

func (r *run) Instances(group, service string, instances []client.Instance, warnings []string, err error) {
	r.counts.reads.Add(1)
	r.change(func(s *state) { s.takeInstances(key{group, service}, instances, warnings, err) })
}

// skipped notes the names of a group that are not selected.
func (r *run) skipped(group string, names []string) {
	dubbo := 0
	for _, name := range names {
		if isDubboName(name) {
			dubbo++
		}
	}
	skipped := len(names) - dubbo
	r.mu.Lock()
	g := r.state.groups[group]
	news := g.dubbo != dubbo || g.skipped != skipped
	g.dubbo, g.skipped = dubbo, skipped
	r.mu.Unlock()
	if news {
		r.wakeup.Notify()
	}
}

func (r *run) Healed(string, string) { r.counts.healed.Add(1) }

// gather returns the contents to publish.
func (r *run) gather(now time.Time) (batch registry.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.state
	if !r.started {
		if r.down != nil || !state.settled() {
			return registry.Batch{Health: r.health(now), Next: time.Hour, Note: state.Note()}
		}
		r.started = true
	}
	if !r.synced && state.complete() {
		r.synced, batch.Synced = true, true
	}
	state.RemovalsObserved = r.down == nil && state.Suspicion.End.IsZero()
	batch.Contents = state.Contents(now)
	batch.Next = registry.Wait(state.Next(), now)
	batch.Health, batch.Note, batch.Unconfirmed = r.health(now), state.Note(), state.Unconfirmed()
	return batch
}

// health returns the health of the source. The caller holds mu.
func (r *run) health(now time.Time) sources.Health {
	state := r.state
	if errors.Is(r.down, errNotYet) {
		return sources.Health{State: sources.Starting, Message: r.down.Error()}
	}
	if r.down != nil {
		return sources.Health{State: registry.StateOf(r.down, client.ErrDenied), Message: r.down.Error()}
	}
	problems, everything, first := state.problems()
	if everything {
		return sources.Health{State: registry.StateOf(first, client.ErrDenied), Message: strings.Join(problems, "; ")}
	}
	var end time.Time
	_, unlisted := state.Services()
	if unlisted > 0 {
		text := registry.HeldText(unlisted, state.HeldServices())
		if state.Suspicion.Holds(now) {
			end = state.Suspicion.End
			text += " until " + end.UTC().Format(time.TimeOnly) + " UTC at the latest, as Nacos was away"
		}
		problems = append(problems, text)
	}
	switch {
	case len(problems) > 0:
		return sources.Health{
			State: sources.Degraded, Message: strings.Join(problems, "; "), Unconfirmed: unlisted, End: end,
		}
	case !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the services"}
	}
	return sources.Health{
		State: sources.Healthy,
		Message: state.emptyText(fmt.Sprintf("namespace %s, group %s", r.address.NamespaceName(),
			strings.Join(r.settings.Groups, ", "))),
	}
}
