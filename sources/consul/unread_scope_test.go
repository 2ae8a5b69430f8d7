package consul

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/mapping"
	"tributary/sources/registry"
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

// TestRestart_RecordLimitsUnreadScope: a datacenter that cannot be read concerns no service that it did not have.
func TestRestart_RecordLimitsUnreadScope(t *testing.T) {
	eachWorld(t, map[string]func(*datacenter){
		"down": func(d *datacenter) { d.Fails = errDown }, "hidden": func(d *datacenter) { d.Shows = map[string]bool{"api": true} },
	}, func(t *testing.T, world *world, spoil func(*datacenter)) {
		world.scopes[west], world.scopes[east] = consultest.NewDatacenter(), consultest.NewDatacenter()
		world.change(west, func(d *datacenter) { d.List("api", "w1"); d.List("db", "w1") })
		world.change(east, func(d *datacenter) { d.List("api", "e1"); d.List("web", "e1", "e2") })
		world.start(Settings{Datacenters: []string{"east", "west"}})
		pass(time.Minute)
		world.stop()
		world.change(west, spoil)
		world.change(east, func(d *datacenter) { d.List("web", "e3") })
		world.start()
		pass(6 * time.Minute)
		require.Equal(t, []string{"e3"}, world.endpoints("web"))
		require.Equal(t, []string{"w1"}, world.endpoints("db"))
	})
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

// realMapper maps services as the product does.
type realMapper struct {
	*mapping.Mapper
	world *world
}

func (m realMapper) Service(name string, scopes []mapping.Service) sources.Content {
	m.world.Service(name, scopes)
	return m.Mapper.Service(name, scopes)
}

func (m realMapper) PartOfService(name string, scopes []mapping.Service, before []*resource.Resource) (
	content sources.Content, unlisted []*resource.Resource, ok bool,
) {
	m.world.Service(name, scopes)
	return m.Mapper.PartOfService(name, scopes, before)
}

// addressesByHost returns the addresses of each host that is served.
func (w *world) addressesByHost() map[string][]string {
	hosts := make(map[string][]string)
	for name := range w.served {
		for _, object := range w.Published(name) {
			spec, err := object.Spec()
			require.NoError(w.t, err)
			entry := spec.(*networking.ServiceEntry)
			for _, host := range entry.Hosts {
				hosts[host] = append(hosts[host], "") // the host without endpoints
				for _, endpoint := range entry.Endpoints {
					hosts[host] = append(hosts[host], strings.TrimSuffix(endpoint.Address, ".test"))
				}
				slices.Sort(hosts[host])
			}
		}
	}
	return hosts
}

// TestRestart_KeepsAliasesOfUnreadDatacenter: the hosts of each datacenter have its own endpoints only, also while one
// cannot be read after a restart.
func TestRestart_KeepsAliasesOfUnreadDatacenter(t *testing.T) {
	for _, protocol := range []string{"http", "tcp"} {
		t.Run(protocol, func(t *testing.T) {
			testWorld(t, func(t *testing.T, world *world) {
				start := func(settings ...Settings) {
					for _, world.settings = range settings {
					}
					mapper, err := mapping.New(mapping.Options{MappingOptions: registry.MappingOptions{DefaultProtocol: protocol}}, nil)
					require.NoError(t, err)
					world.startWith(world, realMapper{mapper, world})
				}
				list := func(scope scope, name string, ids ...string) {
					world.change(scope, func(d *datacenter) { d.List(name, ids...) })
				}
				list(east, "both", "e1", "e2")
				list(west, "both", "w1")
				list(east, "eastern", "e1", "e2")
				list(east, "ending", "e1")
				list(west, "western", "w1")
				list(east, "web_api", "e1")
				list(west, "web-api", "w1") // it has the host of that name, also while it is not read
				start(Settings{Datacenters: []string{"east", "west"}})
				pass(5 * time.Minute)
				hosts := world.addressesByHost()
				require.Equal(t, []string{"", "w1"}, hosts["western.service.west.consul"])
				world.stop()
				world.change(west, func(d *datacenter) { d.Fails = errDown })
				start()
				for range 10 {
					pass(10 * time.Second)
					require.Equal(t, hosts, world.addressesByHost())
				}
				list(east, "both", "e3")
				list(east, "eastern", "e3")
				list(east, "western", "e1")
				world.change(east, func(d *datacenter) { d.RemoveService("ending") })
				pass(2 * time.Minute)
				delete(hosts, "ending.service.consul")
				delete(hosts, "ending.service.east.consul") // the record shows that west had none
				hosts["both.service.consul"] = []string{"", "e3", "w1"}
				hosts["both.service.east.consul"] = []string{"", "e3"}
				hosts["eastern.service.consul"] = []string{"", "e3"}
				hosts["eastern.service.east.consul"] = []string{"", "e3"}
				require.Equal(t, hosts, world.addressesByHost(), "western would have other hosts")
				world.change(west, func(d *datacenter) { d.Fails = nil })
				pass(5 * time.Minute)
				hosts["western.service.consul"] = []string{"", "e1", "w1"}
				hosts["western.service.east.consul"] = []string{"", "e1"}
				require.Equal(t, hosts, world.addressesByHost())
				world.requireState(sources.Healthy)
			}, east, west)
		})
	}
}
