package check_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/check"
	"tributary/server/envoy/references"
)

func route(name, host string) string {
	return `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ` + name + `, namespace: shop}
spec: {hosts: [` + host + `], http: [{route: [{destination: {host: ` + host + `}}]}]}
`
}

func together(t *testing.T, l *check.Linter) []string {
	t.Helper()
	require.NoError(t, l.Compete(t.Context()))
	return lines(l)
}

func TestCompete(t *testing.T) {
	tree(t, map[string]string{
		"rules/a.yaml": route("a", "reviews.example"), "rules/b.yaml": route("b", "reviews.example"),
		"rules/c.yaml": route("c", "ratings.example"),
		"more/d.yaml":  route("d", "ratings.example"),
	})
	var linter check.Linter
	require.NoError(t, linter.Path(t.Context(), "rules"))
	require.NoError(t, linter.Path(t.Context(), "more"))
	found := together(t, &linter)
	require.Len(t, found, 2, found)
	assert.Contains(t, found[0], "more/d.yaml:1: VirtualService shop/d: warning: on ratings.example with VirtualService shop/c "+
		"(rules/c.yaml:1): ")
	assert.Contains(t, found[1], "rules/b.yaml:1: VirtualService shop/b: warning: on reviews.example with VirtualService shop/a "+
		"(rules/a.yaml:1): ")
	assert.Equal(t, check.Rule("virtual-service-mesh"), linter.Findings[0].Rule)
	assert.Equal(t, 4, linter.Objects)
}

// TestCompete_Workloads checks that the objects that another one for the same workloads displaces are reported.
func TestCompete_Workloads(t *testing.T) {
	sidecar := func(name string) string {
		return "---\napiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: " + name +
			", namespace: shop}\nspec: {egress: [{hosts: ['./*']}]}\n"
	}
	peer := func(name string) string {
		return "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: " + name +
			", namespace: shop}\nspec: {}\n"
	}
	tree(t, map[string]string{"rules/a.yaml": sidecar("a") + sidecar("b") + peer("a") + peer("b")})
	var linter check.Linter
	require.NoError(t, linter.Path(t.Context(), "rules"))
	const reason = ": on all workloads of namespace shop with %KIND shop/a (rules/a.yaml:%LINE): istiod uses shop/a, the first by " +
		"name, and ignores shop/b"
	assert.Equal(t, []string{
		"rules/a.yaml:7: Sidecar shop/b" + strings.NewReplacer("%KIND", "Sidecar", "%LINE", "2").Replace(reason) + " (IST0111)",
		"rules/a.yaml:17: PeerAuthentication shop/b: warning" +
			strings.NewReplacer("%KIND", "PeerAuthentication", "%LINE", "12").Replace(reason),
	}, together(t, &linter))
	assert.Equal(t, check.Rule("IST0111"), linter.Findings[0].Rule)
}

func text(t *testing.T, linter *check.Linter, name string, offline bool) (skipped []string) {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	skipped, err = linter.Text(t.Context(), name, data, offline)
	require.NoError(t, err)
	return skipped
}

func TestConfig_ChecksAllSources(t *testing.T) {
	tree(t, map[string]string{
		"tributary.yaml": `configSources:
- {name: away, address: "fs://./nowhere"}
- {name: dc1, address: "consul://127.0.0.1:8500"}
- {name: new, address: "fs://./new", validation: warn}
- {name: moved, address: "fs://./moved", transform: {namespaces: {shop: mall}}}
- {name: rules, address: "fs://./rules", domainSuffix: cluster.local}
`,
		"new/a.yaml":   badPort,
		"moved/a.yaml": good,
		"rules/a.yaml": good + "---\n" + route("short", "details"),
		"rules/b.yaml": badField,
	})
	var linter check.Linter
	skipped := text(t, &linter, "tributary.yaml", false)
	found := together(t, &linter)
	require.Len(t, skipped, 1)
	assert.Contains(t, skipped[0], "source dc1 (consul://127.0.0.1:8500)")
	all := strings.Join(found, "\n")
	assert.Contains(t, all, "tributary.yaml: source away (fs://./nowhere): ")
	assert.Contains(t, all, "new/a.yaml:4:47: ServiceEntry shop/bad: warning: port number 80000", "a rule that the source only warns of")
	assert.Contains(t, all, "rules/b.yaml:4:8: Gateway default/front: spec: unknown field")
	assert.NotContains(t, all, "also defined at", "the transforms of a source count")
	assert.NotContains(t, all, "has no domain", "so does its domain suffix")

	linter = check.Linter{}
	skipped = text(t, &linter, "tributary.yaml", true)
	assert.Len(t, skipped, 2)
	assert.NotContains(t, strings.Join(together(t, &linter), "\n"), "nowhere")
}

