package consul

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/worker"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/consul/mapping"
)

// world is a Consul of several domains that knows no HTTP, and all that a run publishes of it.
type world struct {
	t *testing.T

	mu            sync.Mutex
	domains       map[scope]*fakeDomain
	changed       chan struct{}
	reads         map[string]int // by service
	totalReads    int
	listed        int // reads of names
	rightsQueries int // questions about the rights of strangers
	mostReads     int // at the same time
	nowReads      int
	wait          time.Duration // after which a query that waits is answered
	bounds        limits        // of the run; the usual ones if empty
	places        int           // of the run, for watches; the usual ones if 0
	settings      Settings      // of the run
	stop          func()        // ends the run; its services are those of an earlier run then
	slowNames     time.Duration // how much later than other answers those with names come

	published      map[string][]mapping.Service    // nil for withdrawn services
	served         map[string][]*resource.Resource // their objects, with earlier ones that stay
	times          map[string]int                  // how often each was published
	state          sources.Health
	unconfirmed    map[string]string  // reasons, by service
	reportedSynced bool               // synced
	old            []string           // groups of an earlier run
	note           []byte             // its saved note
	blind          bool               // it does not answer the witnesses
	mute           error              // for questions about rights
	nameless       error              // for those which cluster it is
	refused        error              // for every service
	odd            map[string]error   // the same, for some
	lags           map[string]reading // stale answers of a lagging server, for queries at any server
	level          level              // of the last read of a service that did not wait
}

type fakeDomain struct {
	index      uint64
	wipes      int // which end the queries that wait
	services   map[string]instances
	indexes    map[string]uint64
	fails      error
	pulseFails error         // of pulses only
	hangs      bool          // it accepts requests, and answers none
	slow       time.Duration // of its answer to a pulse
	hides      bool          // as from a token without rights
	skips      string        // the service that is not among the names
	pulse      dial.Pulse
	cluster    string          // which one it is; empty if it does not tell
	nodes      map[string]bool // those that the token may see; nil for all
	// shows are the services visible without a token; nil if a token is sent.
	shows map[string]bool
}

func newWorld(t *testing.T, domains ...scope) *world {
	w := &world{
		t: t, domains: map[scope]*fakeDomain{}, changed: make(chan struct{}), reads: map[string]int{},
		published: map[string][]mapping.Service{}, served: map[string][]*resource.Resource{}, times: map[string]int{}, wait: 5 * time.Minute,
	}
	for _, d := range append(domains, scope{}) {
		w.domains[d] = &fakeDomain{
			pulse: dial.Pulse{KnownLeader: true}, index: 100, services: map[string]instances{},
			indexes: map[string]uint64{},
		}
	}
	return w
}

// change changes a domain.
func (w *world) change(d scope, f func(*fakeDomain)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.domains[d].index++
	f(w.domains[d])
	close(w.changed)
	w.changed = make(chan struct{})
}

// put makes instances all that there are of a service.
func (w *world) put(name string, i instances) {
	w.change(local, func(f *fakeDomain) { f.set(name, i) })
}

// set is put with instances of IDs. Without any, the service is listed nevertheless.
func (w *world) set(name string, ids ...string) { w.put(name, instancesWithIDs(ids...)) }

// wipe has Consul lose its data, and ends an outage. It goes on at index, with content.
func (w *world) wipe(index uint64, content ...func(*fakeDomain)) {
	w.change(local, func(f *fakeDomain) {
		f.fails = nil
		f.wipe()
		f.index = index
		for _, fill := range content {
			fill(f)
		}
	})
}

func (w *world) remove(name string) { w.change(local, func(f *fakeDomain) { f.remove(name) }) }
func (w *world) fail(err error)     { w.change(local, func(f *fakeDomain) { f.fails = err }) }

// locked calls f under the lock of w.
func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// indexOf is that of an answer about a service. Of one that it does not know, Consul says that of all services.
func (f *fakeDomain) indexOf(name string) uint64 {
	if index, changed := f.indexes[name]; changed {
		return index
	}
	return f.index
}

func (f *fakeDomain) set(name string, i instances) { f.services[name], f.indexes[name] = i, f.index }

func (f *fakeDomain) remove(name string) {
	delete(f.services, name)
	f.indexes[name] = f.index
}

func (f *fakeDomain) wipe() {
	clear(f.services)
	clear(f.indexes)
	f.index = 2
	f.wipes++
}

