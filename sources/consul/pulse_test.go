package consul

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/dial"
)

// A follower that is left over answers stale questions as if nothing were the matter.
func TestAClusterWithoutALeaderIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) { f.set("web", at("1")) })
		r := w.start(Settings{}, 0)
		pass(20 * time.Second)
		require.Equal(t, sources.Healthy, w.health().State)
		w.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{LastContact: 3 * time.Second} })
		pass(10 * time.Second)
		require.Equal(t, sources.Unreachable, w.health().State)
		require.Contains(t, w.health().Message, "no leader")
		require.Equal(t, []string{"/1"}, w.instancesOf("web"))
		require.Zero(t, vital(t, r, "known_leader"))
		w.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{KnownLeader: true} })
		pass(10 * time.Second)
		require.Equal(t, sources.Healthy, w.health().State)
		require.InDelta(t, 1, vital(t, r, "known_leader"), 0)
	})
}

// vital returns a metric of the servers.
func vital(t *testing.T, r *run, name string) float64 {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&r.metrics.vitals)
	all, err := registry.Gather()
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(f *dto.MetricFamily) bool { return f.GetName() == "tributary_consul_"+name })
	return all[i].GetMetric()[0].GetGauge().GetValue()
}

func TestAnElectionIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) { f.set("web", at("1")) })
		w.start(Settings{}, 0)
		pass(serverInterval - 500*time.Millisecond)
		w.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{} })
		pass(time.Second)
		w.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{KnownLeader: true} })
		for range 20 {
			require.Equal(t, sources.Healthy, w.health().State)
			pass(time.Second)
		}
	})
}

// What a server that has lost sight of its leader answers is too old: the leader is asked instead.
func TestWhatIsTooStaleIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) { f.set("web", at("1")) })
		r := w.start(Settings{MaxStale: 20 * time.Second}, 0)
		w.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{KnownLeader: true, LastContact: 19 * time.Second} })
		pass(time.Minute)
		require.Equal(t, sources.Healthy, w.health().State)
		w.change(local, func(f *fakeDomain) { f.pulse = dial.Pulse{KnownLeader: true, LastContact: 21 * time.Second} })
		pass(time.Minute)
		require.Equal(t, sources.Degraded, w.health().State)
		require.Contains(t, w.health().Message, "21s")
		require.InDelta(t, 21, vital(t, r, "last_contact_seconds"), 0)
		w.change(local, func(f *fakeDomain) { f.set("api", at("1")) })
		pass(10 * time.Second)
		w.mu.Lock()
		require.Equal(t, leaders, w.level, "the first read of a new service")
		w.mu.Unlock()
	})
}
