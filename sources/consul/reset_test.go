package consul

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/presence"
)

// twenty fills a domain with services of the numbers from one to another, each on one of two nodes.
func twenty(from, to int, index uint64) func(*datacenter) {
	return func(f *datacenter) {
		for i := from; i < to; i++ {
			f.SetService(fmt.Sprintf("s%02d", i), instanceOnNode("1", fmt.Sprint("n", i%2), index+uint64(i%2)))
		}
	}
}

// requireServed checks that services are served with their instance.
func (w *world) requireServed(from, to int) {
	w.t.Helper()
	for i := from; i < to; i++ {
		require.Equal(w.t, []string{"/1"}, w.instancesOf(fmt.Sprintf("s%02d", i)), i)
	}
}

// Consul loses its data while the source is stopped, and some agents register their services again before the start.
func TestWipeDuringRestart_HoldsServices(t *testing.T) {
	eachWorld(t, map[string]uint64{
		"at an older index": 20, "at a higher index": 500,
	}, func(t *testing.T, world *world, index uint64) {
		world.startFull()
		world.stop()
		world.wipe(index, twenty(0, 12, index-10))
		world.start()
		pass(2 * time.Minute)
		world.requireServed(0, 20)
		world.requireState(sources.Degraded)
		world.change(local, twenty(12, 20, index))
		pass(20 * time.Second)
		world.requireServed(0, 20)
		pass(10 * time.Minute)
		world.requireServed(0, 20)
		world.requireState(sources.Healthy)
	})
}

// Other settings select other services: that is no loss of data.
func TestChangedSettings_RaiseNoSuspicion(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.startFull()
		world.stop()
		world.Change(func() {
			for i := 2; i < 20; i++ {
				world.RemoveService(fmt.Sprintf("s%02d", i)) // as a filter does
			}
		})
		world.start(Settings{Filter: "ServiceMeta.mesh == yes"})
		pass(2 * time.Minute)
		world.requireState(sources.Healthy)
		world.requireServed(0, 2)
		world.requireWithdrawn("s02")
	})
}

// The index alone does not show that Consul lost its data: that of a young one is overtaken soon.
func TestWipeWithHigherIndex_Detected(t *testing.T) {
	eachWorld(t, map[string]bool{
		"in an outage": true, "behind an agent that hid it": false,
	}, func(t *testing.T, world *world, outage bool) {
		world.startFull()
		if outage {
			world.Fail(errDown)
			pass(5 * time.Second)
		}
		world.wipe(500, twenty(0, 11, 400))
		pass(time.Minute)
		world.requireServed(0, 20)
		world.requireState(sources.Degraded)
		pass(10 * time.Minute)
		world.requireServed(0, 11)
		world.requireWithdrawn("s11")
	})
}

// Of a service that is on several nodes one node is back, and the names are all there.
func TestWipeWithCompleteNames_HoldsInstances(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.set("web", "1 n0 50", "2 n1 51")
		world.set("api", "1 n0 50")
		world.start()
		pass(10 * time.Second)
		world.Change(func() {
			world.Lose(500)
			world.List("web", "1 n0 400")
			world.List("api", "1 n0 400")
		})
		pass(time.Minute)
		require.Len(t, world.instancesOf("web"), 2)
		world.requireState(sources.Degraded)
		pass(10 * time.Minute)
		world.requireInstances("web", "1")
	})
}

// A suspicion ends: its cause does not start the next one.
func TestSuspicion_EndsOnce(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.set("web", "1 n0 50", "2 n0 50")
		world.start()
		pass(10 * time.Second)
		world.Edit(func() { // the names do not change, and are not read again
			world.Services["web"], world.Indexes["web"] = consultest.Instances("1 n0 400"), 1000
		})
		pass(4 * time.Minute)
		world.requireInstances("web", "1", "2")
		world.requireState(sources.Degraded)
		pass(2 * time.Minute)
		world.requireInstances("web", "1")
		world.requireState(sources.Healthy)
	})
}

