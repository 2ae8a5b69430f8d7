package consul

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/mapping"
	"tributary/sources/lastgood"
)

// lifetime runs a source of a server as one process does, with what is kept in dir, until test has ended.
func lifetime(t *testing.T, dir string, s *server, test func(r *running, reload func())) {
	t.Helper()
	state, err := lastgood.Open(dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, state.Close()) }()
	made := func() *Source {
		source, err := New(Scheme+"://"+s.address(), Settings{Mapping: mapping.Options{Aliases: "none"}})
		require.NoError(t, err)
		return source
	}
	r := &running{t: t, table: &memstore.Table{}, supervisor: sources.NewSupervisor(sources.Options{})}
	spec := sources.Spec{Name: "consul", Source: made(), Table: r.table, Memory: state.Source("consul")}
	require.NoError(t, r.supervisor.Add(spec))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.supervisor.Run(ctx) }()
	test(r, func() {
		spec.Source = made()
		require.NoError(t, r.supervisor.Swap(spec))
	})
	cancel()
	require.NoError(t, <-ended)
}

// endpoints returns how many a service has.
func (r *running) endpoints(name string) int {
	o := r.table.Snapshot().Get(resource.Key{Kind: "ServiceEntry", Namespace: "consul", Name: name})
	if o == nil {
		return -1
	}
	spec, err := o.Spec()
	require.NoError(r.t, err)
	return len(spec.(*networking.ServiceEntry).Endpoints)
}

// Consul lost its data, and an instance is not back yet: it stays over a reload and a restart, as the rest does.
func TestInstancesThatAreNotBackOutliveAReloadAndARestart(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	s.put("web", instance("web", "1", "10.0.0.1", 80), instance("web", "2", "10.0.0.2", 80))
	s.put("api", instance("api", "1", "10.0.0.3", 80))
	lifetime(t, dir, s, func(r *running, reload func()) {
		r.await("both", func() bool { return r.endpoints("web") == 2 && r.endpoints("api") == 1 })
		s.wipe()
		r.await("it is suspected", func() bool { return r.status().State == sources.Degraded })
		s.put("web", instance("web", "1", "10.0.0.1", 80), instance("web", "3", "10.0.0.4", 80))
		r.await("what is new", func() bool { return r.endpoints("web") == 3 })
		before := len(s.asked("/v1/health/service/"))
		reload()
		r.await("it is read anew", func() bool {
			return len(s.asked("/v1/health/service/")) > before+4 && r.status().State == sources.Degraded
		})
		require.Equal(t, 3, r.endpoints("web"))
		require.Equal(t, 1, r.endpoints("api"))
	})
	lifetime(t, dir, s, func(r *running, _ func()) {
		before := len(s.asked("/v1/health/service/"))
		r.await("it is read anew", func() bool {
			return len(s.asked("/v1/health/service/")) > before+4 && r.status().State == sources.Degraded
		})
		require.True(t, r.status().Synced)
		require.Equal(t, 3, r.endpoints("web"))
		require.Equal(t, 1, r.endpoints("api"))
		s.put("web", instance("web", "1", "10.0.0.1", 80), instance("web", "2", "10.0.0.2", 80), instance("web", "5", "10.0.0.5", 80))
		r.await("what is new", func() bool { return r.endpoints("web") == 4 })
	})
}

func on(id, address, node string, created uint64) *api.ServiceEntry {
	e := instance("web", id, address, 80)
	e.Node = &api.Node{ID: "0", Node: node, Address: address, Datacenter: "dc1", CreateIndex: created}
	return e
}

// inFront puts f in front of a server; f reports whether it answered.
func inFront(t *testing.T, s *server, f func(w http.ResponseWriter, r *http.Request) bool) {
	inner := s.http
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f(w, r) {
			s.serve(w, r)
		}
	}))
	t.Cleanup(inner.Close)
}

func consulHeaders(w http.ResponseWriter, index string) {
	w.Header().Set("X-Consul-Index", index)
	w.Header().Set("X-Consul-LastContact", "0")
	w.Header().Set("X-Consul-KnownLeader", "true")
}

// A server that lags behind answers a stale question in part just when we start again: what is missing is to be confirmed.
func TestMissingInstancesAreConfirmedAtARestart(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	one, two := on("1", "10.0.0.1", "n1", 5), on("2", "10.0.0.2", "n2", 6)
	var lags, plain atomic.Bool
	inFront(t, s, func(w http.ResponseWriter, r *http.Request) bool {
		if lags.Load() && r.URL.Path == "/v1/health/service/web" && r.URL.Query().Has("stale") {
			if r.URL.Query().Has("index") {
				<-r.Context().Done() // it has heard of nothing newer
				return true
			}
			consulHeaders(w, "11")
			_, _ = w.Write(marshal([]*api.ServiceEntry{one}))
			return true
		}
		if r.URL.Path == "/v1/health/service/web" && r.URL.Query().Has("consistent") {
			plain.Store(true)
		}
		return false
	})
	s.put("web", one, two)
	lifetime(t, dir, s, func(r *running, _ func()) { r.await("both", func() bool { return r.endpoints("web") == 2 }) })
	lags.Store(true)
	lifetime(t, dir, s, func(r *running, _ func()) {
		r.await("it is read anew", func() bool { return r.endpoints("web") == 1 || plain.Load() })
		require.Equal(t, 2, r.endpoints("web"))
	})
}
