package nacos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/nacos/client"
	"tributary/sources/nacos/mapping"
	"tributary/sources/registry"
)

// run is one run of a source. It is the client.Listener.
type run struct {
	// read-only
	*Source
	sink sources.Sink
	bell registry.Bell

	mu      sync.Mutex
	state   *state
	down    error // why Nacos cannot be reached; nil if it can
	started bool  // what can be read was, and is published
	synced  bool  // each group was read
}

// Run publishes what the Nacos has until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	stop, err := s.counts.Register(s.settings.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer stop()
	r := &run{Source: s, sink: sink, bell: registry.NewBell(), state: newState(s.mapper, s.settings.Groups, s.address.Place), down: errNotYet}
	registry.Restore(sink, func(group string, published []*resource.Resource) {
		k := keyOf(group)
		if !slices.Contains(s.settings.Groups, k.group) || !s.settings.selects(k.service) {
			r.state.withdraw(k)
			return
		}
		r.state.restore(k, mapping.Restore(published))
	})
	workers, ctx := worker.New(ctx)
	defer workers.Stop()
	workers.Go(func() {
		workers.Fail(s.watcher.Watch(ctx, client.Watched{
			Groups: s.settings.Groups, Selects: func(_, service string) bool { return s.settings.selects(service) }, Passed: r.passed,
			Interval: s.settings.Interval, Resync: s.settings.Resync,
		}, r))
	})
	registry.Publish(ctx, r.sink, r.bell, r.settings.Delay, r.gather)
	return workers.Wait()
}

var errNotYet = errors.New("not connected yet")

func (r *run) change(f func(*state)) {
	r.mu.Lock()
	f(r.state)
	r.mu.Unlock()
	r.bell.Ring()
}

// Connection implements client.Listener.
func (r *run) Connection(err error) {
	r.change(func(s *state) {
		r.down = err
		if err != nil {
			s.disconnected(time.Now())
			return
		}
		r.counts.connections.Add(1)
		s.connected(time.Now(), r.settings.Hold)
	})
}

// Services implements client.Listener.
func (r *run) Services(group string, names []string, err error) {
	r.change(func(s *state) { s.takeNames(group, names, err) })
}

// Instances implements client.Listener.
func (r *run) Instances(group, service string, all []client.Instance, warnings []string, err error) {
	r.counts.told.Add(1)
	r.change(func(s *state) { s.takeInstances(key{group, service}, all, warnings, err) })
}

// passed notes what names of a group are not selected.
func (r *run) passed(group string, names []string) {
	var now passed
	for _, name := range names {
		if isDubbos(name) {
			now.dubbo++
		} else {
			now.others++
		}
	}
	r.mu.Lock()
	news := r.state.passed[group] != now
	r.state.passed[group] = now
	r.mu.Unlock()
	if news {
		r.bell.Ring()
	}
}

// Healed implements client.Listener.
func (r *run) Healed(string, string) { r.counts.healed.Add(1) }
