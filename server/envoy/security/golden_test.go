package security_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
)

// meshConfigs returns the MeshConfigs of files; the others have none.
func meshConfigs(t *testing.T) map[string]*meshv1alpha1.MeshConfig {
	t.Helper()
	text, err := os.ReadFile("testdata/meshconfigs.yaml")
	require.NoError(t, err)
	var texts map[string]json.RawMessage
	require.NoError(t, yaml.Unmarshal(text, &texts))
	configs := make(map[string]*meshv1alpha1.MeshConfig)
	for name, text := range texts {
		configs[name] = envoytest.Read(t, new(meshv1alpha1.MeshConfig), string(text))
	}
	return configs
}

// inputs are the files that have no input of their own name.
var inputs = map[string]string{
	"http/custom-grpc-provider-no-namespace": "http/custom-simple-http",
	"http/custom-grpc-provider":              "http/custom-simple-http",
	"http/custom-http-provider":              "http/custom-simple-http", "http/custom-bad": "http/custom-simple-http",
}

// differs has the files with another translation than istiod's, and the reasons.
var differs = map[string]string{
	"http/allow-host-before-111": "it is a format for proxies before 1.11, and no test of " +
		"Istio uses it",
	"http/custom-bad-multiple-providers":          severalProviders,
	"http/extended-custom-bad-multiple-providers": severalProviders,
}

const severalProviders = "one filter denies matches of each provider, and istiod has a filter for each"

var numbered = regexp.MustCompile(`-out\d*\.yaml$`)

// TestGoldens compares the translations of Istio's own golden files with istiod's.
func TestGoldens(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/istio").Output()
	require.NoError(t, err)
	dir := filepath.Join(strings.TrimSpace(string(out)), "pilot/pkg/security/authz/builder/testdata")
	configs := meshConfigs(t)
	files := 0
	for _, protocol := range []string{"http", "tcp"} {
		entries, err := os.ReadDir(filepath.Join(dir, protocol))
		require.NoError(t, err)
		wanted := make(map[string][]string) // in order
		used := make(map[string]bool)
		for _, e := range entries {
			files++
			switch name := protocol + "/" + e.Name(); {
			case strings.HasSuffix(name, "-in.yaml"):
				if protocol == "tcp" { // an empty translation has no output
					name := strings.TrimSuffix(name, "-in.yaml")
					if wanted[name] == nil {
						wanted[name] = []string{}
					}
				}
			default:
				group := numbered.ReplaceAllString(name, "")
				wanted[group] = append(wanted[group], name)
			}
		}
		for name, outputs := range wanted {
			t.Run(name, func(t *testing.T) {
				plain := strings.Replace(name, "/extended-", "/", 1)
				input := plain
				if inputs[plain] != "" {
					input = inputs[plain]
				}
				used[input] = true
				security := secured(t, filepath.Join(dir, input+"-in.yaml"), configs[plain])
				var messages []proto.Message
				if protocol == "http" {
					for _, f := range security.HTTP {
						messages = append(messages, f)
					}
				} else {
					for _, f := range security.TCP {
						messages = append(messages, f)
					}
				}
				equal := len(messages) == len(outputs)
				for i := range min(len(messages), len(outputs)) {
					want := parsed(t, filepath.Join(dir, outputs[i]), protocol)
					if differs[name] == "" {
						require.Equal(t, protojson.Format(want), protojson.Format(messages[i]), outputs[i])
					}
					equal = equal && proto.Equal(want, messages[i])
				}
				require.Equal(t, differs[name] == "", equal, "%d filters of %d: %s", len(messages), len(outputs), differs[name])
			})
		}
		for _, e := range entries {
			if name, isInput := strings.CutSuffix(e.Name(), "-in.yaml"); isInput && name != "custom-bad-multiple-providers" {
				require.True(t, used[protocol+"/"+name], name)
			}
		}
	}
	require.Equal(t, 91, files, "Istio has others: look at its builder_test.go")
	several := secured(t, filepath.Join(dir, "http/custom-bad-multiple-providers-in.yaml"), configs["http/custom-http-provider"])
	wanted := make(map[string]*rbacv3.Policy)
	for _, name := range []string{"out1", "out2"} {
		filter := parsed(t, filepath.Join(dir, "http/custom-bad-multiple-providers-"+name+".yaml"),
			"http").(*hcmv3.HttpFilter)
		maps.Copy(wanted, denyingRules(t, filter))
	}
	require.Len(t, several.HTTP, 1)
	got := denyingRules(t, several.HTTP[0])
	require.Len(t, got, len(wanted))
	for name, policy := range wanted {
		require.Empty(t, cmp.Diff(policy, got[name], protocmp.Transform()), name)
	}
}

func denyingRules(t *testing.T, filter *hcmv3.HttpFilter) map[string]*rbacv3.Policy {
	t.Helper()
	var rules rbachttpv3.RBAC
	require.NoError(t, filter.GetTypedConfig().UnmarshalTo(&rules))
	require.Equal(t, rbacv3.RBAC_DENY, rules.GetRules().GetAction())
	return rules.GetRules().GetPolicies()
}

func parsed(t *testing.T, file, protocol string) proto.Message {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	text, err = yaml.YAMLToJSON(text)
	require.NoError(t, err)
	var message proto.Message = new(hcmv3.HttpFilter)
	if protocol == "tcp" {
		message = new(listenerv3.Filter)
	}
	require.NoError(t, protojson.Unmarshal(text, message))
	return message
}

// secured returns the translation of a file for a workload in namespace foo with a MeshConfig, which may be nil.
func secured(t *testing.T, file string, config *meshv1alpha1.MeshConfig) *model.Security {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return securedBy(t, string(text), config)
}

func securedBy(t *testing.T, text string, config *meshv1alpha1.MeshConfig) *model.Security {
	t.Helper()
	m := newMesh(t, text, config)
	return m.Security(workload(), nil)
}

func workload() model.Profile {
	return model.Profile{
		Role: model.Ingress, Namespace: "foo", Labels: model.LabelText(map[string]string{"app": "httpbin", "version": "v1"}),
		Large: true,
	}
}

const authorizer = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: authorizer, namespace: foo}
spec: {hosts: [my-custom-ext-authz.foo.svc.cluster.local], ports: [{number: 9000, name: http, protocol: HTTP}], resolution: DNS}
---
`

// newMesh has the objects of a text, a MeshConfig, which may be nil, and the service my-custom-ext-authz.
func newMesh(t *testing.T, text string, config *meshv1alpha1.MeshConfig) *index.Mesh {
	t.Helper()
	mesh := index.NewMesh()
	set := func(kind resource.Kind, namespace, name string, created time.Time, spec proto.Message,
		annotations map[string]string,
	) {
		key := resource.Key{Kind: kind, Namespace: namespace, Name: name}
		r, err := resource.New(resource.Meta{Key: key, Created: created, Annotations: annotations}, spec)
		require.NoError(t, err)
		require.NoError(t, mesh.Set(r.Key(), r))
	}
	if config != nil {
		set(resource.MeshConfig, model.RootNamespace, "default", time.Time{}, config, nil)
	}
	for i, document := range resource.Decode("test.yaml", []byte(authorizer+text), resource.Options{}) {
		if document.Resource == nil {
			require.Empty(t, document.Errors)
			continue
		}
		spec, err := document.Resource.Spec()
		require.NoError(t, err)
		key := document.Resource.Key()
		set(key.Kind, key.Namespace, key.Name, time.Unix(int64(i), 0), spec, document.Resource.Annotations())
	}
	return mesh
}