// ask answers a query when read has something newer.
func (w *world) ask(ctx context.Context, d scope, q query, read func(*fakeDomain) (index uint64)) error {
	deadline := time.NewTimer(w.wait)
	defer deadline.Stop()
	w.mu.Lock()
	w.nowReads++
	w.mostReads = max(w.mostReads, w.nowReads)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.nowReads--
		w.mu.Unlock()
	}()
	for wipes := -1; ; {
		w.mu.Lock()
		f, changed := w.domains[d], w.changed
		if f.hangs {
			w.mu.Unlock()
			if err := w.hang(ctx, d); err != nil {
				return err
			}
			continue
		}
		err, index := f.fails, read(f)
		if wipes >= 0 && wipes != f.wipes {
			err = cmp.Or[error](err, errDown)
		}
		wipes = f.wipes
		w.mu.Unlock()
		if err != nil || q.index == 0 || index > q.index { // a query that begins with an index of the future waits, too
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return nil
		}
	}
}

func (w *world) services(ctx context.Context, d scope, q query) (l listing, err error) {
	w.mu.Lock()
	w.listed++
	w.mu.Unlock()
	err = w.ask(ctx, d, q, func(f *fakeDomain) uint64 {
		l = listing{names: map[string][]string{}, Answer: judge.Answer{Index: f.index, Confirmed: q.level == confirmed, Filtered: f.hides}}
		l.Anonymous = f.shows != nil
		for name, i := range f.services {
			if !f.hides && name != f.skips && f.visible(name) && (len(i.list) == 0 || len(f.shown(i).list) > 0) {
				l.names[name] = nil
			}
		}
		l.Filtered = l.Filtered || f.nodes != nil
		return l.Index
	})
	w.mu.Lock()
	slow := w.slowNames
	w.mu.Unlock()
	if slow > 0 && q.index == 0 {
		time.Sleep(slow)
	}
	return l, err
}

func (w *world) service(ctx context.Context, d scope, name string, q query) (r reading, err error) {
	w.mu.Lock()
	w.reads[name]++
	w.totalReads++
	refused := cmp.Or(w.refused, w.odd[name])
	late, lags := w.lags[name]
	if q.index == 0 {
		w.level = q.level
	}
	w.mu.Unlock()
	if refused != nil {
		return r, refused
	}
	if lags && q.level == usual && q.index == 0 {
		return late, nil
	}
	err = w.ask(ctx, d, q, func(f *fakeDomain) uint64 {
		r = reading{instances: f.services[name], Answer: judge.Answer{Index: f.indexOf(name), Confirmed: q.level == confirmed}}
		if f.hides {
			r.instances, r.Filtered = instances{}, q.index == 0
		}
		if f.nodes != nil {
			r.Filtered = q.index == 0
			r.instances = f.shown(r.instances)
		}
		if r.Anonymous = f.shows != nil; !f.visible(name) {
			r.instances = instances{}
		}
		return r.Index
	})
	return r, err
}

func (w *world) changeItems(ctx context.Context, d scope, question string, q query) (items changeItems, index uint64, err error) {
	if w.blind {
		return nil, 0, errDenied
	}
	err = w.ask(ctx, d, q, func(f *fakeDomain) uint64 {
		items = changeItems{}
		for name, i := range f.services {
			for _, serviceEntry := range i.list {
				if question == nodesQuery {
					items.add("", serviceEntry.Node.Node, serviceEntry.Node.Address)
					continue
				}
				for _, c := range serviceEntry.Checks {
					if c.Status == question {
						items.add(name, serviceEntry.Node.Node, serviceEntry.Service.ID+c.CheckID)
					}
				}
			}
		}
		index = f.index
		return f.index
	})
	return items, index, err
}

