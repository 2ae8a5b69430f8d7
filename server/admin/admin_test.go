package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/xds"
	"tributary/sources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the program that the server shows.
type world struct {
	released []string // the caller
	memstore.Table
	shadows   []aggregate.Shadow
	competing []conflicts.Conflict
	refusals  []aggregate.Refusal
	sources   []sources.Status
	clients   []xds.ClientStatus
	served    map[uint64][]xds.Served
	config    fakeConfig
	serving   map[resource.Key][]sources.Serving
	merged    *aggregate.Merged // of any key
	// excluding has excluded objects, under any key.
	excluding []sources.Excluded
	// leavingOut has omitted instances, by query and keys.
	leavingOut map[string][]sources.LeftOut
}

func (w *world) Status() []sources.Status                   { return w.sources }
func (w *world) Serving(key resource.Key) []sources.Serving { return w.serving[key] }
func (w *world) Excluding(resource.Key) []sources.Excluded  { return w.excluding }
func (w *world) EachClient() iter.Seq[xds.ClientStatus]     { return slices.Values(w.clients) }
func (w *world) Served(stream uint64) []xds.Served          { return w.served[stream] }
func (w *world) Sources() []aggregate.SourceStatus          { return nil }
func (w *world) Refusals() []aggregate.Refusal              { return w.refusals }
func (w *world) Competing() []conflicts.Conflict            { return w.competing }

func (w *world) LeavingOut(query string, keys ...resource.Key) []sources.LeftOut {
	return w.leavingOut[fmt.Sprint(query, keys)]
}

func (w *world) Explain(key resource.Key) aggregate.Explanation {
	return aggregate.Explanation{Object: conflicts.Ref(key), Merged: w.merged}
}

func (w *world) ExplainHost(host string) aggregate.HostExplanation {
	merged := resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "merged"}
	return aggregate.HostExplanation{Host: host, Objects: []aggregate.Explanation{w.Explain(merged)}}
}

func (w *world) Shadows() iter.Seq[aggregate.Shadow] {
	return func(yield func(aggregate.Shadow) bool) {
		for _, s := range w.shadows {
			if !yield(s) {
				return
			}
		}
	}
}

// newServer returns a server of a world, with changed options.
func newServer(w *world, changes ...func(*admin.Options)) *admin.Server {
	options := admin.Options{
		Version: "v1.2.3", View: w, Sources: w, Clients: w, Config: &w.config, Registry: admin.NewRegistry("v1.2.3"),
		Log: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&options)
	}
	return admin.New(options)
}

// serving sets the view of a server: that of a source with these objects.
func serving(t *testing.T, source string, objects ...*resource.Resource) func(*admin.Options) {
	t.Helper()
	return func(o *admin.Options) {
		o.View = viewOf(t, aggregate.Source{Name: source, Reader: tableOf(objects...)})
	}
}

// tableOf returns a synced table.
func tableOf(objects ...*resource.Resource) *memstore.Table {
	table := &memstore.Table{}
	table.Apply(objects, nil)
	table.MarkSynced()
	return table
}

// parsed returns a value that is written as YAML.
func parsed[T any](t *testing.T, text string) (value T) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &value))
	return value
}

// page returns the content of a page.
func page[T any](t *testing.T, server *admin.Server, path string) (content T) {
	t.Helper()
	status, body := get(t, server, path)
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &content), body)
	return content
}

func get(t *testing.T, s *admin.Server, path string) (status int, body string) {
	t.Helper()
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return rec.Code, rec.Body.String()
}

func entry(t *testing.T, name, source, place string) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{
		Key:     resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name},
		Labels:  map[string]string{"app": name},
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Origin:  resource.Origin{Source: source, Place: place},
	}, &networking.ServiceEntry{Hosts: []string{name + ".example"}})
	require.NoError(t, err)
	return r
}

func TestReady_NamesUnreadSources(t *testing.T) {
	w := &world{sources: parsed[[]sources.Status](t, `
- {name: rules, address: "fs:///rules", synced: true}
- {name: slow, address: "fs:///slow", message: /slow does not exist, restarts: 2, lastError: it panicked}
`)}
	w.sources[1].State = sources.Unreachable
	server := newServer(w)

	status, body := get(t, server, "/-/ready")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "source slow (fs:///slow) is not synced: unreachable: /slow does not exist; restarted 2 times, last because: it "+
		"panicked\n", body)

	w.sources[1].Synced = true
	status, body = get(t, server, "/-/ready")
	assert.Equal(t, http.StatusServiceUnavailable, status, "an object that was read is not served before it is merged")
	assert.Contains(t, body, "merged")

	w.MarkSynced()
	status, body = get(t, server, "/-/ready")
	assert.Equal(t, http.StatusOK, status, "a later failure of a source changes no answer")
	assert.Equal(t, "ok\n", body)

	server.Drain()
	status, body = get(t, server, "/-/ready")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "shutting down\n", body)
	status, _ = get(t, server, "/-/healthy")
	assert.Equal(t, http.StatusOK, status)
}

