package consulkv

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/sourcetest"
)

// running is a source that runs, as the program runs it, until the test ends.
type running struct {
	*sourcetest.Running

	consul *consultest.Server
	table  *memstore.Table
}

func runSource(t *testing.T, consul *consultest.Server, settings Settings) *running {
	t.Helper()
	return runThis(t, consul, newSource(t, consul, settings))
}

// synced runs a source of a Consul with a number of rules, and waits until they are served.
func synced(t *testing.T, rules int, settings Settings) (*consultest.Server, *running) {
	t.Helper()
	consul := consultest.New(t)
	filled(consul, 0, rules)
	r := runSource(t, consul, settings)
	r.AwaitSync()
	return consul, r
}

// runThis runs a source on the objects of an earlier run, if any.
func runThis(t *testing.T, consul *consultest.Server, source *Source, objects ...*resource.Resource) *running {
	t.Helper()
	table := new(memstore.Table)
	_, _ = table.Apply(objects, nil)
	return &running{sourcetest.Start(t, sources.Spec{Name: "kv", Source: source, Table: table}, sources.Options{
		NewBackOff: func() backoff.BackOff { return backoff.NewConstantBackOff(5 * time.Millisecond) },
	}), consul, table}
}

func (r *running) has(name string) bool { return r.ServiceEntry("shop", name) != nil }

// reads returns the lists that were requested.
func reads(consul *consultest.Server) []string { return consul.Asked("recurse=") }

func TestPlacesNameKeyAndLine(t *testing.T) {
	c := consultest.New(t)
	c.Set("mesh/all.yaml", "# comment\n"+entryText("a", 80)+"---\n"+entryText("b", 80000)+"---\nkind: [\n---\n"+entryText("d", 80))
	c.Set("mesh/", "")            // the value that Consul's UI writes for a folder
	c.Set("meshes/x", "not ours") // the prefix is a folder, not a beginning of names
	running := runSource(t, c, Settings{})
	running.AwaitSync()
	shown := "consul-kv " + c.Address() + " key mesh/all.yaml:"
	a := running.table.Snapshot().Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "a"})
	require.Equal(t, shown+"2", a.Origin().Place)
	require.True(t, running.has("d"), "bad neighbours do no harm")
	var places []string
	for _, q := range running.Status().Quarantined {
		places = append(places, strings.TrimPrefix(q.Place, shown))
	}
	require.Len(t, places, 2, "%v", running.Status().Quarantined)
	require.Equal(t, 2, running.table.Snapshot().Len())
}

func TestSource_WaitsWithOneQuery(t *testing.T) {
	consul := consultest.New(t)
	for _, name := range []string{"a", "b", "c"} {
		consul.Set("mesh/"+name, entryText(name, 80))
	}
	r := runSource(t, consul, Settings{Wait: time.Minute})
	r.AwaitSync()
	consul.Set("mesh/d", entryText("d", 80))
	r.Await("the new one", func() bool { return r.has("d") })
	reads := reads(consul)
	require.Equal(t, "/v1/kv/mesh/?recurse=&wait=60000ms", reads[0])
	require.LessOrEqual(t, len(reads), 3)
	for _, q := range reads[1:] {
		require.Regexp(t, `\?index=\d+&recurse=&wait=60000ms$`, q)
	}
}

func TestWipe_OfOneKeyIsHeld(t *testing.T) {
	consul, r := synced(t, 1, Settings{ResetHold: time.Hour})
	r.wipe()
	r.AwaitState(sources.Degraded, "Consul seems to have lost its data", "mesh/")
	consul.Set("other/x", "") // does not end it
	consul.Set("mesh/b", entryText("b", 80))
	r.Await("the present objects", func() bool { return r.has("b") })
	require.True(t, r.has("r0"))
}

func TestWipe_HoldEnds(t *testing.T) {
	t.Parallel()
	consul, r := synced(t, 2, Settings{ResetHold: time.Millisecond})
	r.wipe("mesh/r1")
	r.Await("the present objects", func() bool { return r.has("r1") && !r.has("r0") })
	r.AwaitState(sources.Healthy)
	// the last one is deleted: the source believes it
	consul.Delete("mesh/r1")
	r.Await("the guard hears that b is gone", func() bool { return r.Supervisor.Status()[0].Held != nil }) // after a, it is all there was
}

