package index

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	securityv1beta1 "istio.io/api/security/v1beta1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// meshOf has the objects of a case.
func meshOf(c *envoytest.Case) *Mesh {
	mesh := NewMesh()
	for _, object := range c.Objects() {
		require.NoError(c, mesh.Set(object.Key(), object))
	}
	return mesh
}

// grouped returns a profile as clients are grouped.
func grouped(mesh *Mesh, profile model.Profile) model.Profile {
	mesh.Selectors.Narrow(&profile)
	return profile
}

// TestSecurityObjectsSelectClients has the clients that security objects select. gRPC clients enforce none.
func TestSecurityObjectsSelectClients(t *testing.T) {
	envoytest.Goldens(t, *update, "testdata/selected-*.txtar", func(c *envoytest.Case) {
		mesh, profile := meshOf(c), model.ProfileOf(c.Node())
		selected := len(mesh.Security(profile, nil).HTTP) > 0
		c.Expect("want", fmt.Sprintln("selected:", selected))
		require.Equal(c, selected, len(mesh.Security(grouped(mesh, profile), nil).HTTP) > 0)
		require.Empty(c, mesh.Unenforced(profile))
		require.Empty(c, mesh.Unenforced(grouped(mesh, profile)))
		profile.Role = model.Proxyless
		require.Nil(c, mesh.Security(profile, nil))
		require.Equal(c, selected, len(mesh.Unenforced(profile)) > 0)
	})
}

// policies returns policies of a kind with targets: as a list, and for one target as the single one.
func policies(t *testing.T, kind resource.Kind, targets string) (forms []proto.Message) {
	fields := []string{"targetRefs: " + targets}
	if !strings.Contains(targets, "}, {") && kind != resource.EnvoyFilter {
		fields = append(fields, "targetRef: "+strings.Trim(strings.TrimSpace(targets), "[]"))
	}
	for _, field := range fields {
		var spec proto.Message
		switch kind {
		case resource.AuthorizationPolicy:
			spec = new(securityv1beta1.AuthorizationPolicy)
		case resource.RequestAuthentication:
			spec, field = new(securityv1beta1.RequestAuthentication), field+", jwtRules: [{issuer: i, jwks: '{}'}]"
		case resource.WasmPlugin:
			spec, field = new(extensionsv1alpha1.WasmPlugin), field+", url: 'file:///a.wasm'"
		case resource.EnvoyFilter:
			spec = new(networking.EnvoyFilter)
		default:
			spec = new(telemetryv1alpha1.Telemetry)
		}
		forms = append(forms, envoytest.Read(t, spec, "{"+field+"}"))
	}
	return forms
}

// TestPolicyTargets has the effect of an AuthorizationPolicy with targets on each client. Objects of other kinds that
// enforce security have the same one, and those of further kinds only select clients.
func TestPolicyTargets(t *testing.T) {
	kinds := []resource.Kind{
		resource.AuthorizationPolicy, resource.RequestAuthentication, resource.WasmPlugin, resource.EnvoyFilter, resource.Telemetry,
	}
	envoytest.Goldens(t, *update, "testdata/policy-targets*.txtar", func(c *envoytest.Case) {
		expected, attached := make(map[string]outcome), false
		for _, kind := range kinds {
			secures := slices.Contains(resource.SecurityKinds, kind)
			for form, spec := range policies(c.T, kind, c.Text("targets.yaml")) {
				mesh := meshOf(c)
				key := resource.Key{Kind: kind, Namespace: strings.TrimSpace(c.Text("namespace")), Name: "policy"}
				put(c.T, mesh, kind, key.Namespace, key.Name, 0, spec)
				outcomes := make(map[string]outcome)
				for client, profile := range targetClients {
					outcomes[client] = outcomeOf(mesh, kind, profile)
					require.Equal(c, outcomes[client], outcomeOf(mesh, kind, grouped(mesh, profile)), "%s for %s as it is grouped", kind, client)
					if outcomes[client] == enforced {
						require.Empty(c, mesh.WhyUnattached(key, []model.Profile{profile}), client)
					}
				}
				if kind == resource.AuthorizationPolicy && form == 0 {
					expected, attached = outcomes, mesh.WhyUnattached(key, nil) == ""
					lines := fmt.Sprintln("attached:", attached)
					for _, client := range slices.Sorted(maps.Keys(expected)) {
						if expected[client] != ignored {
							lines += fmt.Sprintf("%s: %s\n", client, expected[client])
						}
					}
					c.Expect("want", lines)
				}
				for client, want := range expected {
					if !secures && want != enforced {
						want = ignored
					}
					require.Equal(c, want, outcomes[client], "%s %d for %s", kind, form, client)
				}
				require.Equal(c, attached, mesh.WhyUnattached(key, nil) == "", kind)
				require.Equal(c, secures && !attached, len(mesh.Unattached(nil)) > 0, kind)
				mesh.Warn = true // missing enforcement causes only a message
				for client, profile := range targetClients {
					require.Contains(c, []outcome{enforced, ignored}, outcomeOf(mesh, kind, profile), "%s warns for %s", kind, client)
				}
			}
		}
	})
}
