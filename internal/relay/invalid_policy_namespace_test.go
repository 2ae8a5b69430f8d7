package relay

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInvalidPolicy_OtherNamespaceThanRestoredObjects: a reject in another namespace than the restored objects of its group was never valid
// there.
func TestInvalidPolicy_OtherNamespaceThanRestoredObjects(t *testing.T) {
	t.Parallel()
	const audit = policyHead + policyMeta + "spec: {action: AUDIT}\n"
	nameless := func(kind string) string {
		return "apiVersion: security.istio.io/v1\nkind: " + kind + "\nmetadata: {namespace: other}\nspec: {}\n"
	}
	for name, tt := range map[string]struct{ before, after map[string]string }{
		"in its place": {
			map[string]string{"a.yaml": audit}, map[string]string{"a.yaml": nameless("AuthorizationPolicy")},
		},
		"in its place, other kind": {
			map[string]string{"a.yaml": audit}, map[string]string{"a.yaml": nameless("PeerAuthentication")},
		},
		"in another file": {
			map[string]string{"a.yaml": audit}, map[string]string{"a.yaml": "", "b.yaml": nameless("AuthorizationPolicy")},
		},
		"beside it": {
			map[string]string{"a.yaml": audit}, map[string]string{"a.yaml": audit + "---\n" + nameless("AuthorizationPolicy")},
		},
		"in place of a MeshConfig": {
			map[string]string{"a.yaml": "apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: mesh}\nspec: {}\n"},
			map[string]string{"a.yaml": nameless("AuthorizationPolicy")},
		},
		"beside a broken one": {
			map[string]string{"a.yaml": audit},
			map[string]string{"a.yaml": strings.Replace(audit, "name: deny, ", "", 1) + "---\n" + nameless("AuthorizationPolicy")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			configureRules(t, dir, "")
			write(t, dir+"/rules/gateways.yaml", gatewaysYAML())
			for file, text := range tt.before {
				write(t, dir+"/rules/"+file, text)
			}
			rig := startReady(t, dir)
			require.False(t, refuses(t, rig, "other"))
			for file, text := range tt.after {
				if text == "" {
					require.NoError(t, os.Remove(dir+"/rules/"+file))
				} else {
					write(t, dir+"/rules/"+file, text)
				}
			}
			await(t, func() bool { return strings.Contains(rig.page(t, "/debug/quarantine"), "metadata.name") })
			await(t, func() bool { return refuses(t, rig, "other") })
		})
	}
}
