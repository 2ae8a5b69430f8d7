package dubbo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// counts are the counters of a source. They continue from one run to the next.
type counts struct {
	*sources.CounterSet
	reads, healed, sessions, resolved, unresolved sources.Counter
}

func newCounts() *counts {
	c := &counts{
		reads:    sources.Counter{Name: "reads_total", Help: "State changes taken in: reads, connection changes, lookups."},
		healed:   sources.Counter{Name: "healed_total", Help: "Nodes found changed by the resync compare without a watch event."},
		sessions: sources.Counter{Name: "sessions_lost_total", Help: "Sessions lost; everything was read again."},
		resolved: sources.Counter{Name: "resolved_total", Help: "Revisions whose services were found out."},
		unresolved: sources.Counter{
			Name: "unresolved_total", Help: "Failed attempts to find out what a revision of an application serves.",
		},
	}
	c.CounterSet = sources.NewCounters("tributary_dubbo_", &c.reads, &c.healed, &c.sessions, &c.resolved, &c.unresolved)
	return c
}

// run is one run of a source. It is the registry.Listener.
type run struct {
	// read-only
	*Source
	sink    sources.Sink
	wakeup  core.Wakeup
	ctx     context.Context //nolint:containedctx // of the lookups
	workers *worker.Group

	mapping mappings

	mu           sync.Mutex
	state        *state
	connection   registry.Connection
	reached      bool              // the registry was reached at some time
	lookupsSince time.Time         // since then only lookups are missing for the first publication
	started      bool              // something was published
	synced       bool              // the whole registry was published
	leftOut      []sources.LeftOut // instances of applications, as last published
}

// Run follows the registry and publishes its services until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	stop, err := s.counters.Register(s.settings.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer stop()
	return newRun(s, sink).loop(ctx)
}

// notConnected is the message before the first connection.
const notConnected = "not connected yet"

func newRun(s *Source, sink sources.Sink) *run {
	r := &run{Source: s, sink: sink, wakeup: core.NewWakeup(), state: newState(s.mapper, s.place, s.settings)}
	r.connection.Message = notConnected
	r.mapping.turn = make(chan struct{}, 1)
	return r
}

func (r *run) loop(ctx context.Context) error {
	wanted := registry.Wanted{Consumers: r.settings.Mapping.Sidecars != nil, Notes: registry.NoNotes{}}
	core.Restore(r.sink, func(group string, published []*resource.Resource) {
		if strings.HasPrefix(group, sidecarGroup) {
			r.state.sidecars.Restore(group, published, func(core.Service[mapping.ID]) bool { return true })
			return
		}
		r.state.restore(group, published)
		for _, service := range r.mapper.Restore(published) {
			for _, e := range service.Endpoints {
				wanted.Before = append(wanted.Before, registry.Known{
					Interface: service.ID.Group(), Application: e.Instance, Address: e.Address, Port: int(e.Port),
				})
			}
		}
	})
	keeper, ok := r.sink.(sources.Keeper)
	switch {
	case !r.keepsNotes():
		r.state.suspicion = r.state.Resume(r.sink, time.Now())
	case ok:
		wanted.Notes = keeper
	}
	r.workers, r.ctx = worker.New(ctx)
	defer r.workers.Stop()
	r.workers.Go(func() { r.workers.Fail(r.registry.Watch(r.ctx, r, wanted)) }) // its error ends the run
	core.Publish(r.ctx, r.sink, r.wakeup, r.settings.Delay, r.gather)
	return r.workers.Wait()
}

// Parts implements registry.Listener, as the following methods do.
func (r *run) Parts(parts []registry.Part, err error) {
	r.change(func(s *state) { s.takeParts(parts, err) })
}

func (r *run) Applications(names []string, err error) {
	r.change(func(s *state) { s.takeApplications(names, err) })
}

func (r *run) Registered(key registry.Part, registrations []registry.Registration, err error) {
	r.change(func(s *state) { s.take(key, registrations, err) })
}

func (r *run) Instances(name string, ids []string, err error) {
	r.change(func(s *state) { s.takeInstances(name, ids, err) })
}

func (r *run) Instance(name, id string, content provider.Instance, dubbo bool, err error) {
	r.change(func(s *state) {
		if a := s.applications[name]; a != nil && a.instances[id] != nil {
			r.takeInstance(a.instances[id], content, dubbo, err)
		}
	})
}

func (r *run) Others(count int) { r.change(func(s *state) { s.otherServices = count }) }

func (r *run) Connection(connection registry.Connection) {
	r.change(func(s *state) {
		previous := r.connection
		r.connection = connection
		if !connection.Up {
			s.suspicion = s.suspicion.Leave(time.Now())
			return
		}
		if !previous.Up && !connection.Certain { // the first connection, too: endpoints may be from an earlier run
			s.suspectMissing(time.Now(), r.settings.Hold)
		}
		if connection.Fresh && r.reached {
			r.counters.sessions.Add(1)
		}
		r.reached = true
	})
}

func (r *run) Healed(string) { r.counters.healed.Add(1) }

func (r *run) change(update func(*state)) {
	r.counters.reads.Add(1)
	r.mu.Lock()
	update(r.state)
	r.mu.Unlock()
	r.wakeup.Notify()
}
