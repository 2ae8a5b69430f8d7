package page

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/internal/history"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/xds"
	"tributary/sources"
	"tributary/sources/guard"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the time of the tests.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// program is a fake with fixed data.
type program struct {
	memstore.Table
	noDebug     bool
	mu          sync.Mutex
	status      admin.Status
	clients     []xds.ClientStatus
	shadows     []aggregate.Shadow
	quarantined []admin.Quarantined
	heldSources []admin.HeldSource
	problems    admin.ObjectProblems
	explained   admin.Explanation
	keysOfHost  []resource.Key
	changes     []*history.Entry
}

func (p *program) Version() string                        { return "v1.2.3" }
func (p *program) Started() time.Time                     { return noon }
func (p *program) NoDebug() bool                          { return p.noDebug }
func (p *program) Pages() []admin.Page                    { return []admin.Page{{Path: "/metrics", About: "metrics"}} }
func (p *program) Clients() []xds.ClientStatus            { return p.clients }
func (p *program) Quarantined() []admin.Quarantined       { return p.quarantined }
func (p *program) HeldSources() []admin.HeldSource        { return p.heldSources }
func (p *program) ObjectProblems() admin.ObjectProblems   { return p.problems }
func (p *program) Explain(resource.Key) admin.Explanation { return p.explained }
func (p *program) XDS() string                            { return ":16010" }
func (p *program) RequestTree(host string) []string {
	if host == "" {
		return nil
	}
	return []string{host, "└─ VirtualService shop/reviews"}
}

func (p *program) History(history.Query) (*history.Answer, error) {
	if p.changes == nil {
		return nil, errors.New("there is no history")
	}
	return &history.Answer{Entries: p.changes, Earlier: 3}, nil
}
func (p *program) KeysOfHost(string) []resource.Key { return p.keysOfHost }
func (p *program) IsHeld(key resource.Key) bool     { return key.Name == "s2" }

func (p *program) Shadows() iter.Seq[aggregate.Shadow] {
	return func(yield func(aggregate.Shadow) bool) {
		for _, s := range p.shadows {
			if !yield(s) {
				return
			}
		}
	}
}

func (p *program) Status() admin.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

func (p *program) set(change func(*admin.Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.status
	change(&st)
	p.status = st
}

func entry(t testing.TB, name, source string) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{
		Key:    resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name},
		Origin: resource.Origin{Source: source, Place: name + ".yaml:1"},
	}, &networking.ServiceEntry{Hosts: []string{name + ".example"}})
	require.NoError(t, err)
	return r
}

func key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}
}

// shop serves n objects of a healthy source.
func shop(t testing.TB, n int) *program {
	t.Helper()
	p := &program{}
	var objects []*resource.Resource
	for i := range n {
		objects = append(objects, entry(t, fmt.Sprintf("s%d", i), "rules"))
	}
	p.Apply(objects, nil)
	p.status = admin.Status{
		Objects: n, Kinds: map[resource.Kind]int{resource.ServiceEntry: n},
		Sources: []admin.SourceState{{
			Name: "rules", Address: "fs:///rules", State: "healthy", Synced: true, Since: noon,
			Objects: n,
		}},
	}
	return p
}

func client(node, agent string, types ...xds.TypeStatus) xds.ClientStatus {
	return xds.ClientStatus{
		StreamID: 7, Node: &corev3.Node{Id: node, UserAgentName: agent}, Peer: "10.0.0.1:5",
		Connected: noon, Types: types,
	}
}

const (
	clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	entries  = "networking.istio.io/v1/ServiceEntry"
)

func synced(typeURL string) xds.TypeStatus {
	return xds.TypeStatus{
		TypeURL: typeURL, Wildcard: true, Synced: true, SentNonce: "1", SentVersion: "v", SentAt: noon, AckedNonce: "1",
		AckedAt: noon,
	}
}

func rejected(typeURL, why string) xds.TypeStatus {
	return xds.TypeStatus{
		TypeURL: typeURL, SentNonce: "2", SentVersion: "w", SentAt: noon, NackNonce: "2", NackError: why, NackAt: noon,
		Nacks: 1,
	}
}

func get(t testing.TB, handler http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	responseRecorder := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	req.Host = "mesh-1:16014"
	handler.ServeHTTP(responseRecorder, req)
	return responseRecorder
}

