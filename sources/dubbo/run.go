package dubbo

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	*state

	// read-only
	sink    sources.Sink
	wakeup  core.Wakeup
	ctx     context.Context //nolint:containedctx // of the lookups
	workers *worker.Group

	mapping mappings

	mu           sync.Mutex
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
	r := &run{state: newState(s), sink: sink, wakeup: core.NewWakeup()}
	r.connection.Message = notConnected
	r.mapping.turn = make(chan struct{}, 1)
	return r
}

func (r *run) loop(ctx context.Context) error {
	wanted := registry.Wanted{Consumers: r.settings.Mapping.Sidecars != nil, Notes: registry.NoNotes{}}
	core.Restore(r.sink, func(group string, published []*resource.Resource) {
		if strings.HasPrefix(group, sidecarGroup) {
			r.sidecars.Restore(group, published, func(service) bool { return true })
		} else {
			r.restore(group, published)
		}
	})
	r.Endpoints(func(id mapping.ID, restored knownEndpoint) {
		e := restored.Value
		wanted.Before = append(wanted.Before, registry.Known{
			Interface: id.Group(), Application: e.Instance, Address: e.Address, Port: int(e.Port),
		})
	})
	keeper, ok := r.sink.(sources.Keeper)
	switch {
	case !r.keepsNotes():
		r.suspicion = r.Resume(r.sink, time.Now())
	case ok:
		wanted.Notes = keeper
	}
	r.workers, r.ctx = worker.New(ctx)
	defer r.workers.Stop()
	r.workers.Go(func() { r.workers.Fail(r.registry.Watch(r.ctx, r, wanted)) }) // its error ends the run
	core.Publish(r.ctx, r.sink, r.wakeup, r.settings.Delay, r.gather)
	return r.workers.Wait()
}

// Parts stores the list of the parts of interfaces.
func (r *run) Parts(parts []registry.Part, err error) {
	defer r.update()()
	list := &r.lists[interfaceNames]
	if list.ignored || !list.take(err) {
		return
	}
	skipped, listed := map[string]bool{}, map[registry.Part]bool{}
	for _, key := range parts {
		if !r.settings.serves(key.Interface) {
			skipped[key.Interface] = true
			continue
		}
		iface := r.entry(key.Interface)
		listed[key], iface.listed = true, true
		if iface.parts[key] == nil {
			iface.parts[key] = &part{}
		}
	}
	list.skipped = len(skipped)
	for _, iface := range r.interfaces {
		for key := range iface.parts {
			if !listed[key] {
				delete(iface.parts, key)
				r.markChanged(key)
			}
		}
	}
}

// Registered stores the registrations of a part.
func (r *run) Registered(key registry.Part, registrations []registry.Registration, err error) {
	defer r.update()()
	iface := r.interfaces[key.Interface]
	if iface == nil || iface.parts[key] == nil {
		return
	}
	r.markChanged(key)
	if errors.Is(err, registry.ErrAbsent) {
		registrations, err = nil, nil
	}
	content := iface.parts[key]
	if !content.take(err) {
		return
	}
	content.registrations, content.addresses = registrations, nil
	for _, registration := range registrations {
		if listed, ok, err := parseProvider(key.Interface, registration); ok && err == nil {
			content.addresses = append(content.addresses, instanceScope(listed.Application, listed.Host, listed.Port))
		}
	}
}

// Applications stores the list of applications.
func (r *run) Applications(names []string, err error) {
	defer r.update()()
	list := &r.lists[applicationNames]
	if list.ignored || !list.take(err) {
		return
	}
	selected := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !r.settings.reads(name) })
	list.skipped = len(names) - len(selected)
	core.Sync(r.applications, selected, func(string) *application {
		return &application{instances: map[string]*instance{}}
	}, func(removed *application) {
		for _, instance := range removed.instances {
			r.drop(instance)
		}
	})
}

// Instances stores the list of the instances of an application.
func (r *run) Instances(name string, ids []string, err error) {
	defer r.update()()
	if listed := r.applications[name]; listed != nil && listed.take(err) {
		create := func(id string) *instance { return &instance{id: id, application: name} }
		core.Sync(listed.instances, ids, create, r.drop)
	}
}

// Instance stores an instance of an application.
func (r *run) Instance(name, id string, content provider.Instance, dubbo bool, err error) {
	defer r.update()()
	listed := r.applications[name]
	if listed == nil || listed.instances[id] == nil || errors.Is(err, registry.ErrAbsent) {
		return // the list of instances drops it
	}
	stored := listed.instances[id]
	if !stored.take(err) {
		stored.fail(err)
		return
	}
	if !dubbo {
		content = provider.Instance{}
	}
	if stored.dubbo, stored.Instance = dubbo, content; dubbo && content.Failing == "" {
		r.join(stored)
	} else {
		r.drop(stored)
	}
}

// Others stores the number of services of other frameworks.
func (r *run) Others(count int) {
	defer r.update()()
	r.otherServices = count
}

// Connection stores the state of the connection. A new one casts doubt on unlisted content.
func (r *run) Connection(connection registry.Connection) {
	defer r.update()()
	previous := r.connection
	r.connection = connection
	if !connection.Up {
		r.suspicion = r.suspicion.Leave(time.Now())
		return
	}
	if !previous.Up && !connection.Certain { // the first connection, too: endpoints may be from an earlier run
		r.suspectMissing(time.Now(), r.settings.Hold)
	}
	if connection.Fresh && r.reached {
		r.counters.sessions.Add(1)
	}
	r.reached = true
}

// Healed counts a change that no watch had reported.
func (r *run) Healed(string) { r.counters.healed.Add(1) }

// update starts a change of the state, which the returned function ends.
func (r *run) update() (end func()) {
	r.counters.reads.Add(1)
	r.mu.Lock()
	return func() {
		r.mu.Unlock()
		r.wakeup.Notify()
	}
}
