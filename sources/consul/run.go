package consul

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/registry"
)

// run schedules the reads of one run. Each reading goroutine applies its answers to the state under the mutex. One
// goroutine publishes.
type run struct {
	publisher        Publisher
	catalog          catalog
	gate             *gate
	metrics          *metrics
	hasChangeQueries bool            // some watch slots are for change queries
	wakeup           registry.Wakeup // there is something to publish or report
	workers          *worker.Group

	mu    sync.Mutex
	state // guarded by mu
}

// Run publishes the services of Consul until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	return s.Read(ctx, newSinkPublisher(sink, s.mapper))
}

// Read passes the services of Consul to a publisher until ctx ends. Its errors are those of Run.
func (s *Source) Read(ctx context.Context, publisher Publisher) error {
	defer s.client.Close()
	stop, err := s.metrics.register(s.settings.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer stop()
	return newRun(s.settings, publisher, s.catalog, s.settings.MaxConcurrentWatches, s.metrics).loop(ctx)
}

func newRun(settings Settings, publisher Publisher, catalog catalog, slots int, metrics *metrics) *run {
	run := &run{
		publisher: publisher, catalog: catalog, metrics: metrics, wakeup: registry.NewWakeup(),
		state: state{
			settings: settings, limits: limits{maxServices, maxInstances},
			restored: make(map[string]bool), changedServices: make(map[string]bool),
		},
	}
	queried := 0 // scopes with change queries
	for _, scope := range settings.scopes() {
		if scope.answersChangeQueries() {
			queried++
		}
		run.scopes = append(run.scopes, &catalogScope{
			scope: scope, resetHold: settings.ResetHold, services: make(map[string]*service), nodes: newNodes(),
			changes: newChangeResults(),
		})
	}
	if slots > 0 {
		slots = max(1, slots-len(run.scopes)) // each query for names takes one
	}
	run.hasChangeQueries = slots > 0 && slots >= minSlotsForQueries*queried
	if run.hasChangeQueries {
		slots -= len(changeQueries) * queried
	}
	run.gate = newGate(settings, slots)
	return run
}

func (r *run) loop(ctx context.Context) error {
	recorded, complete := r.restore(r.publisher.LastNote(), time.Now())
	for _, name := range r.publisher.Groups(recorded, complete) {
		r.restored[name] = true
	}
	workers, ctx := worker.New(ctx)
	defer workers.Stop()
	r.workers = workers
	for _, scope := range r.scopes {
		workers.Go(func() { r.watchNames(ctx, scope) })
		workers.Go(func() { r.resync(ctx, scope) })
		workers.Go(func() { r.watchServers(ctx, scope) })
		if r.hasChangeQueries && scope.answersChangeQueries() {
			for _, query := range changeQueries {
				workers.Go(func() { r.watchChanges(ctx, scope, query) })
			}
		}
	}
	r.publish(ctx)
	return cmp.Or(workers.Wait(), ctx.Err())
}

// explain classifies an error of a read; nil if the source ended the read.
func (r *run) explain(err error) *trouble {
	failure := dial.Classify(err)
	switch failure.Kind {
	case dial.Canceled:
		return nil
	case dial.RateLimited:
		r.metrics.limited.Add(1)
		r.gate.pauseAll(max(failure.RetryAfter, time.Second))
	case dial.Denied:
		r.metrics.denied.Add(1)
	}
	return &trouble{failure.State(), err.Error(), requestFault(failure)}
}

// requestFault reports whether the request or the answer is at fault, and not the connection to Consul.
func requestFault(f dial.Failure) bool { return f.Kind == dial.Refused || f.Kind == dial.Garbled }

// A server that lost its leader answers stale reads and blocking queries with its old data, without an error. So the
// source asks the server when it last heard from the leader.

const (
	// serverInterval is the time between two requests. An election takes a second or two and is no outage: trouble
	// counts when two requests see it.
	serverInterval        = 5 * time.Second
	serverConfirmInterval = 2 * time.Second
	// pulseTimeout allows two requests, and the intervals before them, within 40 s.
	pulseTimeout = 15 * time.Second
)

// watchServers watches the servers of a scope, and its cluster, so that a later change of the cluster is a loss of
// data.
func (r *run) watchServers(ctx context.Context, scope *catalogScope) {
	var last *trouble
	silent := false
	for wait := serverInterval; worker.Wait(ctx, nil, wait) == nil; {
		failure, err := r.readServers(ctx, scope)
		wait = serverInterval
		wasSilent := silent
		silent = dial.IsSilent(err)
		switch {
		case silent: // blocking queries do not notice that Consul hangs
			err = &dial.Error{
				Failure: dial.Failure{Kind: dial.Unreachable}, Err: fmt.Errorf("the server does not answer: %w", err),
			}
			failure = r.explain(err)
		case err != nil && !wasSilent: // else the answer, an error, ends the silence
			continue // the watcher of the names meets the same
		}
		if failure != nil && last == nil {
			wait = serverConfirmInterval
		} else {
			r.mu.Lock()
			scope.serverTrouble = failure
			r.mu.Unlock()
			r.wakeup.Notify()
		}
		if silent && last != nil {
			scope.lifeline.Cut(err)
		}
		if last = failure; err != nil {
			continue
		}
		cluster, err := r.readClusterID(ctx, scope)
		if err != nil {
			continue
		}
		r.mu.Lock()
		if before := scope.clusterID; scope.namesRead { // the first names are compared with the record
			scope.observeCluster(cluster, time.Now())
			if before != scope.clusterID {
				r.recordChanged = true
				r.wakeup.Notify()
			}
		}
		r.mu.Unlock()
	}
}

// readServers returns the trouble of the servers; nil if they are well.
func (r *run) readServers(ctx context.Context, scope *catalogScope) (*trouble, error) {
	if !r.gate.wait(ctx) {
		return nil, ctx.Err()
	}
	ctx, cancel := dial.Within(ctx, pulseTimeout)
	defer cancel()
	pulse, err := r.catalog.pulse(ctx, scope.scope)
	if err != nil {
		return nil, dial.Explain(ctx, err)
	}
	r.metrics.vitals.Set(scope.String(), pulse)
	switch {
	case !pulse.KnownLeader:
		return &trouble{state: sources.Unreachable, message: fmt.Sprintf(
			"Consul has no leader: its answers are as old as that, %s or more", pulse.LastContact)}, nil
	case pulse.LastContact > r.settings.MaxStale:
		return &trouble{state: sources.Degraded, message: fmt.Sprintf(
			"the server that answers heard of its leader %s ago, more than maxStale (%s): the leader is asked instead",
			pulse.LastContact, r.settings.MaxStale)}, nil
	}
	return nil, nil
}

// usualLevel is the consistency of reads that prove no absence. While servers lag behind, the leader answers them.
func (r *run) usualLevel(scope *catalogScope) level {
	r.mu.Lock()
	defer r.mu.Unlock()
	if scope.serverTrouble != nil {
		return leaders
	}
	return usual
}

func (r *run) readClusterID(ctx context.Context, scope *catalogScope) (string, error) {
	if !r.gate.wait(ctx) {
		return "", ctx.Err()
	}
	ctx, cancel := dial.Within(ctx, shortTimeout)
	defer cancel()
	return r.catalog.cluster(ctx, scope.scope)
}

// identifyCluster adds the cluster to an answer that lacks instances. The answer comes first: it is then at least as
// old as the identity.
func (r *run) identifyCluster(ctx context.Context, service *service, answer *serviceAnswer) (err error) {
	r.mu.Lock()
	loses := service.loses(*answer, service.verdictOn(*answer))
	r.mu.Unlock()
	if loses {
		answer.Cluster, err = r.readClusterID(ctx, service.scope)
	}
	return err
}

// identifyClusterOfNames adds the cluster to a listing that lacks services, and to the first one, which is compared
// with the record.
func (r *run) identifyClusterOfNames(ctx context.Context, scope *catalogScope, listing *listing) (err error) {
	r.mu.Lock()
	first := !scope.namesRead
	loses := listing.Confirmed && scope.compare(*listing).Missing > 0
	r.mu.Unlock()
	if !first && !loses {
		return nil
	}
	listing.Cluster, err = r.readClusterID(ctx, scope)
	if ctx.Err() == nil && !loses {
		return nil // a first listing needs no cluster
	}
	return err
}

// witnesses is how many services are read to compare their nodes.
const witnesses = 3

// readWitnesses reads some of the remaining services when others are missing: if all of their nodes were created again,
// Consul lost its data, however high its index.
func (r *run) readWitnesses(ctx context.Context, scope *catalogScope, listing *listing) error {
	listing.nodes = make(judge.CreateIndexes)
	r.mu.Lock()
	names := scope.witnesses(*listing)
	r.mu.Unlock()
	count := 0
	var failure error
	for _, name := range names[:min(len(names), 2*witnesses)] {
		r.metrics.confirmations.Add(1)
		answer, err := r.readOnce(ctx, scope, name, confirmed)
		class := dial.Classify(err)
		if class.Kind == dial.Canceled {
			return err
		}
		if err != nil && !requestFault(class) {
			failure = err
		}
		if err != nil || len(answer.instances.list) == 0 {
			continue
		}
		maps.Copy(listing.nodes, answer.instances.nodes())
		if count++; count == witnesses {
			break
		}
	}
	if count > 0 {
		return nil
	}
	return failure
}
