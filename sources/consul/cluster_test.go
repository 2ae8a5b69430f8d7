package consul

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
)

// A young Consul that lost its data has the same nodes at the same indexes again, and a higher index than before: only
// the cluster's identity differs.
func TestWipedConsul_DetectedByClusterID(t *testing.T) {
	wiped := func(f *datacenter, names, instances int) {
		f.Lose(500)
		f.Cluster = "2"
		twenty(0, names, 50)(f)
		if instances == 1 {
			f.List("web", "1 n0 50")
		} else {
			f.List("web", "1 n0 50", "2 n1 51")
		}
	}
	for name, c := range map[string]struct{ names, instances int }{
		"a name is missing":      {5, 2},
		"an instance is":         {6, 1},
		"no service is, for now": {6, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, restart := range []bool{false, true} {
				testWorld(t, func(t *testing.T, world *world) {
					world.set("web", "1 n0 50", "2 n1 51")
					world.Change(func() { world.Cluster = "1"; twenty(0, 6, 50)(world.datacenter) })
					world.start()
					pass(time.Minute)
					if restart {
						world.stop()
					}
					world.change(local, func(f *datacenter) { wiped(f, c.names, c.instances) })
					if restart {
						world.start()
					}
					pass(time.Minute)
					world.Remove("s04") // makes the names doubtful
					pass(time.Minute)
					world.requireServed(0, min(c.names, 4))
					require.Equal(t, []string{"1", "2"}, world.endpoints("web"))
					require.Equal(t, []string{"1"}, world.endpoints("s05"))
					world.requireState(sources.Degraded)
					pass(10 * time.Minute)
					require.Len(t, world.endpoints("web"), c.instances)
					world.requireState(sources.Healthy)
				})
			}
		})
	}
}

// Missing instances stay while the cluster's identity is unreadable; new ones are served.
func TestUnreadableClusterID_KeepsInstances(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.Change(func() {
			world.Cluster = "1"
			world.List("web", "1 n0 50", "2 n1 51")
			world.List("api", "1")
			world.List("db", "1")
		})
		world.start()
		pass(time.Minute)
		world.locked(func() { world.nameless = errors.New("the authority has not finished its start") })
		world.set("web", "1 n0 50")
		world.set("api", "1", "2")
		pass(time.Minute)
		require.Equal(t, []string{"1", "2"}, world.endpoints("web"))
		require.Equal(t, []string{"1", "2"}, world.endpoints("api"))
		require.Contains(t, world.health().Message, "has not finished its start")
		world.locked(func() { world.nameless = nil })
		pass(time.Minute)
		require.Equal(t, []string{"1"}, world.endpoints("web"))
		world.requireState(sources.Healthy)
	})
}

// Consul was wiped and created all nodes again, and names were read since: a later loss still belongs to the wipe.
func TestLateLoss_AfterWipeHeld(t *testing.T) {
	testWorld(t, func(t *testing.T, w *world) {
		w.Change(func() {
			w.List("web", "1 n0 50", "2 n1 51")
			twenty(0, 3, 50)(w.datacenter)
		})
		w.start()
		pass(time.Minute)
		registeredAgain := consultest.Instances("1 n0 400", "2 n1 401")
		w.Change(func() {
			w.Lose(500)
			w.SetService("web", registeredAgain)
			twenty(0, 3, 400)(w.datacenter)
		})
		pass(time.Minute)
		w.set("new", "1 n0 400")
		pass(10 * time.Second)
		w.set("web", "1 n0 400")
		pass(time.Minute)
		require.Equal(t, []string{"1", "2"}, w.endpoints("web"))
		pass(10 * time.Minute)
		require.Equal(t, []string{"1"}, w.endpoints("web"))
		w.requireState(sources.Healthy)
	})
}
