package verify_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/server/verify"
)

func read(t *testing.T, text string) *resource.Resource {
	t.Helper()
	docs := resource.Decode("x.yaml", []byte(text), resource.Options{})
	require.NoError(t, docs[0].Errors.Err())
	return docs[0].Resource
}

func rule(t *testing.T, name, host string) *resource.Resource {
	return read(t, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: "+name+
		", namespace: shop}\nspec: {host: "+
		host+"}\n")
}

// configzPage returns the configz of an istiod. versions replaces the versions of objects by name.
func configzPage(t *testing.T, versions map[string]string, objects ...*resource.Resource) []byte {
	t.Helper()
	items := []map[string]any{}
	for _, r := range objects {
		text, err := resource.MarshalJSON(r)
		require.NoError(t, err)
		var item map[string]any
		require.NoError(t, json.Unmarshal(text, &item))
		metadata := item["metadata"].(map[string]any)
		metadata["resourceVersion"], metadata["creationTimestamp"] = r.Version(), "1970-01-01T00:00:00Z"
		if v, ok := versions[r.Key().Name]; ok {
			metadata["resourceVersion"] = v
		}
		items = append(items, item)
	}
	b, err := json.Marshal(items)
	require.NoError(t, err)
	return b
}

func compare(t *testing.T, served []*resource.Resource, configz []byte) (lines []string) {
	t.Helper()
	stored, err := verify.Parse(configz)
	require.NoError(t, err)
	for _, finding := range verify.Compare(verify.Served{Objects: served}, stored) {
		lines = append(lines, string(finding.Class)+" "+finding.Key().String()+": "+finding.Reason)
	}
	return lines
}

const sidecarText = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: shop}\nspec: " +
	"{egress: [{hosts: ['./*']}]}\n"

func TestCompare_Findings(t *testing.T) {
	a, b := rule(t, "a", "a.example"), rule(t, "b", "b.example")
	older := rule(t, "a", "older.example")
	canary := read(t,
		"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: c, namespace: shop, labels: "+
			"{istio.io/rev: canary}}\nspec: {host: c.example}\n")
	sidecar := read(t, sidecarText)
	mesh := read(t, "apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: mesh}\nspec: {rootNamespace: mesh}\n")
	for name, testCase := range map[string]struct {
		served []*resource.Resource
		page   []byte
		want   []string
	}{
		"all is well":                      {[]*resource.Resource{a, b, mesh}, configzPage(t, nil, b, a), nil},
		"another rank is no other content": {[]*resource.Resource{a.Ranked(3)}, configzPage(t, nil, a), nil},
		"missing": {
			[]*resource.Resource{a, b},
			configzPage(t, nil, a),
			[]string{"missing DestinationRule shop/b: it may be on its way; if it stays so, istiod or a proxy in between has " +
				"dropped it"},
		},
		"missing with its kind": {
			[]*resource.Resource{a, sidecar},
			configzPage(t, nil, a),
			[]string{"missing Sidecar shop/s: istiod has no object of this kind: it may not request it, or be waiting for an " +
				"answer"},
		},
		"of another revision": {
			[]*resource.Resource{a, canary},
			configzPage(t, nil, a),
			[]string{"missing DestinationRule shop/c: it is labelled for the revision canary"},
		},
		"stale": {
			[]*resource.Resource{a},
			configzPage(t, nil, older),
			[]string{"stale DestinationRule shop/a: istiod has the earlier version " + older.Version()},
		},
		"stale and gone": {
			[]*resource.Resource{a},
			configzPage(t, nil, a, b),
			[]string{"stale DestinationRule shop/b: it is no longer served, and istiod still has it"},
		},
		"extra": {
			[]*resource.Resource{a},
			configzPage(t, map[string]string{"b": "12345"}, a, b),
			[]string{"extra DestinationRule shop/b: another config source of this istiod has it"},
		},
		"different, of another": {
			[]*resource.Resource{a},
			configzPage(t, map[string]string{"a": "12345"}, older),
			[]string{"different DestinationRule shop/a: another config source of this istiod has it, too"},
		},
		"different, of our version": {
			[]*resource.Resource{a},
			configzPage(t, map[string]string{"a": a.Version()}, older),
			[]string{"different DestinationRule shop/a: istiod shows other content than it was sent"},
		},
		"not readable": {
			[]*resource.Resource{a},
			[]byte(strings.Replace(string(configzPage(t, nil, a)), `"host"`, `"hosst"`, 1)),
			[]string{`different DestinationRule shop/a: istiod's object cannot be read: istiod.json:1:`},
		},
		"of a kind that we do not know": {nil, []byte(`[{"kind": "New", "metadata": {"name": "x"}}]`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := compare(t, testCase.served, testCase.page)
			require.Len(t, got, len(testCase.want), "%v", got)
			for i := range got {
				require.Contains(t, got[i], testCase.want[i])
			}
		})
	}
}

func TestCompare_SkipsUnrequestedKinds(t *testing.T) {
	a := rule(t, "a", "a.example")
	sidecar := read(t, sidecarText)
	stored, err := verify.Parse(configzPage(t, nil, a))
	require.NoError(t, err)
	served := verify.Served{
		Objects:   []*resource.Resource{a, sidecar},
		Requested: func(k resource.Kind) bool { return k == resource.DestinationRule },
	}
	require.Empty(t, verify.Compare(served, stored), "an object that no client requests is not missing")
}

func TestIstiod_ReadsStoredObjects(t *testing.T) {
	a := rule(t, "a", "a.example")
	answer, code, metrics := configzPage(t, nil, a), http.StatusOK,
		[]byte("# HELP pilot_info\npilot_info{version=\"1.27.9\"} 1\n")
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/configz":
			response.WriteHeader(code)
			_, _ = response.Write(answer)
		case "/metrics":
			_, _ = response.Write(metrics)
		default:
			response.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	istiod := verify.Istiod{URL: server.URL + "/", Client: server.Client()}
	require.NoError(t, istiod.Check())
	stored, err := istiod.Stored(t.Context())
	require.NoError(t, err)
	require.Len(t, stored, 1)
	require.Equal(t, a.Key(), stored[0].Key)
	answer = []byte("<html>")
	_, err = istiod.Stored(t.Context())
	require.ErrorContains(t, err, "not an answer of istiod")
	require.False(t, istiod.IsTributary(t.Context()))
	code = http.StatusForbidden
	_, err = istiod.Stored(t.Context())
	require.ErrorContains(t, err, "403")
	code, metrics = http.StatusOK, []byte("# TYPE tributary_build_info gauge\ntributary_build_info{version=\"1\"} 1\n")
	require.True(t, istiod.IsTributary(t.Context()))
	for _, wrong := range []string{"", "istiod:8080", "ftp://x", "http://u:p@x", "http://"} {
		require.Error(t, (&verify.Istiod{URL: wrong}).Check(), wrong)
	}
}
