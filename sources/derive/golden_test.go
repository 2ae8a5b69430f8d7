package derive_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"tributary/resource"
	"tributary/sources/derive"
)

// expectedDifferences are the objects that istiod and we make differently, by golden file, with the reason.
var expectedDifferences = map[string]map[string]string{}

// document is one object of a YAML file.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec map[string]any `json:"spec"`

	text []byte // as JSON
}

func (d *document) key() string { return d.Kind + " " + d.Metadata.Namespace + "/" + d.Metadata.Name }

var separator = regexp.MustCompile(`(?m)^---.*$`)

func readDocuments(t *testing.T, path string) []*document {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var docs []*document
	for _, text := range separator.Split(string(data), -1) {
		d := &document{}
		d.text, err = yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err, path)
		require.NoError(t, json.Unmarshal(d.text, d), path)
		if d.Kind != "" {
			docs = append(docs, d)
		}
	}
	return docs
}

// goldens is where istiod's own test of its conversion has its inputs and results.
func goldens(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/istio").Output()
	require.NoError(t, err)
	return filepath.Join(strings.TrimSpace(string(out)), "pilot/pkg/config/kube/gateway/testdata")
}

// hostOfService is a Service of istiod's test, in the list at its top.
var hostOfService = regexp.MustCompile(`Hostname: +"([a-z0-9-]+)\.([a-z0-9-]+)\.svc\.domain\.suffix"`)

// TestGoldens compares what we make of istiod's test inputs with what istiod makes of them, object by object.
func TestGoldens(t *testing.T) {
	dir := goldens(t)
	source, err := os.ReadFile(filepath.Join(dir, "../conversion_test.go"))
	require.NoError(t, err)
	services := hostOfService.FindAllStringSubmatch(string(source), -1)
	require.Greater(t, len(services), 30)
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml.golden"))
	require.NoError(t, err)
	total, equal := 0, 0
	for _, golden := range files {
		name := strings.TrimSuffix(filepath.Base(golden), ".yaml.golden")
		if strings.HasSuffix(name, ".status") {
			continue // statuses are not written
		}
		total++
		t.Run(name, func(t *testing.T) {
			set := derive.NewSet(derive.Options{DomainSuffix: "domain.suffix", AllServices: true})
			put := func(apiVersion, kind string, text []byte) {
				require.NoError(t, set.Put(apiVersion, kind, resource.Origin{Place: name}, text))
			}
			for _, s := range services {
				put("v1", "Service", fmt.Appendf(nil, `{"metadata": {"name": %q, "namespace": %q}}`, s[1], s[2]))
			}
			for _, d := range readDocuments(t, filepath.Join(dir, name+".yaml")) {
				if namespace := d.Metadata.Namespace; namespace != "" {
					part, _, _ := strings.Cut(namespace, "-")
					put("v1", "Namespace", fmt.Appendf(nil, `{"metadata": {"name": %q, "labels": {"istio.io/test-name-part": %q}}}`,
						namespace, part))
				}
				if d.Kind != "InferencePool" {
					put(d.APIVersion, d.Kind, d.text)
				}
			}
			if compare(t, set, readDocuments(t, golden), expectedDifferences[name]) {
				equal++
			}
		})
	}
	assert.Greater(t, total, 30)
	assert.GreaterOrEqual(t, float64(equal), 0.9*float64(total), "%d of %d goldens are equal", equal, total)
	t.Logf("%d of %d goldens are equal", equal, total)
}

// compare reports whether all is equal.
func compare(t *testing.T, set *derive.Set, golden []*document, differences map[string]string) bool {
	t.Helper()
	want, got := make(map[string]*document), make(map[string]*document)
	for _, d := range golden {
		adapt(d)
		want[d.key()] = d
	}
	made, problems := set.Derive()
	for _, r := range made {
		text, err := resource.MarshalJSON(r)
		require.NoError(t, err)
		d := &document{}
		require.NoError(t, json.Unmarshal(text, d))
		got[d.key()] = d
		_, err = resource.Validate(r)
		assert.NoError(t, err)
	}
	for _, p := range problems {
		t.Log(p.Error())
	}
	equal := true
	keys := slices.Sorted(maps.Keys(want))
	for key := range got {
		if want[key] == nil {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		w, g := want[key], got[key]
		if w != nil && g != nil && assert.ObjectsAreEqual(plain(w), plain(g)) {
			assert.Empty(t, differences[key], "%s is equal", key)
			continue
		}
		equal = false
		if differences[key] == "" {
			assert.Equal(t, plain(w), plain(g), key)
		}
	}
	return equal
}

// plain is what counts of a document, as YAML.
func plain(d *document) string {
	if d == nil {
		return ""
	}
	text, _ := yaml.Marshal(map[string]any{"spec": d.Spec, "annotations": d.Metadata.Annotations})
	return string(text)
}

// adapt changes a golden as our rules of all goldens say.
func adapt(d *document) {
	if d.Kind == "VirtualService" && strings.Contains(d.Metadata.Name, "~") {
		d.Metadata.Name = derive.MergedName(strings.ReplaceAll(d.Metadata.Name, "~", "/"))
	}
	delete(d.Metadata.Annotations, "internal.istio.io/parents")
	if len(d.Metadata.Annotations) == 0 {
		d.Metadata.Annotations = nil
	}
}
