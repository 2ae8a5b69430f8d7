package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/mapping"
)

var (
	local = scope{}
	east  = scope{datacenter: "east"}
	west  = scope{datacenter: "west"}

	errDown   = consultest.NoLeader
	errDenied = consultest.NoToken

	errLimited = limitedFor(3 * time.Second)
)

func limitedFor(d time.Duration) error {
	return &dial.Error{Failure: dial.Failure{Kind: dial.RateLimited, RetryAfter: d}, Err: errDown}
}

func TestChangeOfOneService_CostsOneRead(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.Change(func() {
			for i := range 1000 {
				world.List(fmt.Sprintf("s%d", i), "1")
			}
		})
		world.start()
		pass(19 * time.Second)
		require.False(t, world.synced(), "the first reads are spread, so that they are no burst")
		pass(3 * time.Second)
		require.True(t, world.synced())
		require.Len(t, world.names(), 1000)
		require.Equal(t, 2000, get(world, &world.totalReads), "each was read once, and is being watched")
		world.Put("s7", sick("1")...)
		pass(0)
		require.Len(t, world.lastPublished("s7")[0].Entries[0].Checks, 1)
		require.Equal(t, 2001, get(world, &world.totalReads), "the next watch follows the one with the change")
	})
}

func TestDomains_FailIndependently(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		hides bool
	}{"unreachable": {err: errDown}, "denied": {err: errDenied}, "hidden": {hides: true}} {
		t.Run(name, func(t *testing.T) {
			testWorld(t, func(t *testing.T, w *world) {
				for _, d := range []scope{east, west} {
					w.change(d, func(f *datacenter) { f.List("web", "1") })
				}
				w.start(Settings{Datacenters: []string{"east", "west"}})
				pass(time.Second)
				w.requireInstances("web", "east/1", "west/1")
				w.requireState(sources.Healthy)

				w.change(west, func(f *datacenter) {
					f.Fails, f.Hides = c.err, c.hides
					for name := range f.Indexes {
						f.Indexes[name] = f.Index // the watches end
					}
				})
				pass(time.Minute)
				w.requireState(sources.Degraded, "datacenter west: ")
				w.change(east, func(f *datacenter) {
					f.List("web", "2")
					f.List("api", "1")
				})
				pass(time.Minute)
				w.requireInstances("web", "east/2", "west/1") // west's instances stay, and east is followed
				w.requireInstances("api", "east/1")

				w.change(west, func(f *datacenter) { f.Fails, f.Hides = nil, false; f.List("web", "3") })
				pass(time.Minute)
				w.requireInstances("web", "east/2", "west/3")
				w.requireState(sources.Healthy)
			}, east, west)
		})
	}
}

func TestDomains_FailTogether(t *testing.T) {
	for state, err := range map[sources.State]error{sources.Unreachable: errDown, sources.Denied: errDenied} {
		testWorld(t, func(t *testing.T, world *world) {
			world.set("web", "1")
			world.Fail(err)
			world.start()
			pass(time.Hour)
			world.requireState(state)
			require.False(t, world.synced())
			require.Empty(t, world.names())
			world.Fail(nil)
			pass(lastNamesRetry * 2)
			require.True(t, world.synced(), "it is tried every few seconds, however long it was down")
			world.requireInstances("web", "1")
		})
	}
}

func TestRemovedService_WithdrawnAfterGrace(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.set("web", "1")
		world.set("api", "1")
		world.start()
		pass(time.Second)
		world.Remove("web")
		pass(20 * time.Second)
		require.Len(t, world.lastPublished("web"), 1, "the service stays")
		world.requireInstances("web") // without its endpoints
		world.set("web", "2")
		pass(20 * time.Second)
		world.requireInstances("web", "2") // it was only redeployed
		world.Remove("web")
		pass(time.Minute)
		world.requireWithdrawn("web")
		world.requireInstances("api", "1")
		before := world.readsOf("web")
		pass(time.Hour)
		require.Equal(t, before, world.readsOf("web"), "it is not read any more")
		world.set("web", "3")
		pass(5 * time.Second)
		world.requireInstances("web", "3")
	})
}

func TestUnlistedService_RemovedDespiteInstances(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) { // the filter of names no longer lets it through, say
		world.set("web", "1")
		world.set("api", "1")
		world.start()
		pass(time.Second)
		world.Change(func() { world.Unlisted = "web" })
		pass(10 * time.Second)
		world.requireInstances("web")
		world.set("web", "2")
		pass(10 * time.Second)
		world.requireInstances("web")
		pass(time.Minute)
		world.requireWithdrawn("web")
		world.requireInstances("api", "1")
		world.Change(func() { world.Unlisted = "" })
		pass(10 * time.Second)
		world.requireInstances("web", "2")
	})
}