// TestAnalyze_UnreachableRouteOnce has Istio's validation and the analysis find the same.
func TestAnalyze_UnreachableRouteOnce(t *testing.T) {
	tree(t, map[string]string{"rules/a.yaml": `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: shop}
spec:
  hosts: [a.example]
  http:
  - route: [{destination: {host: a.shop.svc}}]
  - match: [{uri: {prefix: /a}}]
    route: [{destination: {host: b.shop.svc}}]
`})
	var linter check.Linter
	require.NoError(t, linter.Path(t.Context(), "rules"))
	require.NotEmpty(t, together(t, &linter))
	linter.Analyze()
	require.Len(t, linter.Findings, 1)
	require.Equal(t, check.Rule(references.Unreachable), linter.Findings[0].Rule)
}

// TestServedReferences has a DestinationRule lose a subset that a served VirtualService needs.
func TestServedReferences(t *testing.T) {
	const rule = `{"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": {"name": "a", "namespace": "shop"},
"spec": {"host": "a.example", "subsets": [SUBSETS]}}`
	configz := "[" + strings.Replace(rule, "SUBSETS", `{"name": "v1"}, {"name": "v2"}`, 1) + `,
{"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": "a", "namespace": "shop"},
"spec": {"hosts": ["a.example"], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "STATIC"}},
{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "a", "namespace": "shop"},
"spec": {"hosts": ["a.example"], "http": [
{"match": [{"uri": {"prefix": "/gone"}}], "route": [{"destination": {"host": "a.example", "subset": "gone"}}]},
{"route": [{"destination": {"host": "a.example", "subset": "v2"}}]}]}}]`
	for subsets, want := range map[string]int{`{"name": "v1"}`: 1, `{"name": "v1"}, {"name": "v2"}`: 0} {
		var linter check.Linter
		_, err := linter.Text(t.Context(), "a.json", []byte(strings.Replace(rule, "SUBSETS", subsets, 1)), false)
		require.NoError(t, err)
		require.NoError(t, linter.Served([]byte(configz), ""))
		together(t, &linter)
		linter.Analyze()
		all := strings.Join(lines(&linter), "\n")
		require.Equal(t, want, strings.Count(all, "VirtualService shop/a: with these objects, spec.http[1].route[0].destination.subset: "), all)
		require.NotContains(t, all, "http[0]", "it led nowhere before")
	}
}

func TestByPlace(t *testing.T) {
	all := []check.Finding{{Place: "b.yaml"}, {Place: "a.yaml:10:2"}, {Place: "a.yaml:9"}, {Place: "a.yaml"}}
	slices.SortStableFunc(all, check.ByPlace)
	require.Equal(t, []check.Finding{{Place: "a.yaml"}, {Place: "a.yaml:9"}, {Place: "a.yaml:10:2"}, {Place: "b.yaml"}}, all)
}

// subsets has a reference to a subset that its DestinationRule does not have, and a reference to a missing host.
const subsets = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews.example, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.example]
  http:
  - match: [{uri: {prefix: /a}}]
    route: [{destination: {host: nowhere.example}}]
  - route: [{destination: {host: reviews.example, subset: v2}}]
