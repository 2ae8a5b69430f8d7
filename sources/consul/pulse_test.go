package consul

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"tributary/sources"
)

// A follower without a leader answers stale queries as usual.
func TestClusterWithoutLeader_Unhealthy(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.set("web", "1")
		run := world.start()
		pass(20 * time.Second)
		world.requireState(sources.Healthy)
		world.Change(func() { world.Leaderless, world.LastContact = true, 3*time.Second })
		pass(10 * time.Second)
		world.requireState(sources.Unreachable, "no leader")
		world.requireInstances("web", "1")
		require.Zero(t, vital(t, run, "known_leader"))
		world.Change(func() { world.Leaderless = false })
		pass(10 * time.Second)
		world.requireState(sources.Healthy)
		require.InDelta(t, 1, vital(t, run, "known_leader"), 0)
	})
}

// vital returns a metric of the servers.
func vital(t *testing.T, r *run, name string) float64 {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&r.metrics.vitals)
	families, err := registry.Gather()
	require.NoError(t, err)
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "tributary_consul_"+name })
	return families[i].GetMetric()[0].GetGauge().GetValue()
}

func TestElection_KeepsHealthy(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.set("web", "1")
		world.start()
		pass(serverInterval - 500*time.Millisecond)
		world.Change(func() { world.Leaderless = true })
		pass(time.Second)
		world.Change(func() { world.Leaderless = false })
		for range 20 {
			world.requireState(sources.Healthy)
			pass(time.Second)
		}
	})
}

// An answer of a server without a leader for too long is stale: the leader is queried instead.
func TestStaleServer_ReplacedByLeader(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.set("web", "1")
		run := world.start(Settings{MaxStale: 20 * time.Second})
		world.Change(func() { world.LastContact = 19 * time.Second })
		pass(time.Minute)
		world.requireState(sources.Healthy)
		world.Change(func() { world.LastContact = 21 * time.Second })
		pass(time.Minute)
		world.requireState(sources.Degraded, "21s")
		require.InDelta(t, 21, vital(t, run, "last_contact_seconds"), 0)
		world.set("api", "1")
		pass(10 * time.Second)
		require.Equal(t, leaders, get(world, &world.level), "the first read of a new service")
	})
}

// A Consul that hangs keeps its connections open: the queries that wait meet no error.
func TestHangingConsul_Unreachable(t *testing.T) {
	for _, slots := range []int{0, 9} { // with all services watched, and with change queries
		testWorld(t, func(t *testing.T, world *world) {
			world.change(local, twenty(0, 20, 50))
			world.places = slots
			world.start()
			pass(time.Minute)
			world.requireState(sources.Healthy)
			world.Change(func() { world.Hangs = true })
			pass(40 * time.Second)
			world.requireState(sources.Unreachable, "the server does not answer: no answer within 15s")
			reads := get(world, &world.totalReads)
			pass(5 * time.Minute)
			world.requireState(sources.Unreachable)
			require.Less(t, get(world, &world.totalReads)-reads, 50, "services wait for the names")
			world.requireServed(0, 20)
			world.Change(func() { world.Hangs = false; world.List("s00", "new") })
			pass(10 * time.Second)
			world.requireState(sources.Healthy)
			world.requireInstances("s00", "new")
			world.requireServed(1, 20)
		})
	}
}

// A gateway that answers pulses with an error does not prolong a silence.
func TestHangingConsul_PulsesRefusedAfterwards(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		refused := api.StatusError{Code: 403, Body: "not allowed here"}
		world.change(local, twenty(0, 20, 50))
		world.pulseFails = refused
		world.start()
		pass(time.Minute)
		world.requireState(sources.Healthy)
		world.Change(func() { world.Hangs = true })
		pass(40 * time.Second)
		world.requireState(sources.Unreachable)
		world.Change(func() { world.Hangs = false })
		pass(time.Minute)
		world.requireState(sources.Healthy)
	})
}

func TestSlowOrBrieflyHangingConsul_KeepsHealthy(t *testing.T) {
	eachWorld(t, map[string]time.Duration{"slow": 14 * time.Second, "hangs": 0}, func(t *testing.T, world *world, slow time.Duration) {
		world.change(local, twenty(0, 20, 50))
		world.start()
		pass(20 * time.Second)
		world.locked(func() { world.slowPulse = slow })
		world.Change(func() { world.Hangs = slow == 0 })
		for i := range 120 {
			if i == 20 {
				world.Change(func() { world.Hangs = false })
			}
			world.requireState(sources.Healthy)
			pass(time.Second)
		}
	})
}
