package dubbo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// run is one run of a source. It is the registry.Listener.
type run struct {
	// read-only
	*Source
	sink   sources.Sink
	wakeup core.Wakeup

	resolver resolver

	mu      sync.Mutex
	state   *state
	down    string    // why the registry cannot be reached; empty if it can
	trouble string    // a problem of a registry that can be reached
	denied  bool      // the registry refuses our credentials
	up      bool      // the registry was reached at some time
	asked   time.Time // since when only lookups are missing
	started bool      // something was published
	synced  bool      // everything was published

	left          map[string][]sources.LeftOut // by application, as last published
	begunSidecars bool                         // the Sidecars of an earlier run were updated
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

// notYet is the message before the first connection.
const notYet = "not connected yet"

func newRun(s *Source, sink sources.Sink) *run {
	r := &run{Source: s, sink: sink, wakeup: core.NewWakeup(), state: newState(s.mapper, s.place, s.settings), down: notYet}
	r.resolver.again = s.again
	r.resolver.all = make(map[revision]*lookup)
	r.resolver.mapping.turn = make(chan struct{}, 1)
	return r
}

func (r *run) loop(ctx context.Context) error {
	wanted := registry.Wanted{Consumers: r.consumers(), Notes: registry.NoNotes{}}
	if keeper, ok := r.sink.(sources.Keeper); ok && r.place == consulPlace {
		wanted.Notes = keeper
	}
	core.Restore(r.sink, func(group string, published []*resource.Resource) {
		if !r.state.restoreSidecar(group, published) {
			r.state.restore(group, published)
			for _, of := range r.mapper.Restore(published) {
				for _, e := range of.Endpoints {
					k := registry.Known{Interface: of.ID.Group(), Application: e.Instance, Address: e.Address, Port: int(e.Port)}
					wanted.Before = append(wanted.Before, k)
				}
			}
		}
	})
	if r.place != consulPlace {
		r.state.suspicion = r.state.Resume(r.sink, time.Now())
	}
	workers, ctx := worker.New(ctx)
	defer workers.Stop()
	r.resolver.ctx, r.resolver.workers = ctx, workers
	workers.Go(func() { workers.Fail(r.registry.Watch(ctx, r, wanted)) }) // its error ends the run
	core.Publish(ctx, r.sink, r.wakeup, r.settings.Delay, r.gather)
	return workers.Wait()
}

// consumers reports whether consumers are read.
func (r *run) consumers() bool { return r.settings.Mapping.Sidecars != nil }

func (r *run) Parts(all []registry.Part, err error) {
	r.change(func(s *state) { s.takeParts(all, err) })
}

func (r *run) Applications(names []string, err error) {
	r.change(func(s *state) { s.takeApplications(names, err) })
}

func (r *run) Registered(of registry.Part, all []registry.Registration, err error) {
	r.change(func(s *state) { s.take(of, all, err) })
}

func (r *run) Instances(name string, ids []string, err error) {
	r.change(func(s *state) { s.takeInstances(name, ids, err) })
}

func (r *run) Instance(application, id string, i provider.Instance, dubbo bool, err error) {
	r.change(func(s *state) {
		if a := s.applications[application]; a != nil && a.instances[id] != nil {
			r.takeInstance(a.instances[id], i, dubbo, err)
		}
	})
}

func (r *run) Others(count int) { r.change(func(s *state) { s.others = count }) }

func (r *run) Connection(c registry.Connection) {
	r.change(func(s *state) {
		r.denied = c.Denied
		if !c.Up {
			s.suspicion = s.suspicion.Leave(time.Now())
			r.down = c.Message
			return
		}
		r.trouble = c.Message
		if r.down != "" && !c.Certain { // also the first time, after a restart of ours
			s.connected(time.Now(), r.settings.Hold)
		}
		if c.Fresh && r.up {
			r.counters.sessions.Add(1)
		}
		r.down, r.up = "", true
	})
}

func (r *run) Healed(string) { r.counters.healed.Add(1) }

func (r *run) change(f func(*state)) {
	r.counters.reads.Add(1)
	r.mu.Lock()
	f(r.state)
	r.mu.Unlock()
	r.wakeup.Notify()
}
