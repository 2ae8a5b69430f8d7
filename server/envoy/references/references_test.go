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
)

var update = flag.Bool("update", false, "write the golden files")

func check(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

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

func first(findings []Finding, _ []string) []Finding { return findings }

// TestFind has every finding, and none of hosts that something unread may have.
func TestFind(t *testing.T) {
	s := snapshot(t, "testdata/broken.yaml")
	check(t, "testdata/broken.golden", text(first(Find(s, Options{}))))
	findings, unchecked := Find(s, Options{Partial: true})
	partial := text(findings)
	for _, code := range []string{NotFound, UnknownHost, UnusedSubset} {
		require.NotContains(t, partial, code)
	}
	require.Contains(t, partial, Unreachable)
	reasons := strings.Join(unchecked, "\n")
	require.Contains(t, reasons, "Gateway ")
	require.Contains(t, reasons, "subset ")

	// A registry has neither subsets nor Gateways.
	findings, unchecked = Find(s, Options{Hosts: true})
	hosts := text(findings)
	require.Contains(t, hosts, ".subset: ")
	require.Contains(t, hosts, "there is no Gateway")
	require.NotContains(t, hosts, "no ServiceEntry")
	reasons = strings.Join(unchecked, "\n")
	require.NotEmpty(t, reasons)
	require.NotContains(t, reasons, "Gateway ")
	require.NotContains(t, reasons, "subset ")
}

// TestExamples_HaveNoFindings has the objects that the program ships.
func TestExamples_HaveNoFindings(t *testing.T) {
	paths, err := filepath.Glob("../../../testdata/quickstart/*")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	require.Empty(t, text(first(Find(snapshot(t, paths...), Options{}))))
}

// TestFindMissing checks the references that cost requests, each in variations.
func TestFindMissing(t *testing.T) {
	const entry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e, namespace: shop}
spec: {hosts: [HOST], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, location: MESH_INTERNAL}
`
	const rule = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: shop}
spec: {host: HOST, subsets: [{name: v1, labels: {version: v1}}]}
`
	const route = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: r, namespace: shop}
