package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"tributary/e2e/fixture"
)

// TestFirstSync shows that an istiod that starts behind tributary has exactly the objects of the files.
func TestFirstSync(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{
		"quickstart": fixture.Testdata("quickstart"),
		"bookinfo":   fixture.IstioSamples(t, "bookinfo/networking"),
	} {
		t.Run(name, func(t *testing.T) {
			fixture.EachIstiod(t, func(t *testing.T, version fixture.IstiodVersion) {
				want := fixture.ReadObjects(t, dir)
				require.NotEmpty(t, want)
				_, istiod := serveTo(t, version, fixture.Files("rules", absolute(t, dir)))
				istiod.AwaitConfigs(t, want)
			})
		})
	}
}

// TestIstiod_ReceivesEveryKind shows that an object of each kind that istiod requests reaches it, and that its change
// and its deletion do.
func TestIstiod_ReceivesEveryKind(t *testing.T) {
	t.Parallel()
	fixture.EachIstiod(t, func(t *testing.T, version fixture.IstiodVersion) {
		text, err := os.ReadFile(filepath.Join("testdata", "kinds", "kinds.yaml"))
		require.NoError(t, err)
		requireEveryKind(t, fixture.ParseObjects(t, string(text)))
		objects, types := string(text), 15
		if version != fixture.Istiod127 {
			objects, types = objects+trafficExtension, 16
		}
		dir := t.TempDir()
		write(t, dir, "kinds.yaml", objects)
		write(t, dir, "kept.yaml", serviceEntry("kept", 80))
		tributary, istiod := serveTo(t, version, fixture.Files("rules", dir).With("guard", "off"))
		istiod.AwaitFolders(t, dir)

		write(t, dir, "kinds.yaml", relabeled(t, objects))
		istiod.AwaitFolders(t, dir)
		list, err := streams(t, tributary)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Len(t, list[0].Types, types, "with the mesh configuration")
		for _, requested := range list[0].Types {
			require.Empty(t, requested.Nack.Error, requested.TypeURL)
		}

		require.NoError(t, os.Remove(filepath.Join(dir, "kinds.yaml")))
		istiod.AwaitFolders(t, dir)
	})
}

// relabeled returns YAML documents of objects with other labels.
func relabeled(t *testing.T, documents string) string {
	t.Helper()
	var changed strings.Builder
	encoder := yaml.NewEncoder(&changed)
	for decoder := yaml.NewDecoder(strings.NewReader(documents)); ; {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		object["metadata"].(map[string]any)["labels"] = map[string]any{"changed": "yes"}
		require.NoError(t, encoder.Encode(object))
	}
	require.NoError(t, encoder.Close())
	return changed.String()
}

// trafficExtension is of a kind that istiod requests from 1.31 on.
const trafficExtension = `---
apiVersion: extensions.istio.io/v1alpha1
kind: TrafficExtension
metadata: {name: kind, namespace: shop}
spec: {wasm: {url: "oci://registry.example/extension:v1"}}
`

func requireEveryKind(t *testing.T, objects fixture.Objects) {
	t.Helper()
	present := map[string]bool{}
	for key := range objects {
		present[key.Kind] = true
	}
	for _, kind := range fixture.Kinds() {
		require.True(t, present[kind], "no %s in the test's data", kind)
	}
}

