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
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/registry"
)

// counts are the counters of a source. They continue from one run to the next.
type counts struct {
	*sources.CounterSet
	reads, healed, sessions, resolved, unresolved sources.Counter
}

func newCounts() *counts {
	counters := &counts{
		reads: sources.Counter{Name: "reads_total", Help: "State changes taken in: reads, connection changes, lookups."},
		healed: sources.Counter{
			Name: "healed_total", Help: "Nodes found changed by the resync compare without a watch event.",
		},
		sessions: sources.Counter{Name: "sessions_lost_total", Help: "Sessions lost; everything was read again."},
		resolved: sources.Counter{Name: "resolved_total", Help: "Revisions of applications with services that were found."},
		unresolved: sources.Counter{
			Name: "unresolved_total", Help: "Failed attempts to find the services of a revision of an application.",
		},
	}
	counters.CounterSet = sources.NewCounters("tributary_dubbo_", &counters.reads, &counters.healed, &counters.sessions,
		&counters.resolved, &counters.unresolved)
	return counters
}

// run is one run of a source. It is the backend.Listener.
type run struct {
	*state

	// read-only
	sink    sources.Sink
	wakeup  registry.Wakeup
	ctx     context.Context //nolint:containedctx // of the lookups
	workers *worker.Group

	mapping *backend.MappingCache

	mu           sync.Mutex
	connection   backend.Connection
	reached      bool      // at some time
	lookupsSince time.Time // since then only lookups are missing for the first publication
	started      bool      // something was published
	synced       bool      // the whole registry was published
	leftOutCount int       // of instances of applications, as last published
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

func newRun(source *Source, sink sources.Sink) *run {
	started := &run{
		state: newState(source), sink: sink, wakeup: registry.NewWakeup(), mapping: backend.NewMappingCache(source.registry),
	}
	started.connection.Message = notConnected
	return started
}

func (r *run) loop(ctx context.Context) error {
	wanted := backend.Wanted{Consumers: r.settings.Mapping.Sidecars != nil, Notes: backend.NoNotes{}}
	registry.Restore(r.sink, func(group string, published []*resource.Resource) {
		if strings.HasPrefix(group, sidecarGroup) {
			r.sidecars.Restore(group, published, nil)
		} else {
			r.restore(group, published)
		}
	})
	r.Endpoints(func(serviceID mapping.ID, restored registry.Known) {
		endpoint := restored.Value
		wanted.Before = append(wanted.Before, backend.PublishedProvider{
			Interface: serviceID.Group(), Application: endpoint.Instance, Address: endpoint.Address, Port: int(endpoint.Port),
		})
	})
	keeper, ok := r.sink.(sources.Keeper)
	switch {
	case !r.keepsNotes():
		r.Resume(r.sink, time.Now())
	case ok:
		wanted.Notes = keeper
	}
	r.workers, r.ctx = worker.New(ctx)
	defer r.workers.Stop()
	r.workers.Go(func() { r.workers.Fail(r.registry.Watch(r.ctx, r, wanted)) }) // its error ends the run
	registry.Publish(r.ctx, r.sink, r.wakeup, r.settings.Delay, r.gather)
	return r.workers.Wait()
}

// Parts stores the list of the parts of interfaces.
func (r *run) Parts(parts []backend.Part, err error) {
	defer r.update()()
	nameList := &r.lists[interfaceNames]
	if nameList.ignored || !nameList.take(err) {
		return
	}
	distinct, listed := map[string]bool{}, map[backend.Part]bool{}
	for _, partKey := range parts {
		distinct[partKey.Interface] = true
		if !r.settings.serves(partKey.Interface) {
			continue
		}
		dubboInterface := r.entry(partKey.Interface)
		listed[partKey], dubboInterface.listed = true, true
		if dubboInterface.parts[partKey] == nil {
			dubboInterface.parts[partKey] = &part{}
		}
	}
	nameList.total = len(distinct)
	for _, dubboInterface := range r.interfaces {
		for partKey := range dubboInterface.parts {
			if !listed[partKey] {
				delete(dubboInterface.parts, partKey)
				r.markChanged(partKey)
			}
		}
	}
}

// Registered stores the registrations of a part.
func (r *run) Registered(partKey backend.Part, registrations []backend.Registration, err error) {
	defer r.update()()
	dubboInterface := r.interfaces[partKey.Interface]
	if dubboInterface == nil || dubboInterface.parts[partKey] == nil {
		return
	}
	r.markChanged(partKey)
	absent := errors.Is(err, backend.ErrAbsent)
	if absent {
		registrations, err = nil, nil
	}
	content := dubboInterface.parts[partKey]
	if !content.take(err) {
		return
	}
	content.absent, content.registrations, content.addresses = absent, registrations, nil
	for _, registration := range registrations {
		listed, ok, err := parseProvider(partKey.Interface, registration)
		if ok && err == nil && registration.Failing == "" {
			content.addresses = append(content.addresses, instanceScope(listed.Application, listed.Host, listed.Port))
		}
	}
}

// Applications stores the list of applications.
func (r *run) Applications(names []string, err error) {
	defer r.update()()
	nameList := &r.lists[applicationNames]
	if nameList.ignored || !nameList.take(err) {
		return
	}
	selected := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !r.settings.reads(name) })
	nameList.total = len(names)
	backend.Sync(r.applications, selected, func(string) *application {
		return &application{instances: map[string]*instance{}}
	}, func(removed *application) {
		for _, instance := range removed.instances {
			r.drop(instance)
		}
	})
}

// Instances stores the list of the instances of an application.
func (r *run) Instances(applicationName string, instanceIDs []string, err error) {
	defer r.update()()
	if listed := r.applications[applicationName]; listed != nil && listed.take(err) {
		create := func(instanceID string) *instance {
			return &instance{id: instanceID, application: applicationName}
		}
		backend.Sync(listed.instances, instanceIDs, create, r.drop)
	}
}

// Instance stores an instance of an application.
func (r *run) Instance(applicationName, instanceID string, content provider.Instance, dubbo bool, err error) {
	defer r.update()()
	listed := r.applications[applicationName]
	if listed == nil || listed.instances[instanceID] == nil {
		return
	}
	stored := listed.instances[instanceID]
	if errors.Is(err, backend.ErrAbsent) && stored.settled() {
		return // the list of instances drops it
	}
	if !stored.take(err) {
		stored.fail(err)
		return
	}
	if !dubbo {
		content = provider.Instance{}
	}
	if stored.Instance = content; dubbo && content.Failing == "" {
		r.join(stored)
	} else {
		r.drop(stored)
	}
}

// CountOthers stores the number of services of other frameworks.
func (r *run) CountOthers(count int) {
	defer r.update()()
	r.otherServices = count
}

// Connection stores the state of the connection. A new one casts doubt on unlisted content.
func (r *run) Connection(connection backend.Connection) {
	defer r.update()()
	previous := r.connection
	r.connection = connection
	if !connection.Up {
		r.Leave(time.Now())
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