func TestIndexThatGoesBackwards_IsNoWipe(t *testing.T) {
	consul := consultest.New(t)
	consul.Set("mesh/a", entryText("a", 80))
	consul.Set("mesh/b", entryText("b", 80))
	consul.Delete("mesh/b")
	running := runSource(t, consul, Settings{Wait: time.Second})
	running.AwaitSync()
	consul.Edit(func() { clear(consul.Tombstones) }) // the index of the prefix is that of a again
	consul.Set("other/x", "")
	before := len(reads(consul))
	running.Await("it asks anew", func() bool { return len(reads(consul)) > before+1 })
	require.True(t, running.has("a"))
	consul.Set("mesh/c", entryText("c", 80))
	running.Await("it follows", func() bool { return running.has("c") })
	running.AwaitState(sources.Healthy)
}

func TestHealth_NamesFailure(t *testing.T) {
	consul, running := synced(t, 1, Settings{})
	consul.Answer(http.StatusForbidden, "Permission denied")
	running.AwaitState(sources.Denied, "consul-kv "+consul.Address()+": read mesh/: ", "Permission denied",
		`it needs key_prefix "mesh/" { policy = "read" }`)
	consul.Hide()
	running.AwaitState(sources.Denied, "the token sees only part of the keys under mesh/", "policy")
	consul.Answer(http.StatusTooManyRequests, "too many", "Retry-After", "0")
	running.AwaitState(sources.Unreachable, "rate limited by Consul")
	consul.Fail(consultest.ErrHungUp)
	running.AwaitState(sources.Unreachable, consul.Address(), "EOF")
	consul.Restore()
	running.AwaitState(sources.Healthy)
	require.True(t, running.has("r0"))
}

func TestClusterWithoutLeader_IsUnhealthy(t *testing.T) {
	consul := consultest.New(t)
	consul.Set("mesh/a", entryText("a", 80))
	metrics := prometheus.NewRegistry()
	leader := func(want float64) func() bool {
		return func() bool {
			families, err := metrics.Gather()
			require.NoError(t, err)
			return len(families) == 2 && families[0].GetName() == "tributary_consul_known_leader" &&
				families[0].GetMetric()[0].GetGauge().GetValue() == want
		}
	}
	running := runSource(t, consul, Settings{Registerer: metrics})
	running.AwaitState(sources.Healthy)
	running.Await("its leader", leader(1))
	consul.Edit(func() { consul.Leaderless = true })
	running.AwaitState(sources.Unreachable, "no leader")
	running.Await("no leader", leader(0))
	require.True(t, running.has("a"))
	consul.Restore()
	running.AwaitState(sources.Healthy)
}

// Watches have empty answers without the header that Consul sets if rights hide keys. Only the answer that confirms
// them has the header.
func TestEmptyAnswer_IsConfirmed(t *testing.T) {
	consul := consultest.New(t)
	filled(consul, 0, 1)
	consul.Proxy = func(response http.ResponseWriter, request *http.Request) bool {
		isWatch := request.URL.Query().Has("index")
		if isWatch {
			response.Header().Set("X-Consul-Index", "1000000")
			response.WriteHeader(http.StatusNotFound)
		} else if request.URL.Query().Has("consistent") {
			response.Header().Set("X-Consul-Results-Filtered-By-ACLs", "true")
		}
		return isWatch
	}
	r := runSource(t, consul, Settings{})
	r.AwaitState(sources.Denied, "sees only part")
	require.True(t, r.has("r0"))
	consul.Edit(func() { consul.Proxy = nil })
	r.AwaitState(sources.Healthy)
}

func TestSilentlyHiddenKeys_Stay(t *testing.T) {
	for _, hidden := range []string{"mesh/", "mesh/r1"} {
		t.Run(hidden, func(t *testing.T) {
			consul, running := synced(t, 2, Settings{})
			hideKeys(consul, hidden)
			running.AwaitState(sources.Denied, "Permission denied", "policy")
			require.True(t, running.has("r0") && running.has("r1"))
			consul.Restore()
			running.AwaitState(sources.Healthy)
			consul.Delete("mesh/r1")
			running.Await("b is gone", func() bool { return !running.has("r1") })
		})
	}
	consul := consultest.New(t)
	consul.Set("mesh/r0", entryText("r0", 80))
	hideKeys(consul, "mesh/")
	r := runSource(t, consul, Settings{})
	r.AwaitState(sources.Denied, "Permission denied")
	require.False(t, r.table.Synced())
	require.ErrorContains(t, newStore(t, consul).Refresh(t.Context()), "Permission denied")
}

func TestRetryAfter_IsRespected(t *testing.T) {
	consul := consultest.New(t)
	consul.Answer(http.StatusTooManyRequests, "too many", "Retry-After", "3600")
	r := runSource(t, consul, Settings{})
	r.AwaitState(sources.Unreachable, "to be asked again after 1m0s")
	consul.Restore()
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
	require.Equal(t, "consul-kv h:8500 dc dc2", s.place.name)
}