spec: {hosts: [a.example], `
	withHost := func(text, host string) string { return strings.ReplaceAll(text, "HOST", host) + "---" }
	to := func(destination string) string {
		return route + "http: [{route: [{destination: " + destination + "}]}]}"
	}
	elsewhere := func(text, exportTo string) string {
		text = strings.ReplaceAll(text, "namespace: shop", "namespace: other")
		return strings.ReplaceAll(text, "spec: {", "spec: {exportTo: "+exportTo+", ")
	}
	v1 := to("{host: b.example, subset: v1}")
	const gateway = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g, namespace: shop}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---`
	for name, c := range map[string]struct {
		text    string
		options Options
		want    string // part of the one finding; none if empty
	}{
		"host":               {to("{host: b.example}"), Options{}, "no ServiceEntry has the host b.example"},
		"host exists":        {withHost(entry, "b.example") + to("{host: b.example}"), Options{}, ""},
		"host of a wildcard": {withHost(entry, "'*.example'") + to("{host: b.example}"), Options{}, "no ServiceEntry has the host b.example"},
		"the wildcard":       {withHost(entry, "'*.example'") + to("{host: '*.example'}"), Options{}, ""},
		"host of another namespace": {
			elsewhere(withHost(entry, "b.example"), "['.']") + to("{host: b.example}"), Options{}, "not exported to namespace shop",
		},
		"host exported to others":  {elsewhere(withHost(entry, "b.example"), "[away]") + to("{host: b.example}"), Options{}, "not exported"},
		"host exported here":       {elsewhere(withHost(entry, "b.example"), "[away, shop]") + to("{host: b.example}"), Options{}, ""},
		"host exported everywhere": {elsewhere(withHost(entry, "b.example"), "['*']") + to("{host: b.example}"), Options{}, ""},
		"host of the clients there": {elsewhere(withHost(entry, "b.example"), "['.']") +
			strings.Replace(to("{host: b.example}"), "spec: {", "spec: {exportTo: [other], ", 1), Options{}, ""},
		"port": {withHost(entry, "b.example") + to("{host: b.example, port: {number: 81}}"), Options{}, "shop/e has no port 81"},
		"port of TCP": {
			withHost(entry, "b.example") + route + "tcp: [{route: [{destination: {host: b.example, port: {number: 81}}}]}]}",
			Options{},
			"no port 81",
		},
		"port exists": {withHost(entry, "b.example") + to("{host: b.example, port: {number: 80}}"), Options{}, ""},
		"port of another entry": {
			withHost(entry, "b.example") + elsewhere(strings.ReplaceAll(withHost(entry, "b.example"), "80", "81"), "['*']") +
				to("{host: b.example, port: {number: 81}}"), Options{}, "",
		},
		"port, unread": {withHost(entry, "b.example") + to("{host: b.example, port: {number: 81}}"), Options{Partial: true}, ""},
		"subset elsewhere": {
			withHost(entry, "b.example") + elsewhere(withHost(rule, "b.example"), "['*']") + v1, Options{}, "for clients in shop",
		},
		"subset of the host's": {elsewhere(withHost(entry, "b.example")+withHost(rule, "b.example"), "['*']") + v1, Options{}, ""},
		"subset not exported": {
			withHost(entry, "b.example") + strings.Replace(withHost(rule, "b.example"), "spec: {", "spec: {exportTo: [other], ", 1) + v1,
			Options{},
			"for clients in shop",
		},
		"subset at a Gateway": {
			withHost(entry, "b.example") + elsewhere(withHost(rule, "b.example"), "['*']") + gateway +
				strings.Replace(v1, "hosts:", "gateways: [g], hosts:", 1), Options{}, "",
		},
		"subset behind exact": {
			withHost(entry, "b.example") + withHost(rule, "'*.example'") +
				strings.NewReplacer("HOST", "b.example", "name: d", "name: f", "name: v1", "name: v2").Replace(rule) + "---" + v1,
			Options{},
			`DestinationRule shop/f has no subset "v1"`,
		},
		"wildcard elsewhere": {withHost(entry, "'*.other'") + to("{host: b.example}"), Options{}, "host b.example"},
		"host of TCP":        {route + "tcp: [{route: [{destination: {host: b.example}}]}]}", Options{}, "spec.tcp[0]"},
		"host of a mirror": {
			withHost(entry, "b.example") + route + "http: [{route: [{destination: {host: b.example}}], mirror: {host: c.example}}]}",
			Options{},
			"spec.http[0].mirror.host",
		},
		"unread":               {to("{host: b.example}"), Options{Partial: true}, ""},
		"short":                {to("{host: b}"), Options{}, ""},
		"short, no cluster":    {to("{host: b}"), Options{Cluster: true}, "host b.shop.svc"},
		"short, exists":        {withHost(entry, "b.shop.svc.cluster.local") + to("{host: b}"), Options{Cluster: true}, ""},
		"cluster of a service": {to("{host: b.shop.svc.cluster.local}"), Options{Cluster: true}, "host b.shop.svc.cluster.local"},
		"subset": {
			withHost(entry, "b.example") + withHost(rule, "b.example") + to("{host: b.example, subset: v2}"),
			Options{},
			`no subset "v2"`,
		},
		"subset exists": {withHost(entry, "b.example") + withHost(rule, "b.example") + to("{host: b.example, subset: v1}"), Options{}, ""},
		"subset of a wildcard": {withHost(entry, "b.example") + withHost(rule,
			"'*.example'") + to("{host: b.example, subset: v1}"), Options{}, ""},
		"subset of no rule": {
			withHost(entry, "b.example") + to("{host: b.example, subset: v1}"),
			Options{},
			"no DestinationRule of b.example",
		},
		"gateway": {
			withHost(entry, "b.example") + route + "gateways: [edge/x, mesh], http: [{route: [{destination: {host: b.example}}]}]}",
			Options{},
			"spec.gateways[0]: there is no Gateway edge/x",
		},
		"delegate": {route + "http: [{delegate: {name: x}}]}", Options{}, "spec.http[0].delegate: there is no VirtualService shop/x"},
		"delegate to itself by name": {
			route + "http: [{delegate: {name: r, namespace: shop}}]}", Options{}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var table memstore.Table
			for _, d := range resource.Decode("a.yaml", []byte(c.text), resource.Options{}) {
				require.NoError(t, d.Errors.Err())
				table.Apply([]*resource.Resource{d.Resource}, nil)
			}
			findings, unchecked := FindMissing(table.Snapshot(), c.options)
			require.Equal(t, c.options.Partial, len(unchecked) > 0)
			if c.want == "" {
				require.Empty(t, text(findings))
				return
			}
			require.Len(t, findings, 1)
			require.Contains(t, findings[0].Message, c.want)
		})
	}
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