func newHandler(p *program) *Handler { return New(p, slog.New(slog.DiscardHandler)) }

// parsed returns a value that is written as YAML.
func parsed[T any](t *testing.T, text string) (value T) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "\t", "  ")), &value))
	return value
}

func golden(t *testing.T, name string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	file := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, append(text, '\n'), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(text)+"\n")
}

func TestDiagram_SourcesObjectsAndClients(t *testing.T) {
	status := shop(t, 3).status
	status.Conflicts.Shadowed, status.Quarantined = 1, 2
	status.Sources = append(status.Sources, parsed[[]admin.SourceState](t, `
- {name: a-source-with-a-name-that-is-long, state: unreachable, synced: true, stale: true, objects: 4}
- {name: eureka, state: healthy, synced: true, hold: {objects: 9}}
`)...)
	golden(t, "diagram", newDiagram(&status, []xds.ClientStatus{
		client("istiod~1", "", synced(entries)), client("sidecar~1", "envoy", synced(clusters)),
		client("sidecar~2", "envoy", rejected(clusters, "no")),
	}))
}

func TestDiagram_ShowsUnhealthySources(t *testing.T) {
	status := admin.Status{}
	for i := range 20 {
		status.Sources = append(status.Sources, admin.SourceState{
			Name: fmt.Sprintf("s%d", i), State: "healthy", Synced: true,
			Objects: 1,
		})
	}
	status.Sources[15].State = "denied"
	flow := newDiagram(&status, nil)
	require.Len(t, flow.Sources, maxBoxes)
	assert.Equal(t, "s15", flow.Sources[0].Name)
	assert.Equal(t, "14 more sources", flow.Sources[maxBoxes-1].Name)
	assert.Equal(t, "14", flow.Sources[maxBoxes-1].Count)
}

func TestClientKind(t *testing.T) {
	for want, clientStatus := range map[string]xds.ClientStatus{
		kindEnvoy: client("n", "envoy"), kindGRPC: client("n", "gRPC Go"),
		kindTributary: client("n", "tributary", synced(entries)),
		kindCommand:   client("n", "tributary-cli", synced(clusters)),
		kindIstiod:    client("sidecar~127.0.0.1~istiod", "", synced(entries)), kindOther: {},
	} {
		assert.Equal(t, want, clientKind(&clientStatus))
	}
}

func TestVerdict_ClassAndLink(t *testing.T) {
	status := shop(t, 2).status
	verdict := newVerdict(&status, pageQuery{}, Shell{})
	assert.Equal(t, Verdict{Class: classOK, Label: "All is well", Sentence: "1 source, 2 objects, 0 clients"}, verdict)

	status.Quarantined = 1
	verdict = newVerdict(&status, parseQuery(nil), Shell{})
	assert.Equal(t, classWarning, verdict.Class)
	assert.Equal(t, "/?show=quarantined#objects", verdict.Link)

	status.Quarantined = 0
	status.Sources[0].State, status.Sources[0].Message = "unreachable", strings.Repeat("no: ", 50)
	verdict = newVerdict(&status, parseQuery(nil), Shell{admin: "mesh-1:16014"})
	assert.Equal(t, classBad, verdict.Class)
	assert.Equal(t, "#source-rules", verdict.Link)
	assert.LessOrEqual(t, len(verdict.Sentence), maxHeadlineBytes)
	assert.True(t, strings.HasPrefix(verdict.Sentence, "source rules is unreachable"))
	assert.Equal(t, "tributary status --admin mesh-1:16014", verdict.Troubles[0].Command)

	assert.Contains(t, verdict.Troubles[0].Advice, "Its previous objects are still served.")
	status.Sources[0].Synced, status.Sources[0].Objects = false, 0
	assert.Contains(t, newVerdict(&status, parseQuery(nil), Shell{}).Troubles[0].Advice,
		"It was never read: no object of it is served.")
	status.Unresolved = []admin.ObjectProblem{{
		Ref:     conflicts.Ref{Kind: "VirtualService", Name: "r"},
		Message: "no ServiceEntry has b",
	}}
	verdict = newVerdict(&status, parseQuery(nil), Shell{})
	assert.Equal(t, "/?show=unresolved#objects", verdict.Link)
	assert.Equal(t, classBad, verdict.Troubles[0].Class)
	status.Obstacles = []string{"source rules is not synced"}
	assert.Equal(t, "Not ready", newVerdict(&status, parseQuery(nil), Shell{}).Label)
}