// hang waits until a domain no longer hangs, or the query ends. A real query has a time limit.
func (w *world) hang(ctx context.Context, d scope) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.wait+blockingGrace, context.DeadlineExceeded)
	defer cancel()
	for {
		w.mu.Lock()
		hangs, changed := w.domains[d].hangs, w.changed
		w.mu.Unlock()
		if !hangs {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *world) cluster(ctx context.Context, d scope) (string, error) {
	if err := w.hang(ctx, d); err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.domains[d].cluster, cmp.Or(w.domains[d].fails, w.nameless)
}

func (w *world) pulse(ctx context.Context, d scope) (dial.Pulse, error) {
	w.mu.Lock()
	slow := w.domains[d].slow
	w.mu.Unlock()
	if err := cmp.Or(worker.Wait(ctx, nil, slow), w.hang(ctx, d)); err != nil {
		return dial.Pulse{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.domains[d].pulse, cmp.Or(w.domains[d].fails, w.domains[d].pulseFails)
}

// shown are the instances on nodes that the token may see.
func (f *fakeDomain) shown(i instances) instances {
	if f.nodes == nil {
		return i
	}
	return newInstances(slices.DeleteFunc(slices.Clone(i.list), func(e *api.ServiceEntry) bool { return !f.nodes[e.Node.Node] }))
}

func (f *fakeDomain) visible(name string) bool { return f.shows == nil || f.shows[name] }

func (w *world) mayRead(_ context.Context, d scope, anonymous bool, rights []dial.Right) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fakeDomain := w.domains[d]
	w.rightsQueries++ // by whomever
	if w.mute != nil {
		return false, w.mute
	}
	for _, right := range rights {
		if !anonymous {
			if fakeDomain.hides || fakeDomain.nodes != nil && right.Resource == "node" && !fakeDomain.nodes[right.Name] {
				return false, fakeDomain.fails
			}
			continue
		}
		if fakeDomain.shows != nil && !fakeDomain.shows[right.Name] && (right.Resource == "service" || right.Name == "") {
			return false, fakeDomain.fails
		}
	}
	return true, fakeDomain.fails
}

// Service implements mapper.
func (w *world) Service(name string, services []mapping.Service) sources.Content {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published[name] = services
	w.times[name]++
	se := &networking.ServiceEntry{Hosts: []string{"x"}, Resolution: networking.ServiceEntry_STATIC}
	for _, s := range services {
		for _, e := range s.Entries {
			se.Endpoints = append(se.Endpoints, &networking.WorkloadEntry{
				Address: e.Service.Address,
				Ports:   map[string]uint32{"p": uint32(e.Service.Port)},
			})
		}
	}
	if len(services) == 0 {
		return sources.Content{Group: name}
	}
	object, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Namespace: "n", Name: name}}, se)
	require.NoError(w.t, err)
	return sources.Content{Group: name, Resources: []*resource.Resource{object}}
}

func (w *world) ReplaceAll(contents []sources.Content) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range contents {
		if len(c.Rejects) == 0 { // a rejected group keeps its objects
			w.served[c.Group] = c.Resources
		}
	}
	return nil
}

// Published implements sources.Recaller.
func (w *world) Published(group string) []*resource.Resource {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served[group]
}

// Exact implements sources.Recaller.
func (w *world) Exact(string) bool { return true }

// endpoints returns the served addresses of a service, which are the IDs of its instances.
func (w *world) endpoints(name string) (addresses []string) {
	for _, r := range w.Published(name) {
		spec, err := r.Spec()
		require.NoError(w.t, err)
		for _, e := range spec.(*networking.ServiceEntry).Endpoints {
			addresses = append(addresses, strings.TrimSuffix(e.Address, ".test"))
		}
	}
	slices.Sort(addresses)
	return addresses
}

func (w *world) Names([]string) []string { return nil }

func (w *world) Restore([]*resource.Resource) {}
func (w *world) Groups() []string             { return w.old }
func (w *world) Synced()                      { w.mu.Lock(); defer w.mu.Unlock(); w.reportedSynced = true }

func (w *world) Report(h sources.Health) { w.mu.Lock(); defer w.mu.Unlock(); w.state = h }

// Unconfirmed implements sources.UnconfirmedSink.
func (w *world) Unconfirmed(why map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unconfirmed = why
}

// notConfirmed returns the services that are not confirmed, as last reported.
func (w *world) notConfirmed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.unconfirmed))
}

func (w *world) Kept() []byte     { w.mu.Lock(); defer w.mu.Unlock(); return w.note }
func (w *world) Keep(note []byte) { w.mu.Lock(); defer w.mu.Unlock(); w.note = note }

func (w *world) Replace(string, []*resource.Resource, ...sources.Reject) error {
	return errors.New("not used")
}

func (w *world) synced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reportedSynced
}

// lastPublished returns the last published services of a name.
func (w *world) lastPublished(name string) []mapping.Service {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.published[name]
}

