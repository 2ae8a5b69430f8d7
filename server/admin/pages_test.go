package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"tributary/internal/history"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/verify"
	"tributary/server/xds"
)

// serverWithIndex returns a server with all features, and its index.
func serverWithIndex(t *testing.T) (*admin.Server, []admin.Page) {
	server := newServer(&world{}, serving(t, "rules"))
	return server, page[[]admin.Page](t, server, "/debug/")
}

// TestIndex_HasPagesAndParameters checks that each page of the index exists for its method only, and that the index has
// the parameters that the package reads.
func TestIndex_HasPagesAndParameters(t *testing.T) {
	server, index := serverWithIndex(t)
	var documented, read []string
	for _, p := range index {
		for method, allowed := range map[string]bool{http.MethodGet: p.Method == http.MethodGet, http.MethodPost: p.Method == http.MethodPost} {
			if allowed && p.Path == "/debug/pprof/" {
				continue // net/http/pprof answers each method
			}
			rec := httptest.NewRecorder()
			server.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), method, p.Path, nil))
			assert.NotEqual(t, "404 page not found\n", rec.Body.String(), p.Path)
			assert.Equal(t, allowed, rec.Code != http.StatusMethodNotAllowed, "%s %s: %d", method, p.Path, rec.Code)
		}
		for _, param := range p.Parameters {
			require.NotEmpty(t, param.About, "%s of %s", param.Name, p.Path)
			documented = append(documented, param.Name)
		}
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	queryReads := regexp.MustCompile(`(?:Query\(\)|\bquery|\bq)\.(?:Get|Has)\("(\w+)"\)`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range queryReads.FindAllStringSubmatch(string(text), -1) {
			read = append(read, m[1])
		}
	}
	slices.Sort(documented)
	slices.Sort(read)
	assert.Equal(t, slices.Compact(read), slices.Compact(documented))
}

// adminAPI begins docs/admin-api.md, before the table of pages.
const adminAPI = `# The admin port

` + "`listen.admin` (`127.0.0.1:16014`) answers HTTP. Parameters are query parameters (`?kind=se`). " +
	"Pages below `/debug` are JSON, except for the " +
	"profiles.\n`/debug/` has this list as JSON. Errors are plain text; a bad request gets 400. Access rights: " +
	"[Security](security.md#the-admin-port).\n\n" + `| ask | what it says | parameters |
| --- | --- | --- |
`

// TestIndex_InDocs compares docs/admin-api.md with the index.
func TestIndex_InDocs(t *testing.T) {
	_, index := serverWithIndex(t)
	var page strings.Builder
	page.WriteString(adminAPI)
	for _, p := range index {
		path, params := p.Path, []string(nil)
		if p.Method != http.MethodGet {
			path = p.Method + " " + path
		}
		for _, param := range p.Parameters {
			text := "`" + param.Name + "`"
			if param.Required {
				text += " (needed)"
			}
			params = append(params, text+": "+param.About)
		}
		_, _ = fmt.Fprintf(&page, "| `%s` | %s | %s |\n", path, p.About, strings.Join(params, "<br>"))
	}
	const file = "../../docs/admin-api.md"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(page.String()), 0o644)) //nolint:gosec // for everybody to read
		return
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, page.String(), string(text), "go test ./server/admin -run TestIndex_InDocs -update")
}

// fakeHistory is a history of one object.
type fakeHistory struct{ object *resource.Resource }

func (r fakeHistory) Find(history.Query) (*history.Answer, error) {
	return &history.Answer{Entries: []*history.Entry{{Event: history.Added, New: history.NewObject(r.object)}}}, nil
}

func (r fakeHistory) ServedAt(_ time.Time, _ resource.Kind) (*history.State, error) {
	return &history.State{Objects: []*history.Object{history.NewObject(r.object)}}, nil
}

func (r fakeHistory) Health() history.Health { return history.Health{} }

func getCompact(t *testing.T, s *admin.Server, path string) (status int, body string) {
	status, body = get(t, s, path)
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, []byte(body)))
	return status, compact.String()
}

// TestHistory_DecodedAndEncodedSpecs checks that specs are JSON, and encoded protobuf on request.
func TestHistory_DecodedAndEncodedSpecs(t *testing.T) {
	reviews := entry(t, "reviews", "rules", "a.yaml:1")
	server := newServer(&world{}, serving(t, "rules", reviews), func(o *admin.Options) { o.History = fakeHistory{reviews} })
	for path, part := range map[string]string{"/debug/history?details=true&": `"new":{`, "/debug/history/at?": `"objects":[{`} {
		_, body := getCompact(t, server, path)
		assert.Contains(t, body, part)
		assert.Contains(t, body, `"spec":{"hosts":["reviews.example"]`)
		assert.NotContains(t, body, `"body"`)
		_, body = getCompact(t, server, path+"encoded=true")
		assert.Contains(t, body, `"body":"`)
		assert.NotContains(t, body, `"spec"`)
	}
}

// TestExpected_InvalidNode requests the expected configuration without a node, and with an invalid one.
func TestExpected_InvalidNode(t *testing.T) {
	server := newServer(&world{}, serving(t, "rules"), func(o *admin.Options) {
		o.Expected = func(context.Context, *corev3.Node, bool) (*verify.Expected, []xds.Served, error) {
			return &verify.Expected{OnDemand: true, Refusals: []verify.Refusal{{Node: "\"dump\": null"}}}, nil, nil
		}
	})
	const want = `want ?node= as the node of an Envoy's bootstrap, in JSON, such as {"id": "sidecar~10.0.0.7~web.shop~shop.svc.cluster.local"}`
	for query, complaint := range map[string]string{"": want + "\n", "?node=x": want + ": syntax error (line 1:1): invalid value x\n"} {
		status, body := get(t, server, "/debug/expected"+query)
		assert.Equal(t, http.StatusBadRequest, status)
		assert.Equal(t, complaint, body)
	}
	expected := page[verify.Expected](t, server, "/debug/expected?node="+url.QueryEscape(`{"id": "a"}`))
	assert.True(t, expected.OnDemand)
	assert.NoError(t, protojson.Unmarshal(expected.Dump, &adminv3.ConfigDump{}))
}