func TestFirstSeen_OfKind(t *testing.T) {
	changed := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w := &world{}
	w.Apply([]*resource.Resource{entry(t, "reviews", "rules", "a.yaml:1").WithSeen(changed), entry(t, "ratings", "rules", "a.yaml:9")}, nil)
	_, body := get(t, newServer(w), "/debug/seen?kind=se")
	assert.JSONEq(t, `{"shop/reviews": "2026-03-01T12:00:00Z"}`, body)
	status, _ := get(t, newServer(w), "/debug/seen?kind=cheese")
	assert.Equal(t, http.StatusBadRequest, status)
}

// A query for an unknown kind, or for an object on a page without parameters, gets an error.
func TestConfigz_UnknownKind(t *testing.T) {
	w := &world{}
	w.Apply([]*resource.Resource{entry(t, "reviews", "rules", "a.yaml:1")}, nil)
	for path, says := range map[string]string{
		"/debug/configz?kind=" +
			"serviceentrys": `unknown kind "serviceentrys" (did you mean serviceentry?); known: authorizationpolicies, `,
		"/debug/seen?kind=cheese":                       `unknown kind "cheese"; known: `,
		"/debug/explain?kind=cheese&namespace=a&name=b": `unknown kind "cheese"; known: `,
		"/debug/conflicts?kind=se":                      "/debug/conflicts is about all kinds, and takes no ?kind=",
		"/debug/clients?kind=se":                        "/debug/clients is about all kinds",
	} {
		status, body := get(t, newServer(w), path)
		assert.Equal(t, http.StatusBadRequest, status, path)
		assert.Contains(t, body, says)
	}
	_, body := get(t, newServer(w), "/debug/configz?kind=se")
	assert.Contains(t, body, "reviews")
	_, body = get(t, newServer(w), "/debug/configz?kind=vs")
	assert.JSONEq(t, "[]", body)
}

func TestConfigz_FormatOfIstiod(t *testing.T) {
	w := &world{}
	_, body := get(t, newServer(w), "/debug/configz")
	assert.JSONEq(t, "[]", body)

	reviews := entry(t, "reviews", "rules", "a.yaml:1")
	w.Apply([]*resource.Resource{reviews, entry(t, "ratings", "rules", "a.yaml:9")}, nil)
	list := page[[]map[string]any](t, newServer(w), "/debug/configz")
	require.Len(t, list, 2)
	assert.Equal(t, map[string]any{
		"kind": "ServiceEntry", "apiVersion": "networking.istio.io/v1",
		"metadata": map[string]any{
			"name": "reviews", "namespace": "shop", "resourceVersion": reviews.Version(),
			"creationTimestamp": "2026-01-02T03:04:05Z", "labels": map[string]any{"app": "reviews"},
		},
		"spec": map[string]any{"hosts": []any{"reviews.example"}},
	}, list[1])
}

func TestClients_ExchangesAndSyncz(t *testing.T) {
	w := &world{}
	_, body := get(t, newServer(w), "/debug/clients")
	assert.JSONEq(t, "[]", body)

	w.clients = parsed[[]xds.ClientStatus](t, `
- {streamID: 1, peer: "127.0.0.1:5", connected: "2026-01-02T03:04:05Z"} # without a subscription
- streamID: 7
  node: {id: router~1}
  peer: 127.0.0.1:6
  connected: "2026-01-02T03:04:05Z"
  delta: true
  types:
  - {typeURL: a/v1/B, wildcard: true, sentVersion: v2, sentNonce: "2", sentAt: "2026-01-02T03:04:05Z",
     ackedVersion: v1, ackedNonce: "1", ackedAt: "2026-01-02T03:04:05Z", responses: 2,
     nackNonce: "2", nackError: no <such> field, nackAt: "2026-01-02T03:04:05Z", nacks: 1}
`)
	_, body = get(t, newServer(w), "/debug/clients")
	assert.JSONEq(t, `[
		{"stream": 1, "node": "", "peer": "127.0.0.1:5", "connected": "2026-01-02T03:04:05Z", "delta": false, "types": []},
		{"stream": 7, "node": "router~1", "peer": "127.0.0.1:6", "connected": "2026-01-02T03:04:05Z", "delta": true, "types": [{
			"type_url": "a/v1/B", "wildcard": true, "synced": false, "responses": 2, "nacks": 1,
			"sent": {"version": "v2", "nonce": "2", "time": "2026-01-02T03:04:05Z"},
			"acked": {"version": "v1", "nonce": "1", "time": "2026-01-02T03:04:05Z"},
			"nack": {"nonce": "2", "error": "no <such> field", "time": "2026-01-02T03:04:05Z"}
		}]}
	]`, body)
	assert.Contains(t, body, "no <such> field", "HTML is not escaped")
	_, body = get(t, newServer(w), "/debug/syncz")
	assert.JSONEq(t, `[{"proxy": "router~1", "proxy_type": "router", "resources": {"a/v1/B": {
		"sent": "2", "acked": "1", "sentTime": "2026-01-02T03:04:05Z", "lastError": "no <such> field"}}}]`, body)
}

