package consul

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/mapping"
)

// TestRestart_FollowsReadScopes: a scope cannot be read after a restart. The others are followed, and the endpoints
// that may be its own stay until it is read.
func TestRestart_FollowsReadScopes(t *testing.T) {
	kinds := map[string]struct {
		settings       Settings
		readable, away scope
	}{
		"datacenter": {Settings{Datacenters: []string{"east", "west"}}, east, west},
		"namespace":  {Settings{Namespaces: []string{"a", "b"}}, scope{namespace: "a"}, scope{namespace: "b"}},
		"partition":  {Settings{Partitions: []string{"a", "b"}}, scope{partition: "a"}, scope{partition: "b"}},
		"peer":       {Settings{Peers: []string{"x"}}, local, scope{peer: "x"}},
	}
	faults := map[string]func(*datacenter){
		"down":        func(d *datacenter) { d.Fails = errDown },
		"denied":      func(d *datacenter) { d.Fails = errDenied },
		"hidden":      func(d *datacenter) { d.Hides = true },
		"web hidden":  func(d *datacenter) { d.Shows = map[string]bool{"api": true} },
		"web refused": func(d *datacenter) { d.Refusals = map[string]error{"web": errDenied} },
		"silent":      func(d *datacenter) { d.Hangs = true },
	}
	for kind, scopes := range kinds {
		for fault, spoil := range faults {
			t.Run(kind+" "+fault, func(t *testing.T) {
				testWorld(t, func(t *testing.T, world *world) {
					list := func(scope scope, name string, ids ...string) {
						world.change(scope, func(d *datacenter) { d.List(name, ids...) })
					}
					list(scopes.readable, "web", "r1")
					list(scopes.readable, "api", "r1")
					list(scopes.away, "web", "a1")
					list(scopes.away, "api", "a1")
					world.start(scopes.settings)
					pass(time.Minute)
					require.Equal(t, []string{"a1", "r1"}, world.endpoints("web"))
					world.stop()
					world.scopes[scopes.away].Edit(func() { spoil(world.scopes[scopes.away]) })
					world.start()
					pass(6 * time.Minute)
					for _, ids := range [][]string{{"r1", "r2"}, {"r2"}, {"r2", "r3"}} {
						list(scopes.readable, "web", ids...)
						pass(time.Minute)
						require.Equal(t, append([]string{"a1"}, ids...), world.endpoints("web"), world.health().Message)
					}
					require.Equal(t, sources.Degraded, world.health().State)
					list(scopes.readable, "new", "r1")
					list(scopes.away, "web", "a2")
					pass(time.Minute)
					require.Equal(t, []string{"r1"}, world.endpoints("new"))
					require.Equal(t, []string{"a1", "r2", "r3"}, world.endpoints("web"))
					world.scopes[scopes.away].Restore()
					pass(2 * time.Minute)
					require.Equal(t, []string{"a2", "r2", "r3"}, world.endpoints("web"))
					world.requireState(sources.Healthy)
				}, scopes.readable, scopes.away)
			})
		}
	}
}

// TestRestart_WithdrawnServiceIsNew: a service that an earlier run published was withdrawn, and comes back.
func TestRestart_WithdrawnServiceIsNew(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		list := func(scope scope, name string) { world.change(scope, func(d *datacenter) { d.List(name, "1") }) }
		for _, scope := range []scope{east, west} {
			list(scope, "api")
			list(scope, "web")
		}
		world.start(Settings{Datacenters: []string{"east", "west"}})
		pass(time.Minute)
		world.stop()
		run := world.start()
		pass(time.Minute)
		for _, scope := range []scope{east, west} {
			world.change(scope, func(d *datacenter) { d.RemoveService("web") })
		}
		pass(5 * time.Minute)
		world.requireWithdrawn("web")
		world.change(west, func(d *datacenter) { d.Refusals = map[string]error{"web": errDenied, "new": errDenied} })
		for _, name := range []string{"web", "new"} {
			list(east, name)
			list(west, name)
		}
		pass(5 * time.Minute)
		world.requireInstances("new", "east/1")
		world.requireInstances("web", "east/1")
		run.mu.Lock()
		defer run.mu.Unlock()
		require.Empty(t, run.restored)
	}, east, west)
}

// TestPeers_TakeNoSlotsOfChangeQueries: change queries run in scopes without a peer only.
func TestPeers_TakeNoSlotsOfChangeQueries(t *testing.T) {
	settings, world := Settings{Peers: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}}, newWorld(t)
	require.NoError(t, settings.complete())
	run := newRun(settings, newSinkPublisher(world, world), world, defaultWatches, newMetrics())
	require.True(t, run.hasChangeQueries)
	require.Equal(t, defaultWatches-11-len(changeQueries), run.gate.slots)
}

// mappingCounter counts the calls for a service.
type mappingCounter struct {
	*world
	calls atomic.Int32
}

func (c *mappingCounter) Service(name string, scopes []mapping.Service) sources.Content {
	if name == "web" {
		c.calls.Add(1)
	}
	return c.world.Service(name, scopes)
}

// TestEmptyService_MappedOnceAfterGrace: a listed service without instances is withdrawn once.
func TestEmptyService_MappedOnceAfterGrace(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		counter := &mappingCounter{world: world}
		world.set("web", "1")
		world.set("api", "1")
		run := world.startWith(world, counter)
		pass(time.Second)
		world.set("web")
		pass(2 * time.Minute)
		world.requireWithdrawn("web")
		before := counter.calls.Load()
		for _, id := range []string{"2", "3", "4"} {
			world.set("api", id)
			pass(time.Minute)
		}
		pass(time.Hour)
		require.Equal(t, before, counter.calls.Load())
		require.Zero(t, run.metrics.healed.Value(), "an empty answer to the full compare is no difference")
		world.set("web", "2")
		pass(time.Minute)
		world.requireInstances("web", "2")
		world.Remove("web")
		pass(2 * time.Minute)
		world.requireWithdrawn("web")
	})
}
