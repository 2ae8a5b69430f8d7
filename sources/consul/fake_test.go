package consul

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
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
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/consul/mapping"
)

// datacenter is the state of a Consul.
type datacenter = consultest.Datacenter

// world is a Consul of several scopes without HTTP, and the publications of its runs. The local scope is embedded.
type world struct {
	*datacenter
	sources.Sink // none

	t *testing.T

	mu         sync.Mutex
	scopes     map[scope]*datacenter
	reads      map[string]int // by service
	totalReads int
	listed     int // reads of names
	mostReads  int // at the same time
	nowReads   int
	wait       time.Duration // after which a query that waits is answered
	bounds     limits        // of the run; the usual ones if empty
	places     int           // of the run, for watches; the usual ones if 0
	settings   Settings      // of the run
	stop       func()        // ends the run; its services are those of an earlier run then
	slowNames  time.Duration // how much later than other answers those with names come
	slowPulse  time.Duration

	published      map[string][]mapping.Service    // nil for withdrawn services
	served         map[string][]*resource.Resource // their objects, with earlier ones that stay
	state          sources.Health
	unconfirmed    map[string]string // reasons, by service
	reportedSynced bool              // synced
	old            []string          // groups of an earlier run
	note           []byte            // its saved note
	blind          bool              // it answers no change queries
	mute           error             // for questions about rights
	nameless       error             // for those which cluster it is
	pulseFails     error             // of pulses only
	level          level             // of the last read of a service that did not wait
}

func newWorld(t *testing.T, scopes ...scope) *world {
	w := &world{
		t: t, scopes: map[scope]*datacenter{}, reads: map[string]int{}, published: map[string][]mapping.Service{},
		served: map[string][]*resource.Resource{}, wait: 5 * time.Minute,
	}
	for _, scope := range append(scopes, local) {
		w.datacenter = consultest.NewDatacenter()
		w.Lose(100)
		w.scopes[scope] = w.datacenter
	}
	return w
}

// change changes a scope.
func (w *world) change(scope scope, change func(*datacenter)) {
	datacenter := w.scopes[scope]
	datacenter.Change(func() { change(datacenter) })
}

// set is Put with instances of IDs. Without any, the service is listed nevertheless.
func (w *world) set(name string, ids ...string) { w.Put(name, consultest.Instances(ids...)...) }

// wipe has Consul lose its data, and ends an outage. It goes on at index, with content.
func (w *world) wipe(index uint64, content ...func(*datacenter)) {
	w.change(local, func(d *datacenter) {
		d.Fails = nil
		d.Lose(index)
		for _, fill := range content {
			fill(d)
		}
	})
}

// get reads a field under the lock of w.
func get[T any](w *world, field *T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *field
}

// locked calls f under the lock of w.
func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// read reads a path, as dial.Ask does by HTTP.
func (w *world) read(ctx context.Context, scope scope, path string, query query) (any, judge.Answer, error) {
	w.locked(func() { w.nowReads++; w.mostReads = max(w.mostReads, w.nowReads) })
	defer w.locked(func() { w.nowReads-- })
	ctx, cancel := context.WithTimeout(ctx, w.wait+blockingGrace)
	defer cancel()
	content, answer, err := w.scopes[scope].Read(ctx, path, consultest.Query{
		Index: query.index, Wait: w.wait, Stale: query.level == usual, Consistent: query.level == confirmed,
	})
	return content, judge.Answer{
		Index: answer.Index, Filtered: answer.Filtered, Anonymous: answer.Anonymous, Confirmed: query.level == confirmed,
	}, err
}

func (w *world) services(ctx context.Context, scope scope, query query) (listing, error) {
	w.locked(func() { w.listed++ })
	content, answer, err := w.read(ctx, scope, "/v1/catalog/services", query)
	if slow := get(w, &w.slowNames); slow > 0 && query.index == 0 {
		time.Sleep(slow)
	}
	names, _ := content.(map[string][]string)
	return listing{names: names, Answer: answer}, err
}

func (w *world) service(ctx context.Context, scope scope, name string, query query) (serviceAnswer, error) {
	w.mu.Lock()
	w.reads[name]++
	w.totalReads++
	if query.index == 0 {
		w.level = query.level
	}
	w.mu.Unlock()
	content, answer, err := w.read(ctx, scope, "/v1/health/service/"+name, query)
	entries, _ := content.([]*api.ServiceEntry)
	return serviceAnswer{instances: newInstances(slices.Clone(entries)), Answer: answer}, err
}