func TestPages_SourcesQuarantineAndConflicts(t *testing.T) {
	first, second := entry(t, "reviews", "rules", "a.yaml:1"), entry(t, "reviews", "more", "b.yaml:1")
	w := &world{
		sources: parsed[[]sources.Status](t, `
- name: rules
  since: "2026-01-02T03:04:05Z"
  quarantined:
  - {kind: Gateway, namespace: shop, name: g, group: g.yaml, place: "g.yaml:3", reason: no servers,
     since: "2026-01-02T03:04:05Z"}
  conflicts: [{kind: Sidecar, namespace: shop, name: s, winner: "a.yaml:5", losers: ["c.yaml:2"]}]
`),
		shadows: []aggregate.Shadow{{
			Key: first.Key(), Winner: aggregate.Candidate{Source: "rules", Resource: first},
			Losers: []aggregate.Candidate{{Source: "more", Resource: second}},
		}},
		refusals: []aggregate.Refusal{{
			Key: second.Key(), Reason: "ports differ",
			Winner: aggregate.Candidate{Source: "rules, more", Resource: first}, Loser: aggregate.Candidate{Source: "more", Resource: second},
		}},
	}
	server := newServer(w)
	_, body := get(t, server, "/debug/sources")
	assert.Contains(t, body, `"name": "rules"`)
	_, body = get(t, server, "/debug/quarantine")
	assert.JSONEq(t, `[{"source": "rules", "kind": "Gateway", "namespace": "shop", "name": "g", "group": "g.yaml",
		"place": "g.yaml:3", "reason": "no servers", "since": "2026-01-02T03:04:05Z", "lastGoodServes": false}]`, body)
	_, body = get(t, server, "/debug/conflicts")
	assert.JSONEq(t, `[
		{"kind": "ServiceEntry", "namespace": "shop", "name": "reviews",
			"winner": {"source": "rules", "place": "a.yaml:1"}, "losers": [{"source": "more", "place": "b.yaml:1"}]},
		{"kind": "ServiceEntry", "namespace": "shop", "name": "reviews", "reason": "ports differ",
			"winner": {"source": "rules, more", "place": "a.yaml:1"}, "losers": [{"source": "more", "place": "b.yaml:1"}]},
		{"kind": "Sidecar", "namespace": "shop", "name": "s",
			"winner": {"source": "rules", "place": "a.yaml:5"}, "losers": [{"source": "rules", "place": "c.yaml:2"}]}
	]`, body)

	empty := newServer(&world{})
	for _, path := range []string{"/debug/sources", "/debug/quarantine", "/debug/conflicts", "/debug/no-effect"} {
		_, body := get(t, empty, path)
		assert.JSONEq(t, "[]", body, path)
	}
}

func TestPages_Exist(t *testing.T) {
	server := newServer(&world{})
	for _, p := range server.Pages() {
		status, body := get(t, server, p.Path)
		assert.NotEqual(t, "404 page not found\n", body, "%s: %d", p.Path, status)
	}
	assert.Len(t, server.Pages(), 23)
	for _, path := range []string{"/nothing", "/debug/nothing"} {
		status, _ := get(t, server, path)
		assert.Equal(t, http.StatusNotFound, status, path)
	}
}

func TestStatus_CountsCompetingHosts(t *testing.T) {
	w := &world{competing: []conflicts.Conflict{{Host: "a", Subject: "a:80"}, {Host: "a", Subject: "a:81"}, {Host: "b"}}}
	assert.Equal(t, 2, page[admin.Status](t, newServer(w), "/debug/status").Conflicts.Competing)
}

func TestMetrics_BuildAndRuntime(t *testing.T) {
	status, body := get(t, newServer(&world{}), "/metrics")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `tributary_build_info{go_version="go1.`)
	assert.Contains(t, body, `version="v1.2.3"} 1`)
	assert.Contains(t, body, "go_goroutines")
}

func TestPages_AreReadOnly(t *testing.T) {
	s := newServer(&world{})
	for _, path := range []string{"/-/ready", "/debug/configz", "/debug/pprof/"} {
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("x")))
		assert.Equal(t, http.StatusMethodNotAllowed, rec.Code, path)
	}
}

func TestServe_EndsWithContext(t *testing.T) {
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- newServer(&world{}).Serve(ctx, lis) }()

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+lis.Addr().String()+"/-/healthy", nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "ok\n", string(body))

	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(5 * time.Second):
		t.Fatal("Serve did not end")
	}
}

func TestServe_ListenerFails(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	err = newServer(&world{}).Serve(t.Context(), listener)
	require.ErrorContains(t, err, listener.Addr().String())
	require.ErrorIs(t, err, net.ErrClosed)
}