func TestSeveralRemovals_RaiseNoSuspicion(t *testing.T) {
	testWorld(t, func(_ *testing.T, w *world) {
		w.startFull()
		w.change(local, func(d *datacenter) {
			for i := range 15 {
				d.RemoveService(fmt.Sprintf("s%02d", i))
			}
		})
		pass(10 * time.Second)
		w.requireState(sources.Healthy)
		w.requireInstances("s00")
		w.requireServed(15, 20)
	})
}

// A datacenter that never had a service has lost none, either.
func TestEmptyDatacenter_UnsuspectedAfterRestart(t *testing.T) {
	testWorld(t, func(_ *testing.T, w *world) {
		w.change(east, twenty(0, 20, 50))
		w.settings = Settings{Datacenters: []string{"east", "west"}}
		for range 2 {
			w.start()
			pass(time.Minute)
			w.requireState(sources.Healthy)
			w.stop()
		}
	}, east, west)
}

// The clock was wrong when the suspicion was kept.
func TestSuspicionOfWrongClock_Ends(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.change(local, twenty(0, 2, 50))
		s := Settings{}
		require.NoError(t, s.complete())
		world.note = judge.Records{Settings: s.identity(), Scopes: map[string]judge.Record{"": {
			Index: 101, Names: []string{"s00", "s01"}, Suspicion: presence.Suspicion{End: time.Now().AddDate(20, 0, 0), Why: "lost its data"},
		}}}.Encode()
		world.start()
		pass(time.Minute)
		world.requireState(sources.Degraded)
		pass(time.Hour)
		world.requireState(sources.Healthy)
	})
}

// Consul is wiped just after the names were read at a restart, before the services are.
func TestWipeDuringFirstReads_HoldsServices(t *testing.T) {
	testWorld(t, func(t *testing.T, w *world) {
		w.change(local, twenty(0, 20, 50))
		w.settings = Settings{RampRate: 5}
		w.start()
		pass(time.Minute)
		w.stop()
		clear(w.published)
		w.start()
		pass(time.Second) // the names are there, most services are not
		w.locked(func() { w.slowNames = 2 * time.Second })
		w.wipe(2)
		pass(30 * time.Second)
		for _, name := range w.names() { // those that the second run published
			require.NotEmpty(t, w.instancesOf(name), name)
		}
	})
}

// Consul gives for a service that it never heard of the index of all services.
func TestWipeWithHigherIndexOfUnknownServices_Detected(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.startFull()
		world.locked(func() { world.slowNames = 200 * time.Millisecond })
		world.Change(func() {
			world.Lose(500)
			twenty(0, 11, 400)(world.datacenter)
			for i := 11; i < 20; i++ {
				world.Indexes[fmt.Sprintf("s%02d", i)] = 500
			}
		})
		pass(time.Minute)
		world.requireServed(0, 20)
	})
}

// slowRights is a world with slow queries about rights.
type slowRights struct {
	*world
	rights time.Duration
}

func (s *slowRights) mayRead(ctx context.Context, d scope, anonymous bool, rights []dial.Right) (bool, error) {
	for _, r := range rights {
		if r.Name == "s19" {
			time.Sleep(s.rights)
		}
	}
	return s.world.mayRead(ctx, d, anonymous, rights)
}

// Names read before a wipe do not confirm reads after it.
func TestNamesBeforeWipe_ConfirmNoReads(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.change(local, twenty(0, 20, 50))
		shows := map[string]bool{}
		for i := range 20 {
			shows[fmt.Sprintf("s%02d", i)] = true
		}
		world.Change(func() { world.Shows = shows })
		world.startWith(&slowRights{world, 2 * time.Second}, world)
		pass(20 * time.Second)
		world.requireServed(0, 20)
		world.Remove("s19")
		pass(500 * time.Millisecond) // the names were answered, and whether s19 is hidden is being asked
		world.locked(func() { world.slowNames = time.Second })
		world.Change(func() { world.Lose(2); world.Shows = shows })
		for range 60 {
			pass(500 * time.Millisecond)
			for i := range 19 {
				require.NotEmpty(t, world.instancesOf(fmt.Sprintf("s%02d", i)), "%d: %s", i, world.health().Message)
			}
		}
	})
}
