package check_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/check"
)

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
		require.NoError(t, linter.AddServed([]byte(configz), ""))
		require.NoError(t, linter.CheckConflicts(t.Context()))
		linter.CheckReferences()
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