func TestCommands_Quoted(t *testing.T) {
	assert.Equal(t, `tributary explain se 'a/$(reboot)'`, Shell{}.Command("explain", "se", "a/$(reboot)"))
	assert.Equal(t, `tributary explain se 'it'\''s' --admin https://h:1`,
		newShell("h:1", true, "").Command("explain", "se", "it's"))
}

func TestCommands_NameTheServer(t *testing.T) {
	for want, c := range map[string]struct {
		admin   string
		secure  bool
		xds     string
		command string
	}{
		"tributary status --admin 127.0.0.1:16014":             {"127.0.0.1:16014", false, "127.0.0.1:16010", "status"},
		"tributary get all -A --server mesh-1:16010":           {"mesh-1:16014", false, "0.0.0.0:16010", "get all -A"},
		"tributary get all -A --server '[::1]:16010'":          {"[::1]:16014", false, ":16010", "get all -A"},
		"tributary get all -A --server unix:///run/xds":        {"h:1", false, "unix:///run/xds?mode=0660", "get all -A"},
		"tributary get all -A":                                 {"h:1", false, "127.0.0.1:0", "get all -A"},
		"tributary verify --istiod i --server a:2 --admin h:1": {"h:1", false, "a:2", "verify --istiod i"},
		"tributary verify --envoy e --admin https://mesh.a":    {"mesh.a", true, "a:2", "verify --envoy e"},
		"tributary validate -c FILE":                           {"h:1", false, "a:2", "validate -c FILE"},
	} {
		assert.Equal(t, want, newShell(c.admin, c.secure, c.xds).Command(strings.Fields(c.command)...))
	}
}

// TestChanges_NewestFirstWithDifference checks the panel of changes.
func TestChanges_NewestFirstWithDifference(t *testing.T) {
	program := shop(t, 1)
	show := func() string { return get(t, newHandler(program), "/").Body.String() }
	assert.Contains(t, show(), "there is no history")
	program.changes = parsed[[]*history.Entry](t, `
- {at: "2026-01-02T12:00:00Z", event: added, kind: ServiceEntry, namespace: shop, name: first, source: rules}
- {at: "2026-01-02T12:00:00Z", event: deleted, kind: ServiceEntry, namespace: shop, name: second, source: rules}
- {at: "2026-01-02T12:00:00Z", event: reloaded, text: by SIGHUP}
`)
	got := show()
	assert.Contains(t, got, `<th scope="row">by SIGHUP</th><td>reloaded `, "an event is about no object, and has no link")
	assert.Contains(t, got, "3 earlier changes are not shown.")
	assert.Less(t, strings.Index(got, ">shop/second</a></th>"), strings.Index(got, ">shop/first</a></th>"))

	program.changes = parsed[[]*history.Entry](t, `
- {at: "2026-01-02T12:00:00Z", event: updated, kind: ServiceEntry, namespace: shop, name: first, source: rules,
   old: {kind: ServiceEntry, namespace: shop, name: first, labels: {a: "1"}},
   new: {kind: ServiceEntry, namespace: shop, name: first, labels: {a: "2"}}}
`)
	got = get(t, newHandler(program), "/?since=24h").Body.String()
	open := regexp.MustCompile(`<a href="(/[^"]*change=[^"]*)#changes" data-nav>updated`).FindStringSubmatch(got)
	require.NotNil(t, open, got)
	assert.NotContains(t, got, `<span class="ins">`)
	got = get(t, newHandler(program), html.UnescapeString(open[1])).Body.String()
	assert.Contains(t, got, `a: &#34;2&#34;`)
	assert.Contains(t, got, `aria-current="true">a day</a>`)
	assert.Contains(t, got, "history --since 24h")
}

