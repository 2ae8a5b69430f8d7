package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"tributary/resource"
)

// A sample is a file of Istio's samples with objects for Envoys, and the services of the sample that it is part of.
type sample struct {
	file    string
	objects []*resource.Resource
}

// samples reads Istio's own samples. Services of Kubernetes are ServiceEntries of the same ports.
func samples(t *testing.T) (loaded []sample) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/istio").Output()
	require.NoError(t, err)
	dir := filepath.Join(strings.TrimSpace(string(out)), "samples")
	services := make(map[string][]*resource.Resource) // by the sample
	sampleOf := make(map[string]string)               // the sample of a file
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		part, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		s := sample{file: name}
		taken := make(map[resource.Key]bool)
		for _, d := range resource.Decode(name, content, resource.Options{
			UnknownFields: resource.SeverityWarning,
			DomainSuffix:  "cluster.local",
		}) {
			if d.Resource != nil && !taken[d.Resource.Key()] {
				taken[d.Resource.Key()] = true
				s.objects = append(s.objects, d.Resource)
			}
		}
		services[part] = append(services[part], servicesIn(content)...)
		if len(s.objects) > 0 {
			loaded = append(loaded, s)
			sampleOf[name] = part
		}
		return nil
	}))
	require.Greater(t, len(loaded), 30)
	for i := range loaded {
		seen := make(map[resource.Key]bool)
		for _, r := range services[sampleOf[loaded[i].file]] {
			if !seen[r.Key()] {
				seen[r.Key()] = true
				loaded[i].objects = append(loaded[i].objects, r)
			}
		}
	}
	return loaded
}

// servicesIn returns the services of Kubernetes in a text as ServiceEntries.
func servicesIn(content []byte) (services []*resource.Resource) {
	for dec := yaml.NewDecoder(strings.NewReader(string(content))); ; {
		var doc struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Spec     struct {
				Ports []struct {
					Port int
					Name string
				}
				Selector map[string]string
			}
		}
		if dec.Decode(&doc) != nil { // the end, or a template
			return services
		}
		if doc.Kind != "Service" || len(doc.Spec.Ports) == 0 {
			continue
		}
		namespace := doc.Metadata.Namespace
		if namespace == "" {
			namespace = "default"
		}
		text := fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: svc-%s, namespace: %s}\nspec:\n  hosts: "+
			"[%[1]s.%[2]s.svc.cluster.local]\n"+
			"  location: MESH_INTERNAL\n  resolution: STATIC\n  endpoints: [{address: 10.1.1.1, labels: {version: v1}}, {address: 10.1.1.2, "+
			"labels: {version: v2}}]\n  ports:\n", doc.Metadata.Name, namespace)
		for _, p := range doc.Spec.Ports {
			protocol, _, _ := strings.Cut(p.Name, "-")
			text += fmt.Sprintf("  - {number: %d, name: %q, protocol: %q}\n", p.Port, p.Name, strings.ToUpper(protocol))
		}
		for _, d := range resource.Decode("service", []byte(text), resource.Options{}) {
			if d.Resource != nil {
				services = append(services, d.Resource)
			}
		}
	}
}
