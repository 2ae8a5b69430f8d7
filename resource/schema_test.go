package resource

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// TestSchemasAsCRDs compares the schemas with the CRDs of Istio's API, which are in the module cache.
func TestSchemasAsCRDs(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		t.Skip("Istio's API is not in the module cache")
	}
	data, err := os.ReadFile(filepath.Join(root, "kubernetes", "customresourcedefinitions.gen.yaml"))
	require.NoError(t, err)
	seen := 0
	for _, chunk := range split(data) {
		var crd struct {
			Spec struct {
				Group string `yaml:"group"`
				Names struct {
					Kind       Kind     `yaml:"kind"`
					Plural     string   `yaml:"plural"`
					ShortNames []string `yaml:"shortNames"`
				} `yaml:"names"`
				Versions []struct {
					Name string `yaml:"name"`
				} `yaml:"versions"`
			} `yaml:"spec"`
		}
		require.NoError(t, yaml.Unmarshal(chunk.text, &crd))
		schema, ok := SchemaOf(crd.Spec.Names.Kind)
		if !assert.True(t, ok, "no schema of %s", crd.Spec.Names.Kind) {
			continue
		}
		seen++
		var versions []string
		for _, v := range crd.Spec.Versions {
			versions = append(versions, v.Name)
		}
		assert.Equal(t, crd.Spec.Group, schema.Group)
		assert.Equal(t, crd.Spec.Names.Plural, schema.Plural)
		assert.Equal(t, crd.Spec.Names.ShortNames, schema.ShortNames, schema.Kind)
		assert.ElementsMatch(t, versions, schema.Versions, schema.Kind)
	}
	assert.Equal(t, len(schemas)-1, seen, "all but MeshConfig have a CRD")
}

func TestSchemas(t *testing.T) {
	assert.True(t, slices.IsSortedFunc(schemas, func(a, b *Schema) int { return strings.Compare(string(a.Kind), string(b.Kind)) }))
	for _, schema := range schemas {
		assert.Equal(t, schema.Message, schema.NewSpec().ProtoReflect().Descriptor().FullName())
		assert.NotNil(t, validators[schema.Kind], "no validator of %s", schema.Kind)
		for _, v := range schema.Versions {
			got, ok := SchemaByTypeURL(schema.Group + "/" + v + "/" + string(schema.Kind))
			assert.True(t, ok)
			assert.Same(t, schema, got)
		}
		for _, name := range append(slices.Clone(schema.ShortNames), string(schema.Kind), strings.ToUpper(schema.Plural)) {
			got, ok := SchemaByName(name)
			assert.True(t, ok, name)
			assert.Same(t, schema, got, name)
		}
	}
	for _, url := range []string{
		"", "ServiceEntry", "v1/ServiceEntry", "networking.istio.io/v9/ServiceEntry",
		"security.istio.io/v1/ServiceEntry", "a/b/c",
	} {
		_, ok := SchemaByTypeURL(url)
		assert.False(t, ok, url)
	}
}