// TestChanges_ShowTheNewestAtOnce checks that a change that the history has late makes a new revision of the page.
func TestChanges_ShowTheNewestAtOnce(t *testing.T) {
	p := shop(t, 1)
	p.changes = []*history.Entry{}
	first := recentChanges{}
	for name, c := range map[string]struct{ late time.Duration }{"at once": {0}, "later": {4 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p.changes = []*history.Entry{}
				first = latestChanges(p, p.Snapshot().Revision(), recentChanges{})
				assert.Empty(t, first.answer.Entries)
				time.Sleep(time.Minute)
				first = latestChanges(p, p.Snapshot().Revision(), first)
				p.Apply([]*resource.Resource{entry(t, "new"+name, "rules")}, nil)
				time.Sleep(time.Second)
				second := latestChanges(p, p.Snapshot().Revision(), first)
				time.Sleep(c.late)
				p.changes = []*history.Entry{{Time: noon, Event: "added", Text: "new"}}
				third := latestChanges(p, p.Snapshot().Revision(), second)
				assert.Len(t, third.answer.Entries, 1)
				before, after := programState{recent: second}, programState{recent: third}
				assert.NotEqual(t, hashState(&before, p.Snapshot().Revision()), hashState(&after, p.Snapshot().Revision()))
			})
		})
	}
}

func TestQuery_LinkKeepsValidValues(t *testing.T) {
	for address, want := range map[string]string{
		"/":                                 "/#x",
		"/?q=+a+b+&kind=se&page=3":          "/?kind=ServiceEntry&page=3&q=a+b#x",
		"/?show=held&clients=2&page=0":      "/?clients=2&show=held#x",
		"/?show=nothing&kind=none&page=abc": "/#x",
		"/?object=ServiceEntry/shop/a%2Fb":  "/?object=ServiceEntry%2Fshop%2Fa%2Fb#x",
		"/?object=ServiceEntry//a":          "/?object=ServiceEntry%2F%2Fa#x",
		"/?object=nonsense":                 "/#x",
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		assert.Equal(t, want, parseQuery(req.URL.Query()).link("x"), address)
	}
}

func TestPager_LinksAndBounds(t *testing.T) {
	pageQuery := parseQuery(nil)
	pageQuery.page = 2
	pager := newPager(pageQuery, "objects", 120)
	assert.Equal(t, Pager{
		From: 51, To: 100, Total: 120, Page: 2, Pages: 3, First: "/#objects", Previous: "/#objects", Next: "/?page=3#objects",
		Last: "/?page=3#objects", from: 50, to: 100,
	}, pager)
	pageQuery.page, pageQuery.clients = 5, 99
	assert.Equal(t, 3, newPager(pageQuery, "clients", 120).Page)
	assert.Equal(t, Pager{Pages: 1, Page: 1}, newPager(pageQuery, "objects", 0))
}

func TestObjects_FiltersAndTabs(t *testing.T) {
	program := shop(t, 120)
	program.shadows = []aggregate.Shadow{{
		Key: key("s1"), Winner: aggregate.Candidate{Source: "rules"},
		Losers: []aggregate.Candidate{{Source: "old", Resource: entry(t, "s1", "old")}},
	}}
	program.quarantined = parsed[[]admin.Quarantined](t, `[{source: rules, kind: ServiceEntry, namespace: shop, name: s3,
		place: "s3.yaml:1", reason: hosts are missing, lastGoodServes: true}]`)
	program.heldSources = []admin.HeldSource{{Source: "rules", Status: guard.Status{Held: []guard.Held{{
		Ref: resource.Ref(key("s2")), Missing: true,
	}}, FurtherLosses: 4}}}
	program.keysOfHost = []resource.Key{key("s7")}
	losers := map[resource.Key][]aggregate.Candidate{key("s1"): program.shadows[0].Losers}
	panel := func(address string) (objects Objects, names string) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		objects = objectsPanel(&program.status, program, losers, parseQuery(req.URL.Query()))
		for _, row := range objects.Rows {
			names += row.Key().Name + " "
		}
		for _, lost := range objects.Problems {
			names += lost.Key.String() + " "
		}
		return objects, names
	}
	for address, want := range map[string]string{
		"/?q=some.host": "s7 ", // the host is asked for
		"/?q=shop/s77":  "s77 ", "/?show=shadowed": "s1 ", "/?show=quarantined&q=missing": "ServiceEntry shop/s3 ",
		"/?show=held": "ServiceEntry shop/s2 ", "/?kind=gateway": "",
	} {
		_, names := panel(address)
		assert.Equal(t, want, names, address)
	}
	objects, _ := panel("/")
	assert.Len(t, objects.Rows, rowsPerPage)
	assert.Equal(t, 120, objects.Pager.Total)
	assert.Equal(t, Tab{"Held", "/?show=held#objects", 5, classWarning, false}, objects.Tabs[3], "losses, and no endpoints")
	objects, _ = panel("/?q=S1+shop+rules")
	assert.Equal(t, 1+10+20, objects.Pager.Total, "s1, s10 to s19 and s100 to s119")
	assert.Equal(t, []Mark{{classIdle, "wins over old"}}, objects.Rows[0].Marks)
	objects, _ = panel("/?show=quarantined&q=missing")
	assert.Equal(t, "its last good version", objects.Problems[0].Serves)
	objects, _ = panel("/?show=held")
	assert.Contains(t, objects.Remark, "4 more")
	objects, _ = panel("/?kind=gateway")
	assert.Zero(t, objects.Pager.To)
}