func TestListedService_WithoutInstances(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) { // all of them are filtered out, say
		world.set("web", "1")
		world.start()
		pass(time.Second)
		world.set("web")
		pass(10 * time.Second)
		require.Len(t, world.lastPublished("web"), 1)
		world.requireInstances("web")
		pass(time.Minute)
		world.requireWithdrawn("web")
		world.set("web", "1")
		pass(10 * time.Second)
		world.requireInstances("web", "1")
	})
}

func TestWipedConsul_HoldsServices(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.set("web", "1", "2")
		world.set("api", "1")
		world.set("old", "1")
		world.start()
		pass(time.Second)
		world.Fail(errDown)
		pass(time.Minute)
		world.wipe(2)
		pass(time.Minute)
		world.requireState(sources.Degraded, "lost its data")
		world.requireInstances("web", "1", "2")

		world.set("web", "1") // the agents come back, one by one
		pass(10 * time.Second)
		world.requireInstances("web", "1", "2") // an instance that is not back yet stays
		require.Equal(t, []string{"api", "old", "web"}, world.notConfirmed())
		require.Contains(t, get(world, &world.unconfirmed)["old"], "lost its data")
		require.Contains(t, world.health().Message, "(api, and 2 more services)")
		world.set("api", "3")
		pass(10 * time.Second)
		world.requireInstances("api", "1", "3") // a new instance is served at once
		require.Equal(t, []string{"api", "old", "web"}, world.notConfirmed(), "api has an earlier instance, too")
		world.requireInstances("old", "1")

		pass(6 * time.Minute)
		world.requireInstances("web", "1") // an instance that did not come back is removed
		world.requireInstances("api", "3")
		world.requireWithdrawn("old")
		require.Empty(t, world.notConfirmed())
		world.requireState(sources.Healthy)
	})
}

// A Consul that lost its data answers for one service before it answers with the names, which tell that it did.
func TestWipedConsul_AnswersForServiceFirst(t *testing.T) {
	eachWorld(t, map[string]func(w *world){
		"its index goes back": func(w *world) { w.Change(func() { w.Lose(2) }) },
		"after an outage, with a higher index": func(w *world) {
			w.Fail(errDown)
			pass(100 * time.Millisecond)
			w.wipe(500)
		},
	}, func(t *testing.T, w *world, wipe func(w *world)) {
		w.set("web", "1")
		w.set("api", "1")
		w.start()
		pass(time.Second)
		w.locked(func() { w.slowNames = 3 * time.Second })
		wipe(w)
		for range 100 {
			pass(100 * time.Millisecond)
			w.requireInstances("web", "1")
			w.requireInstances("api", "1")
		}
		require.Contains(t, w.health().Message, "lost its data")
		pass(10 * time.Minute)
		w.requireWithdrawn("web") // it did not come back
	})
}

func TestRestart_RemovesConfirmedLossesOnly(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.old = []string{"web", "api", "gone"}
		for _, name := range world.old {
			earlier := []mapping.Service{{Name: name, Entries: consultest.Instances("earlier")}}
			world.served[name] = world.Service(name, earlier).Resources
			delete(world.published, name)
		}
		world.change(east, func(f *datacenter) {
			f.List("web", "1")
			f.List("api", "1")
		})
		world.change(west, func(f *datacenter) { f.List("web", "1") })
		world.change(west, func(f *datacenter) { f.Fails = errDown })
		world.start(Settings{Datacenters: []string{"east", "west"}})
		pass(10 * time.Minute)
		require.False(t, world.synced())
		world.requireInstances("web", "east/1")
		world.requireInstances("api", "east/1")
		require.Equal(t, []string{"earlier"}, world.endpoints("gone"), "it may be west's")
		require.Equal(t, []string{"1", "earlier"}, world.endpoints("api"), "west may have an instance")
		world.change(east, func(f *datacenter) { f.List("new", "1") })
		pass(10 * time.Second)
		require.Equal(t, []string{"1"}, world.endpoints("new"), "a new service is not west's")
		world.change(west, func(f *datacenter) { f.Fails = nil })
		pass(2 * time.Minute)
		require.True(t, world.synced())
		require.Equal(t, []string{"1"}, world.endpoints("api"))
		require.Empty(t, world.endpoints("gone"))
		world.requireInstances("web", "east/1", "west/1")
		world.requireInstances("api", "east/1")
		require.Contains(t, world.names(), "gone")
		world.requireWithdrawn("gone")
	}, east, west)
}

