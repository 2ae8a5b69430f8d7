package consulkv

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consulkv/kvtest"
)

// running is a source that runs, as the program runs it, until the test ends.
type running struct {
	t          *testing.T
	consul     *kvtest.Consul
	table      *memstore.Table
	supervisor *sources.Supervisor
}

func runSource(t *testing.T, consul *kvtest.Consul, settings Settings) *running {
	t.Helper()
	r := &running{t: t, consul: consul, table: new(memstore.Table)}
	r.run(settings)
	return r
}

// run starts the source, on a table with the objects of an earlier run, if any.
func (r *running) run(settings Settings) {
	r.t.Helper()
	r.runAt(r.consul.Addr(), settings)
}

// runAt starts it with an address in front of the server.
func (r *running) runAt(address string, settings Settings) {
	t := r.t
	t.Helper()
	r.supervisor = sources.NewSupervisor(sources.Options{
		NewBackOff: func() backoff.BackOff { return backoff.NewConstantBackOff(5 * time.Millisecond) },
	})
	require.NoError(t, r.supervisor.Reconfigure([]sources.Spec{{Name: "kv", Source: sourceAt(t, address, settings), Table: r.table}}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.supervisor.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func (r *running) await(operation string, ok func() bool) {
	r.t.Helper()
	storetest.Eventually(r.t, ok, "%s; %+v", operation, r.status())
}

func (r *running) status() sources.Status { return r.supervisor.Status()[0] }

func (r *running) has(name string) bool {
	return r.table.Snapshot().Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}) != nil
}

func (r *running) awaitHealth(state sources.State, parts ...string) {
	r.t.Helper()
	r.await("its health", func() bool {
		s := r.status()
		for _, p := range parts {
			if !strings.Contains(s.Message, p) {
				return false
			}
		}
		return s.State == state
	})
}

func TestPlacesNameKeyAndLine(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/all.yaml", "# comment\n"+entryText("a", 80)+"---\n"+entryText("b", 80000)+"---\nkind: [\n---\n"+entryText("d", 80))
	c.Set("mesh/", "")            // the value that Consul's UI writes for a folder
	c.Set("meshes/x", "not ours") // the prefix is a folder, not a beginning of names
	r := runSource(t, c, Settings{})
	r.await("sync", r.table.Synced)
	shown := "consul-kv " + c.Addr() + " key mesh/all.yaml:"
	a := r.table.Snapshot().Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "a"})
	require.Equal(t, shown+"2", a.Origin().Place)
	require.True(t, r.has("d"), "bad neighbours do no harm")
	var places []string
	for _, q := range r.status().Quarantined {
		places = append(places, strings.TrimPrefix(q.Place, shown))
	}
	require.Len(t, places, 2, "%v", r.status().Quarantined)
	require.Equal(t, 2, r.table.Snapshot().Len())
}

func TestSource_WaitsWithOneQuery(t *testing.T) {
	c := kvtest.New(t)
	for _, name := range []string{"a", "b", "c"} {
		c.Set("mesh/"+name, entryText(name, 80))
	}
	r := runSource(t, c, Settings{Wait: time.Minute})
	r.await("sync", r.table.Synced)
	c.Set("mesh/d", entryText("d", 80))
	r.await("the new one", func() bool { return r.has("d") })
	reads := c.Reads()
	require.Equal(t, "recurse=&wait=60000ms", reads[0])
	require.LessOrEqual(t, len(reads), 3)
	for _, q := range reads[1:] {
		require.Regexp(t, `^index=\d+&recurse=&wait=60000ms$`, q)
	}
}

func TestWipe_IsHeld(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/a", entryText("a", 80))
	r := runSource(t, c, Settings{ResetHold: time.Hour})
	r.await("sync", r.table.Synced)
	r.wipe()
	r.awaitHealth(sources.Degraded, "Consul seems to have lost its data", "mesh/")
	c.Set("other/x", "") // does not end it
	c.Set("mesh/b", entryText("b", 80))
	r.await("the present objects", func() bool { return r.has("b") })
	require.True(t, r.has("a"))
}

func TestWipe_HoldEnds(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/a", entryText("a", 80))
	c.Set("mesh/b", entryText("b", 80))
	r := runSource(t, c, Settings{ResetHold: time.Millisecond})
	r.await("sync", r.table.Synced)
	r.wipe("mesh/b")
	r.await("the present objects", func() bool { return r.has("b") && !r.has("a") })
	r.awaitHealth(sources.Healthy)
	// the last one is deleted: the source believes it
	c.Delete("mesh/b")
	r.await("the guard hears that b is gone", func() bool { return r.supervisor.Status()[0].Held != nil }) // after a, it is all there was
}

func TestIndexThatGoesBackwards_IsNoWipe(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/a", entryText("a", 80))
	c.Set("mesh/b", entryText("b", 80))
	c.Delete("mesh/b")
	r := runSource(t, c, Settings{Wait: time.Second})
	r.await("sync", r.table.Synced)
	c.Forget() // the index of the prefix is that of a again
	c.Set("other/x", "")
	reads := len(c.Reads())
	r.await("it asks anew", func() bool { return len(c.Reads()) > reads+1 })
	require.True(t, r.has("a"))
	c.Set("mesh/c", entryText("c", 80))
	r.await("it follows", func() bool { return r.has("c") })
	r.awaitHealth(sources.Healthy)
}