// TestDetail_TransformsAndHistory shows the changes by transforms and the link to the history.
func TestDetail_TransformsAndHistory(t *testing.T) {
	program := shop(t, 2)
	winner := aggregate.Statement{
		Source: "rules", Transforms: "hosts *.consul",
		Before: &aggregate.Before{Diff: "--- in the source\n+++ after its transforms\n@@ -1 +1 " +
			"@@\n-<s0.consul>\n+s0.example\n"},
	}
	loser := aggregate.Statement{Source: "old", Transforms: "labels"}
	program.explained = admin.Explanation{Objects: []admin.Explained{{
		Explanation: aggregate.Explanation{
			Object: conflicts.Ref(key("s0")), Winner: &winner,
			Shadowed: []aggregate.Statement{loser},
		},
	}}}
	h := newHandler(program)
	body := get(t, h, "/?object=ServiceEntry/shop/s0").Body.String()
	assert.Contains(t, body, "Changes by the transforms of rules: hosts *.consul")
	assert.Contains(t, body, "<span class=\"del\">-&lt;s0.consul&gt;\n</span><span class=\"ins\">&#43;s0.example\n</span>")
	assert.Contains(t, body, "Changes by the transforms of old: labels")
	assert.Contains(t, body, "The previous version is unknown")
	assert.Contains(t, body, `<a href="/debug/history?details=true&amp;kind=ServiceEntry&amp;name=s0&amp;namespace=shop">`)
	assert.Contains(t, body, "<code>tributary history ServiceEntry shop/s0 --admin mesh-1:16014</code>")
}

// TestPage_EscapesNames checks that names from other programs stay text.
func TestPage_EscapesNames(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>` + "\u202e\u2066\x1b["
	program := shop(t, 1)
	program.set(func(status *admin.Status) {
		status.Sources = append(status.Sources, admin.SourceState{
			Name: evil, Address: "javascript:alert(3)", State: "unreachable", Message: evil, LastError: evil,
			Hold: &admin.Hold{ID: evil, Why: evil},
		})
		status.Config.Warnings = []string{evil}
	})
	program.clients = []xds.ClientStatus{client(evil, "envoy", rejected(evil, evil))}
	program.quarantined = []admin.Quarantined{{Source: evil, Quarantined: sources.Quarantined{
		Ref: resource.Ref{Name: evil, Kind: resource.ServiceEntry}, Place: evil,
		Reason: evil,
	}}}
	program.explained = admin.Explanation{Why: evil, Objects: []admin.Explained{{
		Explanation: aggregate.Explanation{
			Winner: &aggregate.Statement{Source: evil, Place: evil, Transforms: evil},
			Object: conflicts.Ref(key("x")),
		},
	}}}
	handler := newHandler(program)
	for _, path := range []string{
		"/?q=%22%3E%3Cscript%3E", "/?show=quarantined",
		"/?object=ServiceEntry/x/%3Cscript%3E%E2%80%AE",
	} {
		rec := get(t, handler, path)
		require.Equal(t, http.StatusOK, rec.Code)
		body := rec.Body.String()
		assert.Equal(t, 1, strings.Count(body, "<script"), "only the page's")
		assert.NotContains(t, body, "<img")
		assert.False(t, strings.ContainsAny(body, "\u202e\u2066\x1b"), "no control characters")
		assert.NotContains(t, body, "style=")
		assert.NotContains(t, body, `href="javascript:`)
	}
}