`

// TestAnalyze_UnreadRegistry finds an undefined subset beside a Consul that is not read, and names the unchecked host;
// with consul-kv it finds neither.
func TestAnalyze_UnreadRegistry(t *testing.T) {
	for address, found := range map[string]bool{"consul://127.0.0.1:8500": true, "consul-kv://127.0.0.1:8500/rules": false} {
		tree(t, map[string]string{
			"tributary.yaml": "configSources:\n- {name: rules, address: \"fs://./rules\"}\n- {name: dead, address: \"" + address + "\"}\n",
			"rules/a.yaml":   subsets,
		})
		var linter check.Linter
		text(t, &linter, "tributary.yaml", false)
		together(t, &linter)
		linter.Analyze()
		all := strings.Join(lines(&linter), "\n")
		require.Equal(t, found, strings.Contains(all, `has no subset "v2" of reviews.example`), all)
		if found {
			require.Contains(t, all, "rules/a.yaml:14:59: VirtualService shop/reviews: spec.http[1].route[0].destination.subset: ")
		}
		require.NotContains(t, all, "nowhere.example")
		require.Contains(t, linter.Unchecked, "nowhere.example")
		require.Contains(t, linter.Unchecked, " were not checked, since dead was not read")
	}
}

// TestAnalyze_Places has the text of a file, of standard input and of a list, also with two objects on a line.
func TestAnalyze_Places(t *testing.T) {
	const list = `{"apiVersion": "v1", "kind": "List", "items": [
{"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "metadata": {"name": "a"}, "spec": {"address": "192.0.2.1"}}, ` +
		`{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "b"},
"spec": {"hosts": ["b.default.svc"], "http": [{"route": [{"destination": {"host": "b.default.svc"}}]}],
"gateways": ["none"]}}]}`
	tree(t, map[string]string{"rules/a.yaml": subsets, "rules/b.json": list})
	want := []string{
		"a.yaml:4:14: DestinationRule shop/reviews: warning: spec.host: ", "a.yaml:14:34: VirtualService shop/reviews: warning: ",
		"a.yaml:13:34: VirtualService shop/reviews: warning: ", "a.yaml:14:59: VirtualService shop/reviews: spec.http",
		"b.json:4:14: VirtualService default/b: warning: spec.gateways[0]: ",
	}
	var tree, alone check.Linter
	require.NoError(t, tree.Path(t.Context(), "rules"))
	for name, content := range map[string]string{"a.yaml": subsets, "b.json": list} {
		_, err := alone.Text(t.Context(), name, []byte(content), false)
		require.NoError(t, err)
	}
	for _, l := range []*check.Linter{&tree, &alone} {
		together(t, l)
		l.Analyze()
		all := strings.Join(lines(l), "\n")
		for _, line := range want {
			require.Contains(t, all, line)
		}
	}
}

func TestText_Empty(t *testing.T) {
	tree(t, map[string]string{
		"tributary.yaml": "# nothing yet\n", "rules.yaml": "", "none.yaml": "configSources: []\n",
		"other.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
	})
	for name, want := range map[string]string{
		"tributary.yaml": "tributary.yaml:1:1: configSources: at least one source is needed",
		"none.yaml":      "none.yaml:1:16: configSources: at least one source is needed",
		"rules.yaml":     "rules.yaml: warning: nothing is in it",
	} {
		var l check.Linter
		text(t, &l, name, false)
		require.Len(t, l.Findings, 1, name)
		assert.Contains(t, l.Findings[0].String(), want)
	}
	var l check.Linter
	text(t, &l, "other.yaml", false)
	assert.Equal(t, []string{"other.yaml:1:13: Pod default/a: note: Pod of v1 is not of Istio's API, and is not served"}, together(t, &l))
	assert.Equal(t, 1, l.Foreign)
}

func TestSARIF(t *testing.T) {
	findings := []check.Finding{
		{
			Place: "rules/a.yaml:4:7", Kind: "ServiceEntry", Namespace: "shop", Name: "a", Severity: check.Error, Rule: check.Invalid,
			Message: "port",
		},
		{Place: "rules/b.yaml:4", Severity: check.Warning, Rule: check.Malformed, Message: "text"},
		{Place: "fs://rules", Severity: check.Error, Rule: check.Unreadable, Message: "denied"},
	}
	got, err := json.MarshalIndent(check.SARIF(findings, "v1"), "", " ")
	require.NoError(t, err)
	require.JSONEq(t, `{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": [{
			"tool": {"driver": {"name": "tributary", "version": "v1", "rules": [{"id": "invalid"}, {"id": "malformed"}, {"id": "unreadable"}]}},
			"results": [
				{"ruleId": "invalid", "level": "error", "message": {"text": "ServiceEntry shop/a: port"}, "locations": [{"physicalLocation": `+
		`{"artifactLocation": {"uri": "rules/a.yaml"}, "region": {"startLine": 4, "startColumn": 7}}}]},
				{"ruleId": "malformed", "level": "warning", "message": {"text": "text"}, "locations": [{"physicalLocation": {"artifactLocation": `+
		`{"uri": "rules/b.yaml"}, "region": {"startLine": 4}}}]},
				{"ruleId": "unreadable", "level": "error", "message": {"text": "denied"}, "locations": [{"physicalLocation": {"artifactLocation": `+
		`{"uri": "fs://rules"}}}]}
			]
		}]
	}`, string(got))
	got, err = json.Marshal(check.SARIF(nil, "v1"))
	require.NoError(t, err)
	require.Contains(t, string(got), `"results":[]`)
}