func TestHealth_NamesFailure(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/a", entryText("a", 80))
	r := runSource(t, c, Settings{})
	r.await("sync", r.table.Synced)
	c.Answer(http.StatusForbidden, "Permission denied")
	r.awaitHealth(sources.Denied, "consul-kv "+c.Addr()+": read mesh/: ", "Permission denied",
		`it needs key_prefix "mesh/" { policy = "read" }`)
	c.Filter()
	r.awaitHealth(sources.Denied, "the token sees only part of the keys under mesh/", "policy")
	c.Answer(http.StatusTooManyRequests, "too many", "Retry-After", "0")
	r.awaitHealth(sources.Unreachable, "rate limited by Consul")
	c.HangUp()
	r.awaitHealth(sources.Unreachable, c.Addr(), "EOF")
	c.Restore()
	r.awaitHealth(sources.Healthy)
	require.True(t, r.has("a"))
}

func TestClusterWithoutLeader_IsUnhealthy(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/a", entryText("a", 80))
	metrics := prometheus.NewRegistry()
	leader := func(want float64) func() bool {
		return func() bool {
			families, err := metrics.Gather()
			require.NoError(t, err)
			return len(families) == 2 && families[0].GetName() == "tributary_consul_known_leader" &&
				families[0].GetMetric()[0].GetGauge().GetValue() == want
		}
	}
	r := runSource(t, c, Settings{Registerer: metrics})
	r.awaitHealth(sources.Healthy)
	r.await("its leader", leader(1))
	c.Orphan()
	r.awaitHealth(sources.Unreachable, "no leader")
	r.await("no leader", leader(0))
	require.True(t, r.has("a"))
	c.Restore()
	r.awaitHealth(sources.Healthy)
}

func TestEmptyAnswer_IsConfirmed(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/a", entryText("a", 80))
	r := runSource(t, c, Settings{})
	r.await("sync", r.table.Synced)
	c.Deceive()
	r.awaitHealth(sources.Denied, "sees only part")
	require.True(t, r.has("a"))
	c.Restore()
	r.awaitHealth(sources.Healthy)
	require.Contains(t, c.Reads(), "consistent=&recurse=")
}

func TestSilentlyHiddenKeys_Stay(t *testing.T) {
	for _, hidden := range []string{"mesh/", "mesh/b"} {
		t.Run(hidden, func(t *testing.T) {
			c := kvtest.New(t)
			c.Set("mesh/a", entryText("a", 80))
			c.Set("mesh/b", entryText("b", 80))
			r := runSource(t, c, Settings{})
			r.await("sync", r.table.Synced)
			c.Hide(hidden)
			r.awaitHealth(sources.Denied, "Permission denied", "policy")
			require.True(t, r.has("a") && r.has("b"))
			c.Restore()
			r.awaitHealth(sources.Healthy)
			c.Delete("mesh/b")
			r.await("b is gone", func() bool { return !r.has("b") })
		})
	}
	c := kvtest.New(t)
	c.Set("mesh/a", entryText("a", 80))
	c.Hide("mesh/")
	r := runSource(t, c, Settings{})
	r.awaitHealth(sources.Denied, "Permission denied")
	require.False(t, r.table.Synced())
	require.ErrorContains(t, newStore(t, c).Refresh(t.Context()), "Permission denied")
}

func TestRetryAfter_IsRespected(t *testing.T) {
	c := kvtest.New(t)
	c.Answer(http.StatusTooManyRequests, "too many", "Retry-After", "3600")
	r := runSource(t, c, Settings{})
	r.awaitHealth(sources.Unreachable, "to be asked again after 1m0s")
	c.Restore()
	require.Never(t, r.table.Synced, 100*time.Millisecond, 10*time.Millisecond) // in 5 ms it would be otherwise
}

func TestNew_NamesWrongSetting(t *testing.T) {
	for address, want := range map[string]string{
		"consul-kv://h:8500":      "address: ",
		"consul-kv://h:8500/":     "the prefix of the keys is missing",
		"consul-kv://h:8500/a//b": "an element of the prefix is empty",
		"consul://h:8500/a":       "want consul-kv://host:port",
	} {
		_, err := New(address, Settings{})
		require.ErrorContains(t, err, want, address)
	}
	_, err := New("consul-kv://h:8500/a", Settings{Texts: sources.Texts{UnknownFields: "maybe"}})
	require.ErrorContains(t, err, `unknownFields: want "error" or "warn", got "maybe"`)
	s, err := New("consul-kv://h:8500/a/b/?dc=dc2", Settings{})
	require.NoError(t, err)
	require.Equal(t, "a/b/", s.place.prefix)
	require.Equal(t, "consul-kv h:8500 dc dc2", s.place.shown)
}
