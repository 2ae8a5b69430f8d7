package consul

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/dial"
)

// A follower without a leader answers stale queries as usual.
func TestClusterWithoutLeader_Unhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t)
		world.change(local, func(f *fakeDomain) { f.set("web", instanceWithID("1")) })
		run := world.start(Settings{}, 0)
		pass(20 * time.Second)
		require.Equal(t, sources.Healthy, world.health().State)
		world.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{LastContact: 3 * time.Second} })
		pass(10 * time.Second)
		require.Equal(t, sources.Unreachable, world.health().State)
		require.Contains(t, world.health().Message, "no leader")
		require.Equal(t, []string{"/1"}, world.instancesOf("web"))
		require.Zero(t, vital(t, run, "known_leader"))
		world.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{KnownLeader: true} })
		pass(10 * time.Second)
		require.Equal(t, sources.Healthy, world.health().State)
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
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t)
		world.change(local, func(f *fakeDomain) { f.set("web", instanceWithID("1")) })
		world.start(Settings{}, 0)
		pass(serverInterval - 500*time.Millisecond)
		world.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{} })
		pass(time.Second)
		world.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{KnownLeader: true} })
		for range 20 {
			require.Equal(t, sources.Healthy, world.health().State)
			pass(time.Second)
		}
	})
}

// An answer of a server without a leader for too long is stale: the leader is queried instead.
func TestStaleServer_ReplacedByLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t)
		world.change(local, func(f *fakeDomain) { f.set("web", instanceWithID("1")) })
		run := world.start(Settings{MaxStale: 20 * time.Second}, 0)
		world.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{KnownLeader: true, LastContact: 19 * time.Second} })
		pass(time.Minute)
		require.Equal(t, sources.Healthy, world.health().State)
		world.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{KnownLeader: true, LastContact: 21 * time.Second} })
		pass(time.Minute)
		require.Equal(t, sources.Degraded, world.health().State)
		require.Contains(t, world.health().Message, "21s")
		require.InDelta(t, 21, vital(t, run, "last_contact_seconds"), 0)
		world.change(local, func(f *fakeDomain) { f.set("api", instanceWithID("1")) })
		pass(10 * time.Second)
		world.mu.Lock()
		require.Equal(t, leaders, world.level, "the first read of a new service")
		world.mu.Unlock()
	})
}

// A Consul that hangs keeps its connections open: the queries that wait meet no error.
func TestHangingConsul_Unreachable(t *testing.T) {
	for _, slots := range []int{0, 9} { // with all services watched, and with change queries
		synctest.Test(t, func(t *testing.T) {
			world := newWorld(t)
			world.change(local, twenty(0, 20, 50))
			world.start(Settings{}, slots)
			pass(time.Minute)
			require.Equal(t, sources.Healthy, world.health().State)
			world.change(local, func(f *fakeDomain) { f.hangs = true })
			pass(40 * time.Second)
			require.Equal(t, sources.Unreachable, world.health().State)
			require.Contains(t, world.health().Message, "the server does not answer: no answer within 15s")
			reads := world.allReads()
			pass(5 * time.Minute)
			require.Equal(t, sources.Unreachable, world.health().State)
			require.Less(t, world.allReads()-reads, 50, "services wait for the names")
			world.requireServed(0, 20)
			world.change(local, func(f *fakeDomain) { f.hangs = false; f.set("s00", instanceWithID("new")) })
			pass(10 * time.Second)
			require.Equal(t, sources.Healthy, world.health().State, world.health().Message)
			require.Equal(t, []string{"/new"}, world.instancesOf("s00"))
			world.requireServed(1, 20)
		})
	}
}

// A gateway that answers pulses with an error does not prolong a silence.
func TestHangingConsul_PulsesRefusedAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t)
		refused := api.StatusError{Code: 403, Body: "not allowed here"}
		world.change(local, twenty(0, 20, 50))
		world.change(local, func(f *fakeDomain) { f.pulseFails = refused })
		world.start(Settings{}, 0)
		pass(time.Minute)
		require.Equal(t, sources.Healthy, world.health().State)
		world.change(local, func(f *fakeDomain) { f.hangs = true })
		pass(40 * time.Second)
		require.Equal(t, sources.Unreachable, world.health().State)
		world.change(local, func(f *fakeDomain) { f.hangs = false })
		pass(time.Minute)
		require.Equal(t, sources.Healthy, world.health().State, world.health().Message)
	})
}

func TestSlowOrBrieflyHangingConsul_KeepsHealthy(t *testing.T) {
	for name, change := range map[string]func(*fakeDomain){
		"slow": func(f *fakeDomain) { f.slow = 14 * time.Second }, "hangs": func(f *fakeDomain) { f.hangs = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world := newWorld(t)
				world.change(local, twenty(0, 20, 50))
				world.start(Settings{}, 0)
				pass(20 * time.Second)
				world.change(local, change)
				for i := range 120 {
					if i == 20 {
						world.change(local, func(f *fakeDomain) { f.hangs = false })
					}
					require.Equal(t, sources.Healthy, world.health().State, world.health().Message)
					pass(time.Second)
				}
			})
		})
	}
}
