package consul

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/lastgood"
	"tributary/sources/sourcetest"
)

// dialed is the catalog of a server.
func dialed(t *testing.T, s *consultest.Server, settings Settings) catalog {
	source, err := New(Scheme+"://"+s.Address(), settings)
	require.NoError(t, err)
	t.Cleanup(source.client.Close)
	return source.catalog
}

func TestQueries(t *testing.T) {
	yes, no := true, false
	full := scope{datacenter: "dc2", namespace: "n", partition: "p", peer: "x"}
	for name, c := range map[string]struct {
		settings Settings
		domain   scope
		q        query
		names    string // the query that is made for names
		service  string // that for a service; the same if empty
	}{
		"plain":             {names: "stale="},
		"stale":             {settings: Settings{Stale: &yes}, names: "stale="},
		"from the leader":   {settings: Settings{Stale: &no}, names: ""},
		"consistent":        {settings: Settings{RequireConsistent: true}, names: "consistent="},
		"certain":           {q: query{level: confirmed}, names: "consistent="},
		"leaders":           {q: query{level: leaders}, names: ""},
		"blocking":          {q: query{index: 5}, settings: Settings{Wait: time.Second}, names: "index=5&stale=&wait=1000ms"},
		"of another domain": {domain: full, names: "dc=dc2&ns=n&partition=p&peer=x&stale="},
		"filtered": {
			settings: Settings{Filter: "ServiceMeta.a == b", HealthFilter: "Node.Meta.c == d", Tags: []string{"t1", "t2"}},
			names:    `filter=(ServiceMeta.a == b) and ServiceKind == ""&stale=`, service: "filter=Node.Meta.c == d&stale=&tag=t1&tag=t2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := consultest.New(t)
			server.Register("web", "1")
			client := dialed(t, server, c.settings)
			_, err := client.services(t.Context(), c.domain, c.q)
			require.NoError(t, err)
			_, err = client.service(t.Context(), c.domain, "web", c.q)
			require.NoError(t, err)
			if c.service == "" {
				c.service = c.names
				c.names = addFilter(c.names)
			}
			requests := server.Asked()
			require.Len(t, requests, 2)
			for i, want := range []string{"/v1/catalog/services?" + c.names, "/v1/health/service/web?" + c.service} {
				got, err := url.QueryUnescape(requests[i])
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		})
	}
}

// addFilter adds the filter that all queries for names have.
func addFilter(query string) string {
	params := append(strings.Split(query, "&"), `filter=ServiceKind == ""`)
	params = slices.DeleteFunc(params, func(p string) bool { return p == "" })
	slices.Sort(params)
	return strings.Join(params, "&")
}

func TestAnswers(t *testing.T) {
	server := consultest.New(t)
	server.Register("web/a b", "1")
	server.Register("skipped", "1")
	client := dialed(t, server, Settings{Skip: []string{"skip*"}})

	l, err := client.services(t.Context(), scope{}, query{level: confirmed})
	require.NoError(t, err)
	require.Equal(t, listing{
		names: map[string][]string{"web/a b": {}}, unselected: []string{"skipped"},
		Answer: judge.Answer{Index: 12, Confirmed: true, Anonymous: true},
	}, l)
	reading, err := client.service(t.Context(), scope{}, "web/a b", query{})
	require.NoError(t, err)
	require.Len(t, reading.instances.list, 1)
	require.EqualValues(t, 11, reading.Index)
	require.False(t, reading.Confirmed || reading.Leaderless || reading.Filtered)

	server.Hide()
	reading, err = client.service(t.Context(), scope{}, "web/a b", query{index: 11})
	require.NoError(t, err)
	require.Empty(t, reading.instances.list)
	require.False(t, reading.Filtered, "the stream does not tell")
	require.True(t, reading.Leaderless)
	reading, err = client.service(t.Context(), scope{}, "web/a b", query{level: confirmed})
	require.NoError(t, err)
	require.True(t, reading.Filtered && reading.Confirmed)

	for failure, want := range map[error]dial.Kind{
		consultest.NoLeader: dial.Unreachable, consultest.NoToken: dial.Denied, consultest.Busy: dial.RateLimited,
	} {
		server.Fail(failure)
		_, err = client.service(t.Context(), scope{}, "web/a b", query{})
		require.Equal(t, want, dial.Classify(err).Kind, "%s: %v", failure, err)
		require.ErrorContains(t, err, "web/a b")
	}
}

// running is a source of a server, run as the program does.
type running struct {
	*sourcetest.Running

	reload func() // with a new source
}

func runSource(t *testing.T, s *consultest.Server, settings Settings) *running {
	return runSourceAt(t, s.Address(), settings, nil)
}

// runSourceAt runs a source until Stop, or until the test ends.
func runSourceAt(t *testing.T, address string, settings Settings, memory *lastgood.Store) *running {
	settings.Mapping.Aliases = "none"
	source := func() *Source {
		source, err := New(Scheme+"://"+address, settings)
		require.NoError(t, err)
		return source
	}
	r := sourcetest.Start(t, sources.Spec{
		Name: "consul", Source: source(), Table: new(memstore.Table), Partial: true, LastGood: memory,
	})
	return &running{r, func() { r.Use(source()) }}
}

func (r *running) serves(name string) bool { return r.ServiceEntry("consul", name) != nil }

