package consul

import (
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/lastgood"
)

// lifetime runs a source of a server as one process does, with the state in dir, until test returns.
func lifetime(t *testing.T, dir string, server *consultest.Server, test func(r *running)) {
	t.Helper()
	state, err := lastgood.Open(dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, state.Close()) }()
	r := runSourceAt(t, server.Address(), Settings{}, state.Source("consul"))
	test(r)
	r.Stop()
}

// Consul lost its data, and an instance is not back yet: it stays over a reload and a restart, as the rest does.
func TestMissingInstances_HeldAcrossReloadAndRestart(t *testing.T) {
	s, dir := consultest.New(t), t.TempDir()
	s.Register("web", "1", "2")
	s.Register("api", "1")
	lifetime(t, dir, s, func(r *running) {
		r.awaitEndpoints("web", 2)
		r.awaitEndpoints("api", 1)
		s.Wipe()
		r.AwaitState(sources.Degraded)
		s.Register("web", "1", "3")
		r.awaitEndpoints("web", 3)
		r.awaitRequests(s, 5, "/v1/health/service/", r.reload)
		r.AwaitState(sources.Degraded)
		require.Equal(t, 3, r.endpoints("web"))
		require.Equal(t, 1, r.endpoints("api"))
	})
	lifetime(t, dir, s, func(r *running) {
		r.awaitRequests(s, 5, "/v1/health/service/")
		r.AwaitState(sources.Degraded)
		r.awaitServed()
		require.Equal(t, 3, r.endpoints("web"))
		require.Equal(t, 1, r.endpoints("api"))
		s.Register("web", "1", "2", "5")
		r.awaitEndpoints("web", 4)
	})
}

// A lagging server answers a stale query in part during a start: the missing instances need a confirmation.
func TestMissingInstances_ConfirmedAfterRestart(t *testing.T) {
	s, dir := consultest.New(t), t.TempDir()
	pair := consultest.Instances("1 n1 5", "2 n2 6")
	s.Put("web", pair...)
	lifetime(t, dir, s, func(r *running) { r.awaitEndpoints("web", 2) })
	s.Edit(func() { s.Lags = map[string][]*api.ServiceEntry{"web": pair[:1]} })
	lifetime(t, dir, s, func(r *running) {
		r.Await("it is read again", func() bool {
			return r.endpoints("web") == 1 || len(s.Asked("/v1/health/service/web", "consistent=")) > 0
		})
		require.Equal(t, 2, r.endpoints("web"))
	})
}

// A token is narrowed to the nodes of one rack; the hidden instances stay, also across a reload and a restart, until
// they are visible again.
func TestNarrowedToken_KeepsHiddenInstances(t *testing.T) {
	server, dir := consultest.New(t), t.TempDir()
	t.Setenv("CONSUL_HTTP_TOKEN", "x")
	pair := consultest.Instances("1 n1 5", "2 n2 6")
	server.Put("web", pair...)
	const hidden = "no longer shows 1 of its instances"
	lifetime(t, dir, server, func(r *running) {
		r.awaitEndpoints("web", 2)
		server.Edit(func() { server.Nodes = map[string]bool{"n1": true} })
		server.Put("web", pair[0]) // the stream shows less, in silence
		r.AwaitState(sources.Denied, hidden)
		require.Equal(t, 2, r.endpoints("web"))
		r.awaitRequests(server, 2, "/v1/health/service/web?consistent=", r.reload)
		require.Equal(t, 2, r.endpoints("web"), "after a reload")
	})
	lifetime(t, dir, server, func(r *running) {
		r.AwaitState(sources.Denied, hidden)
		require.Equal(t, 2, r.endpoints("web"), "after a restart")
		server.Restore()
		r.awaitEndpoints("web", 1)
		r.AwaitState(sources.Healthy)
	})
}

// Consul was wiped while we did not run, overtook its index, and has all names again, but of one service not all
// instances.
func TestWipeDuringRestart_WithCompleteNames(t *testing.T) {
	server, dir := consultest.New(t), t.TempDir()
	server.Put("api", consultest.Instances("1 n1 5")...)
	server.Put("web", consultest.Instances("1 n1 5", "2 n2 6")...)
	lifetime(t, dir, server, func(r *running) {
		r.awaitEndpoints("web", 2)
		r.awaitEndpoints("api", 1)
	})
	server.Edit(func() { server.Lose(500) })
	server.Put("api", consultest.Instances("1 n1 400")...)
	server.Put("web", consultest.Instances("1 n1 400")...)
	for range 2 {
		lifetime(t, dir, server, func(r *running) {
			r.Await("it is suspected", func() bool { return strings.Contains(r.Status().Message, "lost its data") || r.endpoints("web") == 1 })
			r.awaitServed()
			require.Equal(t, 2, r.endpoints("web"))
		})
	}
	server.Put("web", consultest.Instances("1 n1 400", "2 n2 402", "3 n3 403")...)
	lifetime(t, dir, server, func(r *running) {
		r.awaitEndpoints("web", 3)
	})
}

// An instance deregistered while the source is stopped is removed without a hold.
func TestDeregisteredInstance_RemovedAfterRestart(t *testing.T) {
	for name, nodes := range map[string]map[string]bool{"no ACLs": nil, "a token": {"n1": true, "n2": true}} {
		t.Run(name, func(t *testing.T) {
			s, dir := consultest.New(t), t.TempDir()
			pair := consultest.Instances("1 n1 5", "2 n2 6")
			if s.Nodes = nodes; nodes != nil {
				t.Setenv("CONSUL_HTTP_TOKEN", "x")
			}
			s.Put("web", pair...)
			lifetime(t, dir, s, func(r *running) { r.awaitEndpoints("web", 2) })
			s.Put("web", pair[0])
			lifetime(t, dir, s, func(r *running) {
				r.awaitEndpoints("web", 1)
				r.AwaitState(sources.Healthy)
			})
		})
	}
}
