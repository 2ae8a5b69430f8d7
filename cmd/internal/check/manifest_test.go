package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

const manifestYAML = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: plain, resourceVersion: "12"}
spec: {hosts: [a.example], http: [{route: [{destination: {host: a.example}}]}]}
---
# nothing
---
apiVersion: v1
kind: List
items:
- apiVersion: networking.istio.io/v1alpha3
  kind: VirtualService
  metadata: {name: listed, namespace: other, resourceVersion: 13}
  spec: {hosts: [b.example], http: [{route: [{destination: {host: b.example}}]}]}
- apiVersion: networking.istio.io/v1
  kind: VirtualService
  metadata: {name: none}
  spec: {hosts: [c.example], http: [{route: [{destination: {host: c.example}}]}]}
`

func TestReadManifest_Versions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.yaml")
	require.NoError(t, os.WriteFile(path, []byte(manifestYAML), 0o600))
	for _, from := range []string{path, filepath.Dir(path), "-"} {
		var l Linter
		manifestObjects, err := ReadManifest(t.Context(), &l, from, "shop", strings.NewReader(manifestYAML))
		require.NoError(t, err)
		require.Empty(t, l.Findings)
		versions := map[string]string{}
		for _, o := range manifestObjects {
			versions[o.Key().FullName()] = o.Version
		}
		require.Equal(t, map[string]string{"shop/plain": "12", "other/listed": "13", "shop/none": ""}, versions, from)
	}
}

func TestReadManifest_Findings(t *testing.T) {
	for text, want := range map[string]string{
		"kind: [\nresourceVersion":                                "stdin:",
		strings.Replace(manifestYAML, "hosts: [a", "hots: [a", 1): `unknown field "hots"`,
		manifestYAML + "---\n" + manifestYAML:                     "already defined at stdin:1",
	} {
		var linter Linter
		_, err := ReadManifest(t.Context(), &linter, "-", "shop", strings.NewReader(text))
		require.NoError(t, err)
		require.NotEmpty(t, linter.Findings)
		require.Contains(t, linter.Findings[0].String(), want)
	}
	_, err := ReadManifest(t.Context(), &Linter{}, "/none", "shop", nil)
	require.ErrorContains(t, err, "/none")
}

func TestWithVersion(t *testing.T) {
	r := resource.Decode("x", []byte(manifestYAML), resource.Options{})[0].Resource
	for _, marshal := range []func(*resource.Resource) ([]byte, error){resource.MarshalYAML, resource.MarshalJSON} {
		text, err := marshal(r)
		require.NoError(t, err)
		require.Equal(t, text, WithVersion(text, ""))
		var l Linter
		manifestObjects, err := ParseManifest(&l, "x", WithVersion(text, "77"), "default")
		require.NoError(t, err)
		require.Empty(t, l.Findings)
		require.Len(t, manifestObjects, 1)
		require.Equal(t, "77", manifestObjects[0].Version)
		require.True(t, resource.Equal(r, manifestObjects[0].Resource))
	}
}