// health returns the last reported health.
func (w *world) health() sources.Health {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// instancesOf returns the IDs of the instances of a service as published, with the datacenter in front.
func (w *world) instancesOf(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	services, ok := w.published[name]
	if !ok || len(services) == 0 {
		return nil
	}
	ids := []string{}
	for _, s := range services {
		for _, e := range s.Entries {
			ids = append(ids, s.Datacenter+"/"+e.Service.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// testWorld runs a test in a bubble of its own time.
func testWorld(t *testing.T, test func(t *testing.T, w *world), domains ...scope) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, domains...)) })
}

// eachWorld runs a test for each case.
func eachWorld[C any](t *testing.T, cases map[string]C, test func(t *testing.T, w *world, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { testWorld(t, func(t *testing.T, w *world) { test(t, w, c) }) })
	}
}

// start runs a source of the world until stop, or until the test ends. Without settings it has those of the last run.
func (w *world) start(settings ...Settings) *run {
	w.t.Helper()
	for _, w.settings = range settings {
	}
	return w.startWith(w, w)
}

// startFull is start with twenty services, which it waits for.
func (w *world) startFull() *run {
	w.t.Helper()
	w.change(local, twenty(0, 20, 50))
	r := w.start()
	pass(10 * time.Second)
	return r
}

// startWith is start with a catalog and a mapper of the test's own.
func (w *world) startWith(catalog catalog, mapper Mapper) *run {
	w.t.Helper()
	settings := w.settings
	require.NoError(w.t, settings.complete())
	r := newRun(settings, newSinkPublisher(w, mapper), catalog, w.places, newMetrics())
	if w.bounds != (limits{}) {
		r.limits = w.bounds
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.loop(ctx)
	}()
	w.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		w.locked(func() {
			w.old, w.reportedSynced = nil, false
			for name, services := range w.published {
				if len(services) > 0 {
					w.old = append(w.old, name)
				}
			}
			slices.Sort(w.old)
		})
	})
	w.t.Cleanup(w.stop)
	return r
}

// pass lets time pass, and waits until all that follows from it is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// readsOf returns how often a service was read.
func (w *world) readsOf(name string) int { w.mu.Lock(); defer w.mu.Unlock(); return w.reads[name] }

// requireInstances checks the published instances of a service: IDs, or datacenter/ID.
func (w *world) requireInstances(name string, ids ...string) {
	w.t.Helper()
	for i, id := range ids {
		if !strings.Contains(id, "/") {
			ids[i] = "/" + id
		}
	}
	require.ElementsMatch(w.t, ids, w.instancesOf(name), "%s: %s", name, w.health().Message)
}

// requireWithdrawn checks that a service is published no longer.
func (w *world) requireWithdrawn(name string) {
	w.t.Helper()
	require.Empty(w.t, w.lastPublished(name), "%s: %s", name, w.health().Message)
}

// requireState checks the health, and the parts of its message.
func (w *world) requireState(state sources.State, parts ...string) {
	w.t.Helper()
	health := w.health()
	require.Equal(w.t, state, health.State, health.Message)
	for _, part := range parts {
		require.Contains(w.t, health.Message, part)
	}
}

func (w *world) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.published))
}

// sick is an instance with a failing check.
func sick(id string) instances {
	e := *instanceWithID(id).list[0]
	e.Checks = api.HealthChecks{{CheckID: "c", Status: api.HealthCritical}}
	return newInstances([]*api.ServiceEntry{&e})
}

// instanceOnNode is an instance on a node that was created at an index.
func instanceOnNode(id, node string, index uint64) instances {
	e := *instanceWithID(id).list[0]
	e.Node = &api.Node{Node: node, Address: "10.0.0.1", CreateIndex: index}
	return newInstances([]*api.ServiceEntry{&e})
}

// onNodes are instances as text: ID, node, and the index at which that was created.
func onNodes(texts ...string) (i instances) {
	for _, text := range texts {
		words := strings.Fields(text)
		index, err := strconv.ParseUint(words[2], 10, 64)
		if err != nil {
			panic(err)
		}
		i = i.plus(instanceOnNode(words[0], words[1], index).list)
	}
	return i
}

func instanceWithID(id string) instances { return instancesWithIDs(id) }

func instancesWithIDs(ids ...string) instances {
	var list []*api.ServiceEntry
	for _, id := range ids {
		list = append(list, &api.ServiceEntry{
			Node: &api.Node{Node: "n", Address: "10.0.0.1"}, Service: &api.AgentService{ID: id, Address: id + ".test", Port: 80},
		})
	}
	return newInstances(list)
}