// TestFileChanges shows that a file which is added, changed, replaced, renamed or deleted reaches istiod.
func TestFileChanges(t *testing.T) {
	t.Parallel()
	fixture.EachIstiod(t, func(t *testing.T, version fixture.IstiodVersion) {
		dir := t.TempDir()
		write(t, dir, "a.yaml", serviceEntry("a", 80))
		_, istiod := serveTo(t, version, fixture.Files("rules", dir))

		step := func(name string, change func()) {
			t.Helper()
			change()
			t.Log(name)
			istiod.AwaitFolders(t, dir)
		}
		step("nothing changed yet", func() {})
		step("a file is added", func() { write(t, dir, "b.yaml", serviceEntry("b", 80)) })
		step("it is changed", func() { write(t, dir, "b.yaml", serviceEntry("b", 81)) })
		step("it gets a second document", func() { write(t, dir, "b.yaml", serviceEntry("b", 81)+"---\n"+serviceEntry("c", 80)) })
		step("it loses the first", func() { write(t, dir, "b.yaml", serviceEntry("c", 80)) })
		step("an editor replaces it", func() {
			write(t, dir, ".b.yaml.swp", serviceEntry("c", 82))
			require.NoError(t, os.Rename(filepath.Join(dir, ".b.yaml.swp"), filepath.Join(dir, "b.yaml")))
		})
		step("it is renamed", func() { require.NoError(t, os.Rename(filepath.Join(dir, "b.yaml"), filepath.Join(dir, "z.yml"))) })
		step("a folder with a file is added", func() {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "deep", "er"), 0o700))
			write(t, dir, "deep/er/d.yaml", serviceEntry("d", 80))
		})
		step("a file is deleted", func() { require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml"))) })
		step("a folder is deleted", func() { require.NoError(t, os.RemoveAll(filepath.Join(dir, "deep"))) })
	})
}

// TestSingleChange_Arrives shows that changes arrive which istiod's own config server keeps to itself until something
// else changes.
func TestSingleChange_Arrives(t *testing.T) {
	t.Parallel()
	fixture.EachIstiod(t, onlyThisChanges)
}

func onlyThisChanges(t *testing.T, version fixture.IstiodVersion) {
	dir := t.TempDir()
	_, istiod := serveTo(t, version, fixture.Files("rules", dir))

	for _, test := range []struct{ name, object, from, to string }{
		{"Gateway", `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: only, namespace: shop}
spec: {selector: {istio: ingressgateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ` +
			`[one.example.com]}]}`, "one.", "two."},
		{"Sidecar", `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: only, namespace: shop}
spec: {egress: [{hosts: [one/*]}]}`, "one/", "two/"},
		{"WorkloadEntry", `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: only, namespace: shop}
spec: {address: 127.0.0.1, labels: {app: one}}`, "app: one", "app: two"},
		{"WorkloadGroup", `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: only, namespace: shop}
spec: {metadata: {labels: {app: one}}, template: {serviceAccount: vm}}`, "app: one", "app: two"},
		{"ServiceEntry exported nowhere", `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: only, namespace: shop}
spec: {hosts: [one.mesh.internal], exportTo: ["."], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: ` +
			`[{address: 127.0.0.1}]}`, "one.", "two."},
		{"VirtualService exported nowhere", `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: only, namespace: shop}
spec: {hosts: [one.mesh.internal], exportTo: ["."], http: [{route: [{destination: {host: one.mesh.internal}}]}]}`, "one.", "two."},
		{"DestinationRule exported nowhere", `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: only, namespace: shop}
spec: {host: one.mesh.internal, exportTo: ["."], trafficPolicy: {loadBalancer: {simple: RANDOM}}}`, "RANDOM", "LEAST_REQUEST"},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := strings.ReplaceAll(test.object, test.from, test.to)
			require.NotEqual(t, test.object, changed)
			write(t, dir, "only.yaml", test.object)
			istiod.AwaitText(t, test.object)
			write(t, dir, "only.yaml", changed)
			istiod.AwaitText(t, changed)
			require.NoError(t, os.Remove(filepath.Join(dir, "only.yaml")))
			istiod.AwaitConfigs(t, fixture.Objects{})
		})
	}
}