func (w *world) changeItems(ctx context.Context, scope scope, name string, query query) (changeItems, uint64, error) {
	if w.blind {
		return nil, 0, errDenied
	}
	path := "/v1/health/state/" + name
	if name == nodesQuery {
		path = "/v1/catalog/nodes"
	}
	content, answer, err := w.read(ctx, scope, path, query)
	items := changeItems{}
	switch list := content.(type) {
	case []*api.Node:
		for _, node := range list {
			items.add("", node.Node, node.Address)
		}
	case api.HealthChecks:
		for _, check := range list {
			items.add(check.ServiceName, check.Node, check.CheckID)
		}
	}
	return items, answer.Index, err
}

func (w *world) cluster(ctx context.Context, scope scope) (string, error) {
	content, _, err := w.read(ctx, scope, "/v1/connect/ca/roots", query{})
	roots, _ := content.(map[string]string)
	return roots["TrustDomain"], cmp.Or(err, get(w, &w.nameless))
}

func (w *world) pulse(ctx context.Context, scope scope) (dial.Pulse, error) {
	if err := worker.Wait(ctx, nil, get(w, &w.slowPulse)); err != nil {
		return dial.Pulse{}, err
	}
	_, answer, err := w.scopes[scope].Read(ctx, "/v1/health/service/consul", consultest.Query{Stale: true})
	return dial.Pulse{KnownLeader: !answer.Leaderless, LastContact: answer.LastContact}, cmp.Or(err, get(w, &w.pulseFails))
}

func (w *world) mayRead(_ context.Context, scope scope, _ bool, rights []dial.Right) (allowed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	datacenter := w.scopes[scope]
	datacenter.Edit(func() {
		err = cmp.Or(w.mute, datacenter.Fails)
		allowed = err == nil && !slices.ContainsFunc(rights, func(right dial.Right) bool {
			return !datacenter.Allows(consultest.Right{Resource: right.Resource, Segment: right.Name})
		})
	})
	return allowed, err
}

// Service implements mapper.
func (w *world) Service(name string, services []mapping.Service) sources.Content {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published[name] = services
	se := &networking.ServiceEntry{Hosts: []string{"x"}, Resolution: networking.ServiceEntry_STATIC}
	se.Ports = []*networking.ServicePort{{Number: 80, Name: "p"}}
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

// PartOfService implements mapper.
func (w *world) PartOfService(name string, scopes []mapping.Service, before []*resource.Resource) (
	content sources.Content, unlisted []*resource.Resource, ok bool,
) {
	content = w.Service(name, scopes)
	retained, unlisted, err := mapping.Retain(content.Resources, before, scopes)
	content.Resources = retained
	return content, unlisted, err == nil
}
func (w *world) Groups() []string { return w.old }
func (w *world) Synced()          { w.locked(func() { w.reportedSynced = true }) }

func (w *world) Report(h sources.Health) { w.locked(func() { w.state = h }) }

// Unconfirmed implements sources.UnconfirmedSink.
func (w *world) Unconfirmed(why map[string]string) { w.locked(func() { w.unconfirmed = why }) }

// notConfirmed returns the services that are not confirmed, as last reported.
func (w *world) notConfirmed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.unconfirmed))
}

func (w *world) LastNote() []byte { return get(w, &w.note) }
func (w *world) Keep(note []byte) { w.locked(func() { w.note = note }) }

func (w *world) synced() bool { return get(w, &w.reportedSynced) }

// lastPublished returns the last published services of a name.
func (w *world) lastPublished(name string) []mapping.Service {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.published[name]
}

// health returns the last reported health.
func (w *world) health() sources.Health { return get(w, &w.state) }

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
func testWorld(t *testing.T, test func(t *testing.T, w *world), scopes ...scope) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, scopes...)) })
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

// instanceOnNode is an instance on a node that was created at an index.
func instanceOnNode(id, node string, created uint64) []*api.ServiceEntry {
	return consultest.Instances(fmt.Sprint(id, " ", node, " ", created))
}

// sick is an instance with a failing check.
func sick(text string) []*api.ServiceEntry {
	entries := consultest.Instances(text)
	entries[0].Checks = api.HealthChecks{{CheckID: "c", Status: api.HealthCritical}}
	return entries
}