func TestHeaders_RestrictContent(t *testing.T) {
	handler := newHandler(shop(t, 1))
	for _, path := range []string{"/", "/page/page.js", "/page/style.css", "/page/icon.svg"} {
		rec := get(t, handler, path)
		require.Equal(t, http.StatusOK, rec.Code, path)
		assert.Equal(t, policy, rec.Header().Get("Content-Security-Policy"))
		assert.Equal(t, "nosniff", rec.Header().Get("X-Content-Type-Options"))
	}
	assert.NotContains(t, policy, "unsafe")
	assert.Equal(t, http.StatusNotFound, get(t, handler, "/page/none").Code)
}

func TestPage_WithoutDebug(t *testing.T) {
	p := shop(t, 1)
	p.noDebug = true
	body := get(t, newHandler(p), "/").Body.String()
	assert.Contains(t, body, "admin: {debug: false}")
	assert.NotContains(t, body, "s0")
	assert.NotContains(t, body, "<script")
}

func TestEvents_SendNewestState(t *testing.T) {
	program := shop(t, 1)
	handler := newHandler(program)
	server := httptest.NewServer(handler)
	defer server.Close()
	defer handler.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/debug/page/events", nil)
	require.NoError(t, err)
	answer, err := server.Client().Do(req)
	require.NoError(t, err)
	defer answer.Body.Close() //nolint:errcheck // it is read
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	lines := bufio.NewScanner(answer.Body)
	next := func() (e stateEvent) {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				require.NoError(t, json.Unmarshal([]byte(data), &e))
				return e
			}
		}
		require.NoError(t, errors.Join(lines.Err(), errors.New("the events ended")))
		return e
	}
	first := next()
	assert.Equal(t, classOK, first.Class)
	assert.Contains(t, get(t, handler, "/").Body.String(), `data-revision="`+first.Revision+`"`)
	program.set(func(st *admin.Status) {
		st.Sources = []admin.SourceState{{Name: "rules", State: "denied", Message: "no"}}
		st.Uptime = "1h"
	})
	second := next()
	assert.Equal(t, classBad, second.Class)
	assert.Equal(t, "source rules is denied: no", second.Sentence)
	assert.NotEqual(t, first.Revision, second.Revision)
}

func TestRevision_IgnoresAges(t *testing.T) {
	st := shop(t, 1).status
	first, second := programState{status: st}, programState{status: st}
	second.status.Uptime = "2h"
	assert.Equal(t, hashState(&first, 1), hashState(&second, 1))
	assert.NotEqual(t, hashState(&first, 1), hashState(&first, 2))
	second.clients = []xds.ClientStatus{client("n", "envoy", synced(clusters))}
	assert.NotEqual(t, hashState(&first, 1), hashState(&second, 1))
}

// TestEvents_Bounded checks the limit of live pages, and that Close ends their streams.
func TestEvents_Bounded(t *testing.T) {
	handler := newHandler(shop(t, 1))
	server := httptest.NewServer(handler)
	defer server.Close()
	ask := func() (status int) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/debug/page/events", nil)
		require.NoError(t, err)
		answer, err := server.Client().Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer.StatusCode
	}
	for range maxLivePages {
		require.Equal(t, http.StatusOK, ask())
	}
	require.Equal(t, http.StatusServiceUnavailable, ask())
	handler.Close()
	handler.Close()
}

// stuckWriter is the writer of a browser that stops reading: writes fail after the deadline is set.
type stuckWriter struct {
	httptest.ResponseRecorder
	deadlines int
}

func (s *stuckWriter) SetWriteDeadline(time.Time) error { s.deadlines++; return nil }
func (s *stuckWriter) Write([]byte) (int, error)        { return 0, os.ErrDeadlineExceeded }
func (s *stuckWriter) Flush()                           {}

func TestEvents_SlowReaderDropped(t *testing.T) {
	handler := newHandler(shop(t, 1))
	w := &stuckWriter{}
	handler.events(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/page/events", nil)) // it returns
	assert.Equal(t, 1, w.deadlines)
	assert.Empty(t, handler.liveSlots)
}

func BenchmarkPage(b *testing.B) {
	program := shop(b, 100_000)
	for i := range 2000 {
		program.keysOfHost = append(program.keysOfHost, key(fmt.Sprintf("s%d", 7*i)))
	}
	handler := newHandler(program)
	for _, path := range []string{"/", "/?page=1500", "/?q=s9999", "/?q=reviews.example"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				get(b, handler, path)
			}
		})
	}
}