// endpoints returns how many a service has; -1 if it is not served.
func (r *running) endpoints(name string) int {
	if !r.serves(name) {
		return -1
	}
	return len(r.ServiceEntry("consul", name).Endpoints)
}

// awaitServed waits until the source is synced, and serves services.
func (r *running) awaitServed(names ...string) {
	r.T.Helper()
	r.Await("synced", func() bool {
		return r.Status().Synced && !slices.ContainsFunc(names, func(name string) bool { return !r.serves(name) })
	})
}

func (r *running) awaitEndpoints(name string, n int) {
	r.T.Helper()
	r.Await(fmt.Sprint(name, " has ", n), func() bool { return r.endpoints(name) == n })
}

// awaitRequests waits, after some deeds, for more requests that have part in their path.
func (r *running) awaitRequests(s *consultest.Server, more int, part string, deeds ...func()) {
	r.T.Helper()
	before := len(s.Asked(part))
	for _, deed := range deeds {
		deed()
	}
	r.Await("more requests", func() bool { return len(s.Asked(part)) >= before+more })
}

// A proxy begins to strip Consul's headers: its answers never prove an absence.
func TestProxyWithoutHeaders_ProvesNoAbsence(t *testing.T) {
	t.Parallel()
	server := consultest.New(t)
	server.Register("web", "1")
	server.Register("api", "1", "2")
	running := runSource(t, server, Settings{Grace: time.Millisecond})
	running.awaitServed("web")
	server.Edit(func() { server.Headerless = true })
	server.Remove("web")
	server.Register("api", "1")
	running.AwaitState(sources.Unreachable, "not Consul's")
	running.awaitRequests(server, 1, "/v1/catalog/services")
	require.True(t, running.serves("web") && running.serves("api"))
	server.Edit(func() { server.Headerless = false })
	running.Await("it goes", func() bool { return !running.serves("web") && running.Status().State == sources.Healthy })
	require.True(t, running.serves("api"))
}

func TestSettings_Invalid(t *testing.T) {
	yes := true
	for want, settings := range map[string]Settings{
		"datacenters: entry 2 is empty":                                {Datacenters: []string{"a", " "}},
		"peers: a is there twice":                                      {Peers: []string{"a", "a"}},
		"wait: want 1s to 10m0s, got 11m0s":                            {Wait: 11 * time.Minute},
		"grace: want 1ms to 24h0m0s, got -1s":                          {Grace: -time.Second},
		"rampRate: want 1 or more, got -1":                             {RampRate: -1},
		"maxConcurrentWatches: want 1 or more, got -1":                 {MaxConcurrentWatches: -1},
		"maxConcurrentWatches: want more than 2, since each":           {MaxConcurrentWatches: 2, Datacenters: []string{"a", "b"}},
		"requireConsistent: not together with stale: true":             {RequireConsistent: true, Stale: &yes},
		"filter: is blank":                                             {Filter: " "},
		"address: \"consul://h:1/path\": want consul://host:port, and": {},
	} {
		address := "consul://h:1"
		if strings.HasPrefix(want, "address") {
			address += "/path"
		}
		_, err := New(address, settings)
		require.ErrorContains(t, err, want)
		require.True(t, strings.HasPrefix(err.Error(), want), err.Error())
	}
}

func TestDomains(t *testing.T) {
	s := Settings{Datacenters: []string{"dc1", "dc2"}, Namespaces: []string{"a", "b"}, Peers: []string{"x"}}
	var names []string
	for _, d := range s.scopes() {
		names = append(names, d.String())
	}
	require.Equal(t, []string{
		"datacenter dc1 namespace a", "datacenter dc1 namespace b", "datacenter dc2 namespace a", "datacenter dc2 namespace b",
		"namespace a peer x", "namespace b peer x",
	}, names)
	require.Equal(t, []scope{{}}, Settings{}.scopes())
}

// An answer of a server without a leader is confirmed by another query, also before the first query about its state.
func TestStaleAnswer_Confirmed(t *testing.T) {
	for late, confirmed := range map[time.Duration]int{0: 0, time.Minute: 1} {
		server := consultest.New(t)
		server.LastContact = late
		server.Register("web", "1")
		r := runSource(t, server, Settings{})
		r.awaitServed("web")
		require.Len(t, server.Asked("/v1/health/service/web?consistent="), confirmed)
		require.Len(t, server.Asked("/v1/catalog/services?consistent="), confirmed)
	}
}

// A blocking query without an answer is found soon after Consul's own limit.
func TestTimeoutsOfQueries(t *testing.T) {
	const wait = 160 * time.Second
	for _, test := range []struct {
		query query
		limit time.Duration
	}{{query{}, 30 * time.Second}, {query{index: 5}, wait + wait/16 + 15*time.Second}} {
		c, begin := &client{settings: Settings{Wait: wait}}, time.Now()
		read := func(o *api.QueryOptions) (int, *api.QueryMeta, error) {
			deadline, _ := o.Context().Deadline()
			require.WithinDuration(t, begin.Add(test.limit), deadline, 5*time.Second)
			return 0, new(api.QueryMeta), nil
		}
		_, _, err := ask(t.Context(), c, scope{}, test.query, "", "read", read)
		require.NoError(t, err)
	}
}