// TestInvalidChange_KeepsObjects shows that a file that becomes invalid removes no object, is named, and holds up no
// other file.
func TestInvalidChange_KeepsObjects(t *testing.T) {
	t.Parallel()
	good := serviceEntry("one", 80) + "---\n" + serviceEntry("two", 80)
	for name, bad := range map[string]string{
		"no YAML":                    good[:len(good)-20] + "\n  {[\n",
		"binary garbage":             "\x7fELF\x00\x01\xff\xfe",
		"unknown field":              strings.ReplaceAll(good, "resolution:", "solution:"),
		"wrong type":                 strings.ReplaceAll(good, "number: 80", "number: eighty"),
		"no Istio kind":              strings.ReplaceAll(good, "ServiceEntry", "ServiceEntrance"),
		"refused by istiod":          strings.ReplaceAll(good, "number: 80", "number: 80000"),
		"a name that istiod ignores": strings.ReplaceAll(good, "name: one", "name: one/more"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "rules.yaml", good)
			tributary, istiod := serve(t, dir)
			want := fixture.ReadObjects(t, dir)
			istiod.AwaitConfigs(t, want)

			watch := guard(t, istiod, want)
			write(t, dir, "rules.yaml", bad)
			tributary.Await(t, pageNames(t, tributary, "/debug/sources", "rules.yaml"))
			// A change after the bad file arrives, so istiod has read all earlier changes.
			write(t, dir, "zebra.yaml", serviceEntry("zebra", 80))
			want = maps.Clone(want)
			maps.Copy(want, fixture.ParseObjects(t, serviceEntry("zebra", 80)))
			istiod.AwaitConfigs(t, want)
			watch.stop(t)

			better := strings.ReplaceAll(good, "number: 80", "number: 81")
			write(t, dir, "rules.yaml", better)
			istiod.AwaitFolders(t, dir)
		})
	}
}

// TestInvalidFile_AffectsNoOther shows that a file that was never valid keeps no other object from istiod, nor
// tributary from its work. (istiod's own file source ends istiod.)
func TestInvalidFile_AffectsNoOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", "kind: [\n")
	write(t, dir, "b.yaml", serviceEntry("b", 80))
	_, istiod := serve(t, dir)
	istiod.AwaitText(t, serviceEntry("b", 80))

	write(t, dir, "a.yaml", serviceEntry("a", 80))
	istiod.AwaitFolders(t, dir)
}

// TestHeldUntilSynced shows that istiod gets no answer, not even an empty one, before every source is synced.
func TestHeldUntilSynced(t *testing.T) {
	t.Parallel()
	rules, late := t.TempDir(), filepath.Join(t.TempDir(), "late")
	write(t, rules, "a.yaml", serviceEntry("a", 80))
	tributary := fixture.StartTributary(t, fixture.Files("rules", rules), fixture.Files("late", late))
	istiod := fixture.NewIstiod(t, "xds://"+tributary.XDS)

	tributary.Await(t, pageNames(t, tributary, "/debug/syncz", "istiod-e2e"))
	status, body, err := fixture.Get(t.Context(), tributary.URL("/-/ready"))
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "late", "the page names the source that is not synced")
	require.Error(t, istiod.Synced(t.Context()), "istiod opened its port, so it had an answer for every kind")

	require.NoError(t, os.Mkdir(late, 0o700))
	write(t, late, "b.yaml", serviceEntry("b", 80))
	istiod.AwaitSynced(t)
	istiod.AwaitFolders(t, rules, late)
}

// serve runs a tributary that serves the folder and an istiod behind it.
func serve(t *testing.T, dir string) (*fixture.Tributary, *fixture.Istiod) {
	t.Helper()
	return serveTo(t, fixture.Istiod127, fixture.Files("rules", absolute(t, dir)))
}

// serveTo runs a tributary that serves the source and an istiod of a version behind it.
func serveTo(t *testing.T, version fixture.IstiodVersion, source fixture.ConfigSource) (*fixture.Tributary, *fixture.Istiod) {
	t.Helper()
	tributary := fixture.StartTributary(t, source)
	return tributary, version.Start(t, "xds://"+tributary.XDS)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	return path
}

// pageNames says whether a page of tributary's admin server mentions a name.
func pageNames(t *testing.T, tributary *fixture.Tributary, page, name string) func() error {
	return func() error {
		_, body, err := fixture.Get(t.Context(), tributary.URL(page))
		if err == nil && !strings.Contains(body, name) {
			err = fmt.Errorf("%s does not mention %q: %s", page, name, body)
		}
		return err
	}
}

// serviceEntry is a ServiceEntry in the namespace shop.
func serviceEntry(name string, port int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.mesh.internal]
  ports: [{number: %[2]d, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 127.0.0.1}]
`, name, port)
}

// write writes a file as a careless program does: in place.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}
