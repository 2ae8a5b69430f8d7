package consul

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
)

// crowd is a world with many more services than watch slots, with each service read.
func crowd(t *testing.T, w *world, services int) *run {
	w.Change(func() {
		for i := range services {
			w.SetService(fmt.Sprint("s", i), instanceOnNode("1", fmt.Sprint("n", i%10), 50))
		}
	})
	w.places = 50
	r := w.start(Settings{Resync: time.Hour})
	pass(time.Duration(services/50+60) * time.Second)
	require.True(t, w.synced())
	require.EqualValues(t, 50-4, r.metrics.watches.Value())
	return r
}

// unwatched returns a service without a place.
func (r *run) unwatched() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.scopes[0].services {
		if !s.hasSlot {
			return name
		}
	}
	return ""
}

// unwatchedReads is how often services without a place were read.
func (r *run) unwatchedReads(w *world) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.scopes[0].services {
		if !s.hasSlot {
			n += w.readsOf(name)
		}
	}
	return n
}

func TestUnwatchedServices_ReadOnChangeOnly(t *testing.T) {
	testWorld(t, func(t *testing.T, w *world) {
		run := crowd(t, w, 1000)
		before := run.unwatchedReads(w)
		pass(9 * time.Minute)
		require.Equal(t, before, run.unwatchedReads(w), "no service changes")

		name := run.unwatched()
		ill := sick("1")
		ill[0].Node.CreateIndex = 50
		w.Put(name, ill...)
		pass(2 * time.Second)
		require.Len(t, w.lastPublished(name)[0].Entries[0].Checks, 1, "a check that fails")
		w.set(name, "1 n1 50")
		pass(3 * time.Second)
		require.Empty(t, w.lastPublished(name)[0].Entries[0].Checks, "and its end")

		w.set(name, "2 n1 50")
		pass(20 * time.Second)
		w.requireInstances(name, "2") // a new registration, found by the names of its node's services
		pass(time.Minute)
		before = run.unwatchedReads(w)
		pass(2 * time.Minute)
		require.Equal(t, before, run.unwatchedReads(w))
		w.requireState(sources.Healthy)
	})
}

func TestChangeQueries_CatchUpAfterOutage(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		r := crowd(t, world, 200)
		world.Fail(errDown)
		pass(10 * time.Second)
		name := r.unwatched()
		world.set(name, "2 n1 50")
		pass(10 * time.Second)
		world.Fail(nil)
		pass(time.Minute)
		world.requireInstances(name, "2") // a change during the outage
	})
}

func TestApplyChanges_FindsDifferences(t *testing.T) {
	items := changeItems{{service: "a", content: "1"}: true, {service: "b", content: "2"}: true, {node: "n", content: "3"}: true}
	p := &catalogScope{services: map[string]*service{}, changes: newChangeResults()}
	for _, name := range []string{"a", "b", "c", "d"} {
		p.services[name] = &service{name: name, scope: p, instances: newInstances(consultest.Instances("1 n 5"))}
	}
	reread := func() (names []string) {
		for _, name := range slices.Sorted(maps.Keys(p.services)) {
			if p.services[name].reread.Take() {
				names = append(names, name)
			}
		}
		return names
	}
	p.applyChanges(api.HealthCritical, items)
	count := p.changes.count
	p.applyChanges(api.HealthCritical, maps.Clone(items))
	require.Empty(t, reread())
	p.applyChanges(api.HealthCritical, changeItems{
		{service: "a", content: "2"}: true, {node: "n", content: "3"}: true, {service: "c", content: "1"}: true,
	})
	require.Equal(t, []string{"a", "b", "c"}, reread())
	require.Equal(t, count, p.changes.count)
	p.applyChanges(api.HealthCritical, changeItems{})
	require.Equal(t, []string{"a", "b", "c", "d"}, reread(), "a check of their node")
}

// A service without a watch slot is read again only after a change query. So its reads must include the change.
func TestUnwatchedService_ReadFromLeader(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		r := crowd(t, world, 100)
		name := r.unwatched()
		world.Change(func() {
			world.Lags = map[string][]*api.ServiceEntry{name: world.Services[name]}
			world.List(name, "2 n0 50")
		})
		pass(20 * time.Second)
		world.datacenter.Restore() // it has caught up, after far more than it ever takes
		pass(5 * time.Minute)
		world.requireInstances(name, "2")
	})
}

// The check that fails is of an instance that is registered under another spelling of the name.
func TestChanges_MatchNamesWithoutCase(t *testing.T) {
	server := consultest.New(t)
	server.Put("Web", sick("1")...)
	items, _, err := dialed(t, server, Settings{}).changeItems(t.Context(), local, api.HealthCritical, query{})
	require.NoError(t, err)
	items.add("", "N2", "b")
	p := &catalogScope{services: map[string]*service{}, changes: newChangeResults()}
	for name, node := range map[string]string{"web": "n", "WEB": "n", "other": "n2", "third": "n"} {
		p.services[name] = &service{name: name, scope: p, instances: newInstances(instanceOnNode("1", node, 5))}
	}
	p.applyChanges(api.HealthCritical, changeItems{})
	p.applyChanges(api.HealthCritical, items)
	for name, woken := range map[string]bool{"web": true, "WEB": true, "other": true, "third": false} {
		require.Equal(t, woken, p.services[name].reread.Take(), name)
	}
}