func TestRestart_RemovesUnselectedServices(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.old = []string{"web", "db"}
		world.Change(func() {
			world.List("web", "1")
			world.List("db", "1")
			world.Unlisted = "db"
		})
		world.start()
		pass(time.Second)
		require.True(t, world.synced())
		world.requireInstances("web", "1")
		world.requireInstances("db")
		pass(time.Minute)
		require.Contains(t, world.names(), "db")
		world.requireWithdrawn("db")
		before := world.readsOf("db")
		pass(time.Hour)
		require.Equal(t, before, world.readsOf("db"))
		world.Change(func() { world.Unlisted = "" })
		pass(10 * time.Second)
		world.requireInstances("db", "1")
	})
}

func TestRestart_BesideEmptyConsulHolds(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.old = []string{"web", "api"}
		world.start()
		pass(4 * time.Minute)
		require.Less(t, world.readsOf("web"), 30, "one in 15 s, in the end")
		require.Empty(t, world.names())
		world.requireState(sources.Degraded)
		pass(2 * time.Minute)
		require.Equal(t, []string{"api", "web"}, world.names(), "withdrawn")
		world.requireState(sources.Healthy)
	})
}

func TestUnwatchedServices_ReadInTurn(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		const services, places = 100, 24 // three of them for the change queries, which fail
		world.blind = true
		world.Change(func() {
			for i := range services {
				world.List(fmt.Sprintf("s%d", i), "1")
			}
		})
		world.places = places
		r := world.start()
		pass(time.Minute)
		require.True(t, world.synced())
		require.EqualValues(t, places-4, r.metrics.watches.Value(), "the names have one of the places")
		before := map[string]int{}
		for i := range services {
			before[fmt.Sprint("s", i)] = world.readsOf(fmt.Sprint("s", i))
		}
		pass(time.Minute)
		watched := 0
		for i := range services {
			switch n := world.readsOf(fmt.Sprint("s", i)) - before[fmt.Sprint("s", i)]; n {
			case 0:
				watched++
			default:
				assert.InDelta(t, 12, n, 1, "s%d: one in 5 s, as all others", i)
			}
		}
		require.Equal(t, places-4, watched)
		world.Change(func() {
			for i := range services {
				world.List(fmt.Sprintf("s%d", i), "2")
			}
		})
		pass(10 * time.Second)
		for i := range services {
			world.requireInstances(fmt.Sprint("s", i), "2")
		}
		require.LessOrEqual(t, get(world, &world.mostReads), places+maxConcurrentReads)
		pass(2 * time.Hour)
		least := services
		for i := range services {
			least = min(least, world.readsOf(fmt.Sprint("s", i)))
		}
		require.Greater(t, least, 40, "places go from hand to hand")
	})
}

func TestBusyService_ReadLessOften(t *testing.T) {
	testWorld(t, func(t *testing.T, w *world) {
		w.set("web", "0")
		w.set("api", "0")
		w.start()
		pass(time.Second)
		before, api := w.readsOf("web"), w.readsOf("api")
		for i := range 600 {
			w.set("web", fmt.Sprint(i+1))
			pass(time.Second)
		}
		require.InDelta(t, 2*(600/15+5), w.readsOf("web")-before, 4, "each time a watch and, as the old instance is missing, a confirmation")
		// Two waits of five minutes, and a resync with the watch after it.
		require.LessOrEqual(t, w.readsOf("api")-api, 4, "the changes of web cause no reads of api")
		pass(15 * time.Second)
		w.requireInstances("web", "600")
	})
}

func TestRateLimit_PausesReads(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.Change(func() {
			for i := range 10 {
				world.List(fmt.Sprint("s", i), "1")
			}
		})
		run := world.start()
		pass(10 * time.Second)
		world.Change(func() {
			world.Fails = limitedFor(30 * time.Second)
			world.Indexes["s1"] = world.Index
		})
		pass(time.Second)
		reads, names := get(world, &world.totalReads), get(world, &world.listed)
		pass(25 * time.Second)
		require.Equal(t, reads, get(world, &world.totalReads), "no read before the pause ends")
		require.Equal(t, names, get(world, &world.listed))
		require.NotZero(t, run.metrics.limited.Value())
		world.Fail(nil)
		pass(30 * time.Second)
		world.requireState(sources.Healthy)
	})
}

func TestFullCompare_RepairsMissedChange(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.wait = 24 * time.Hour
		world.set("web", "1")
		world.set("api", "1")
		run := world.start()
		pass(time.Second)
		world.Edit(func() { world.Services["web"] = consultest.Instances("2") }) // without a change of its index
		pass(12 * time.Minute)
		world.requireInstances("web", "2")
		require.EqualValues(t, 1, run.metrics.healed.Value())
		pass(time.Hour)
		require.EqualValues(t, 1, run.metrics.healed.Value())
	})
}
