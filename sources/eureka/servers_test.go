package eureka

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/eureka/eurekatest"
	"tributary/sources/registry"
)

// cluster is a run with several servers.
type cluster struct {
	*state
	t       *testing.T
	servers []*eurekatest.Server
}

func newCluster(t *testing.T, count int) *cluster {
	created := &cluster{t: t}
	var hosts []string
	for range count {
		server := eurekatest.Start(t)
		created.servers = append(created.servers, server)
		hosts = append(hosts, server.Host())
	}
	source, err := New("eureka://"+strings.Join(hosts, ","), Settings{PollSettings: registry.PollSettings{Hold: time.Hour, Resync: time.Hour}})
	require.NoError(t, err)
	created.state = begun(source, newShelf(), time.Now())
	return created
}

// begun returns a run of the source that has restored the sink's state.
func begun(source *Source, sink sources.Sink, now time.Time) *state {
	created := newState(source)
	created.Begin(sink, now)
	return created
}

func (c *cluster) put(server *eurekatest.Server, addresses ...string) {
	put(server, "orders", addresses...)
}

// expect polls, and checks the health, the followed server, and the served addresses.
func (c *cluster) expect(state sources.State, server int, addresses ...string) sources.Health {
	c.t.Helper()
	batch := c.Poll(c.t.Context(), time.Now())
	require.Equal(c.t, state, batch.Health.State, batch.Health.Message)
	require.Equal(c.t, server, c.Follower.Server)
	require.Equal(c.t, addresses, (&book{state: c.state, t: c.t}).served(orders))
	return batch.Health
}

func TestSeveralServers(t *testing.T) {
	cluster := newCluster(t, 3)
	first, second, third := cluster.servers[0], cluster.servers[1], cluster.servers[2]
	every := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}
	for _, server := range cluster.servers {
		cluster.put(server, every...)
	}
	cluster.expect(sources.Healthy, 0, every...)
	first.Stop()
	second.Delete("orders", every[3])
	second.Settle()
	health := cluster.expect(sources.Degraded, 1, every...)
	require.Contains(t, health.Message, "1 endpoint is not listed and stays (eureka vip orders) until ")
	require.Equal(t, 1, health.Unconfirmed)
	require.NotZero(t, health.End)
	cluster.put(second, every[3])
	cluster.expect(sources.Healthy, 1, every...)

	first.Restart()
	cluster.expect(sources.Healthy, 1, every...)
	cluster.Follower.Returns = time.Time{}
	cluster.expect(sources.Healthy, 0, every...)
	second.Stop()
	first.Stop()
	cluster.expect(sources.Healthy, 2, every...)
	first.Restart()
	first.Forget()
	cluster.put(first, every[0])
	cluster.Follower.Returns = time.Time{}
	cluster.expect(sources.Healthy, 2, every...) // the first server lists too little

	first.Stop()
	third.Stop()
	health = cluster.expect(sources.Unreachable, 2, every...)
	for _, server := range cluster.servers {
		require.Contains(t, health.Message, server.Host())
	}
	third.Restart()
	third.Ask("me:word")
	cluster.expect(sources.Denied, 2, every...)
	third.Ask("")
	health = cluster.expect(sources.Healthy, 2, every...)
	require.EqualValues(t, 3, cluster.counts.Switches.Value())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, registry.Batch{Health: health, Next: time.Hour}, cluster.Poll(ctx, time.Now()))
}

// TestChanges_ProveRemoval has instances go during a suspicion: at once if the server reports their end, else after the
// hold.
func TestChanges_ProveRemoval(t *testing.T) {
	cluster := newCluster(t, 1)
	server := cluster.servers[0]
	every := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}
	cluster.put(server, every...)
	cluster.expect(sources.Healthy, 0, every...)
	server.Delete("orders", every[0])
	server.Expire("orders", every[1])
	cluster.expect(sources.Healthy, 0, every[2:]...)
	require.True(t, cluster.RemovalsObserved)
	server.Delete("orders", every[2])
	server.Settle()
	cluster.expect(sources.Degraded, 0, every[2:]...)
	require.False(t, cluster.RemovalsObserved)
	server.Answer("/apps/delta", 403)
	cluster.expect(sources.Degraded, 0, every[2:]...)
}

// TestUnchangedListing has a server repeat its answer: the source decodes it once, and does not begin a suspicion.
func TestUnchangedListing(t *testing.T) {
	cluster := newCluster(t, 1)
	cluster.put(cluster.servers[0], "10.0.0.1")
	cluster.expect(sources.Healthy, 0, "10.0.0.1")
	cluster.listed = nil
	cluster.expect(sources.Healthy, 0, "10.0.0.1")
	require.Nil(t, cluster.listed)
	require.EqualValues(t, 1, cluster.counts.Suspicions.Value())
	require.EqualValues(t, 2, cluster.counts.Reads.Value())
}
