package security_test

import (
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
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"tributary/resource"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
)

type (
	body         = meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody
	httpProvider = meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider
	grpcProvider = meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider
)

func asks(p *httpProvider) *meshv1alpha1.MeshConfig {
	return &meshv1alpha1.MeshConfig{ExtensionProviders: []*meshv1alpha1.MeshConfig_ExtensionProvider{
		{Name: "default", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp{EnvoyExtAuthzHttp: p}},
	}}
}

func asksGRPC(p *grpcProvider) *meshv1alpha1.MeshConfig {
	return &meshv1alpha1.MeshConfig{ExtensionProviders: []*meshv1alpha1.MeshConfig_ExtensionProvider{
		{Name: "default", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc{EnvoyExtAuthzGrpc: p}},
	}}
}

func inDomains(domain string, aliases ...string) *meshv1alpha1.MeshConfig {
	return &meshv1alpha1.MeshConfig{TrustDomain: domain, TrustDomainAliases: aliases}
}

// The MeshConfigs of Istio's own test of these files.
var (
	asksHTTP = asks(&httpProvider{
		Service: "foo/my-custom-ext-authz.foo.svc.cluster.local", Port: 9000, Timeout: &durationpb.Duration{Seconds: 10},
		FailOpen:      true,
		StatusOnError: "403", PathPrefix: "/check",
		IncludeRequestHeadersInCheck: []string{"x-custom-id", "x-prefix-*", "*-suffix"},
		//nolint:staticcheck // what the other one replaces
		IncludeHeadersInCheck:           []string{"should-not-include-when-IncludeRequestHeadersInCheck-is-set"},
		IncludeAdditionalHeadersInCheck: map[string]string{"x-header-1": "value-1", "x-header-2": "value-2"},
		IncludeRequestBodyInCheck:       &body{MaxRequestBytes: 2048, AllowPartialMessage: true, PackAsBytes: true},
		HeadersToUpstreamOnAllow:        []string{"Authorization", "x-prefix-*", "*-suffix"},
		HeadersToDownstreamOnDeny:       []string{"Set-cookie", "x-prefix-*", "*-suffix"},
		HeadersToDownstreamOnAllow:      []string{"Set-cookie", "x-prefix-*", "*-suffix"},
	})
	asksByGRPC = asksGRPC(&grpcProvider{
		Service: "foo/my-custom-ext-authz.foo.svc.cluster.local", Port: 9000,
		Timeout: &durationpb.Duration{Nanos: 2000 * 1000}, FailOpen: true,
		StatusOnError: "403", IncludeRequestBodyInCheck: &body{MaxRequestBytes: 4096, AllowPartialMessage: true},
	})
	asksWithoutNamespace = asksGRPC(&grpcProvider{
		Service: "my-custom-ext-authz.foo.svc.cluster.local", Port: 9000, FailOpen: true, StatusOnError: "403",
	})
	asksNobody = asks(&httpProvider{
		Service: "foo/my-custom-ext-authz", Port: 999999, PathPrefix: "check",
		StatusOnError: "999",
	})
)

// configs are the MeshConfigs of files; the others have none.
var configs = map[string]*meshv1alpha1.MeshConfig{
	"http/custom-grpc-provider-no-namespace":     asksWithoutNamespace,
	"http/custom-grpc-provider":                  asksByGRPC,
	"http/custom-http-provider":                  asksHTTP,
	"http/custom-bad":                            asksNobody,
	"http/simple-policy-td-aliases":              inDomains("td1", "cluster.local"),
	"http/simple-policy-multiple-td-aliases":     inDomains("td1", "cluster.local", "some-td"),
	"http/simple-policy-principal-with-wildcard": inDomains("td1", "foobar"),
	"http/td-aliases-source-principal":           inDomains("new-td", "old-td", "some-trustdomain"),
	"tcp/custom-both-http-tcp":                   asksByGRPC,
	"tcp/custom-only-http":                       asksHTTP,
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
	several := secured(t, filepath.Join(dir, "http/custom-bad-multiple-providers-in.yaml"), asksHTTP)
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
	set(resource.ServiceEntry, "foo", "authorizer", time.Time{}, &networking.ServiceEntry{
		Hosts: []string{"my-custom-ext-authz.foo.svc.cluster.local"}, Resolution: networking.ServiceEntry_DNS,
		Ports: []*networking.ServicePort{{Number: 9000, Name: "http", Protocol: "HTTP"}},
	}, nil)
	if config != nil {
		set(resource.MeshConfig, model.RootNamespace, "default", time.Time{}, config, nil)
	}
	for i, document := range resource.Decode("test.yaml", []byte(text), resource.Options{}) {
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
