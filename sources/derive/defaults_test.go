package derive_test

import (
	"archive/zip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"tributary/sources/derive"
)

// definitions returns the CRDs of Gateway API 1.7. This module cannot require that of Gateway API, which needs a newer Go.
func definitions(t *testing.T) (texts [][]byte) {
	t.Helper()
	const version = "sigs.k8s.io/gateway-api@v1.7.0"
	out, failed := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", version).Output()
	var module struct{ Zip, Error string }
	require.NoError(t, json.Unmarshal(out, &module), "%v", failed)
	if module.Zip == "" {
		t.Skip("the module of Gateway API cannot be downloaded: ", module.Error)
	}
	archive, err := zip.OpenReader(module.Zip)
	require.NoError(t, err)
	defer func() { _ = archive.Close() }()
	for _, file := range archive.File {
		folder, name := path.Split(file.Name)
		if !strings.HasSuffix(folder, "/config/crd/experimental/") || !strings.HasSuffix(name, ".yaml") {
			continue
		}
		reader, err := file.Open()
		require.NoError(t, err)
		text, err := io.ReadAll(reader)
		require.NoError(t, err)
		require.NoError(t, reader.Close())
		texts = append(texts, text)
	}
	require.NotEmpty(t, texts)
	return texts
}

// TestDefaults holds that defaults.yaml has each default of the CRDs for a field that is read.
func TestDefaults(t *testing.T) {
	defaults := make(map[string]any)
	for _, text := range definitions(t) {
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &crd))
		i := slices.IndexFunc(derive.Kinds, func(k derive.Kind) bool { return k.Kind == crd.Spec.Names.Kind })
		if i < 0 {
			continue
		}
		for _, version := range derive.Kinds[i].Versions { // the preferred one first
			j := slices.IndexFunc(crd.Spec.Versions, func(v struct {
				Name   string
				Schema struct{ OpenAPIV3Schema map[string]any }
			},
			) bool {
				return v.Name == version
			})
			if j < 0 {
				continue
			}
			spec := crd.Spec.Versions[j].Schema.OpenAPIV3Schema["properties"].(map[string]any)["spec"]
			if fields := defaultsOf(spec, derive.Shape(derive.Kinds[i].Kind)); fields != nil {
				defaults[derive.Kinds[i].Kind] = fields
			}
			break
		}
	}
	defaults["XListenerSet"] = defaults["ListenerSet"] // Its earlier name.
	text, err := yaml.Marshal(defaults)
	require.NoError(t, err)
	text = append([]byte("# Written by go test ./sources/derive -run TestDefaults -update\n"), text...)
	if *update {
		require.NoError(t, os.WriteFile("defaults.yaml", text, 0o600))
	}
	want, err := os.ReadFile("defaults.yaml")
	require.NoError(t, err)
	require.Equal(t, string(want), string(text))
}

// defaultsOf returns the schema's defaults for the fields of a shape; nil for none.
func defaultsOf(schema, shape any) map[string]any {
	defaults := make(map[string]any)
	properties, _ := schema.(map[string]any)
	if properties["default"] != nil {
		defaults["default"] = properties["default"]
	}
	switch shape := shape.(type) {
	case []any:
		if inner := defaultsOf(properties["items"], shape[0]); inner != nil {
			defaults["items"] = inner
		}
	case map[string]any:
		fields, _ := properties["properties"].(map[string]any)
		for name, field := range shape {
			if inner := defaultsOf(fields[name], field); inner != nil && field != "ignored" {
				defaults[name] = inner
			}
		}
	}
	if len(defaults) == 0 {
		return nil
	}
	return defaults
}
