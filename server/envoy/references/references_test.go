package references

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/envoytest"
)

var update = flag.Bool("update", false, "write the golden files")

// snapshot is the state of all objects in the files of a directory.
func snapshot(t *testing.T, paths ...string) memstore.Snapshot {
	t.Helper()
	var table memstore.Table
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, d := range resource.Decode(path, text, resource.Options{}) {
			if d.Resource != nil {
				table.Apply([]*resource.Resource{d.Resource}, nil)
			}
		}
	}
	return table.Snapshot()
}

func text(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s %s %s: %s\n", strings.Replace(string(f.Severity), "note", "info", 1), f.Code, f.Key, f.Message)
	}
	return b.String()
}

// TestGoldens has the findings of each case, and the references that only unread sources could resolve.
func TestGoldens(t *testing.T) {
	for name, find := range map[string]func(memstore.Snapshot, Options) ([]Finding, []string){"find": Find, "missing": FindMissing} {
		envoytest.Goldens(t, *update, "testdata/"+name+"-*.txtar", func(c *envoytest.Case) {
			options := c.Text("options")
			findings, unchecked := find(c.Table().Snapshot(), Options{
				Partial: strings.Contains(options, "partial"), Hosts: strings.Contains(options, "hosts"), Cluster: strings.Contains(options, "cluster"),
			})
			lines := text(findings)
			for _, reason := range unchecked {
				lines += "unchecked: " + reason + "\n"
			}
			c.Expect("want", lines)
		})
	}
}

// TestExamples_HaveNoFindings has the objects that the program ships.
func TestExamples_HaveNoFindings(t *testing.T) {
	paths, err := filepath.Glob("../../../testdata/quickstart/*")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	findings, _ := Find(snapshot(t, paths...), Options{})
	require.Empty(t, findings)
}

// BenchmarkFindMissing has the references of 10,000 routes.
func BenchmarkFindMissing(b *testing.B) {
	var table memstore.Table
	var objects []*resource.Resource
	for i := range 10_000 {
		for _, document := range resource.Decode("a.yaml", fmt.Appendf(nil, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e%[1]d, namespace: shop}
spec: {hosts: [h%[1]d.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: r%[1]d, namespace: shop}
spec: {hosts: [h%[1]d.example], http: [{route: [{destination: {host: h%[1]d.example}}]}]}
`, i), resource.Options{}) {
			require.NoError(b, document.Errors.Err())
			objects = append(objects, document.Resource)
		}
	}
	table.Apply(objects, nil)
	for b.Loop() {
		FindMissing(table.Snapshot(), Options{})
	}
}
