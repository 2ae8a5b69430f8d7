package relay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// nonPolicies are files of an ordinary folder. None of them is a policy.
var nonPolicies = map[string]string{
	"values.yaml":                  "global:\n  hub: x\nmeshConfig:\n  accessLogFile: /dev/stdout\n",
	"values-policy.yaml":           "authorizationPolicy:\n  enabled: true\nreplicas: 2\n",
	"values-list.yaml":             "peerAuthentication: {mode: STRICT}\n",
	"empty-map.yaml":               "{}\n",
	"empty-list.yaml":              "[]\n",
	"empty.json":                   "{}",
	"kindless.yaml":                "replicas: 1\nissuer:\n  kind: \"\"\n",
	"issuer.yaml":                  "ingress: {issuer: {kind: A}}\n",
	"comments.yaml":                "# AuthorizationPolicy of security.istio.io is elsewhere\n",
	"separators.yaml":              "---\n---\n",
	"kustomization.yaml":           "resources:\n- authorizationpolicy.yaml\n- requestauthentication.yaml\n",
	"full/kustomization.yaml":      "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- authorizationpolicy.yaml\n", //nolint:lll // texts
	"patches/kustomization.yaml":   "patches:\n- target: {group: security.istio.io, kind: AuthorizationPolicy}\n  path: deny.yaml\n",
	"Chart.yaml":                   "apiVersion: v2\nname: x\ndescription: AuthorizationPolicies of the shop\nversion: 1.0.0\n",
	"operator.yaml":                "apiVersion: install.istio.io/v1alpha1\nkind: IstioOperator\nmetadata: {name: x}\nspec: {meshConfig: {accessLogFile: /dev/stdout}}\n", //nolint:lll // texts
	"sail.yaml":                    "apiVersion: sailoperator.io/v1\nkind: Istio\nmetadata: {name: x}\nspec: {values: {meshConfig: {accessLogFile: /dev/stdout}}}\n",      //nolint:lll // texts
	"linkerd.yaml":                 "apiVersion: policy.linkerd.io/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: x}\nspec: {}\n",
	"configmap.yaml":               "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio}\ndata: {mesh: 'meshConfig: {a: b}'}\n",
	"crd.yaml":                     "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: authorizationpolicies.security.istio.io}\nspec: {group: security.istio.io}\n", //nolint:lll // texts
	"README.md":                    "# AuthorizationPolicy\nkind: AuthorizationPolicy\n",
	"NOTES.txt":                    "apiVersion: security.istio.io/v1",
	"broken-service.yaml":          "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a\nspec: {\n",
	"annotated.yaml":               "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: A_1, annotations: {note: 'see AuthorizationPolicy x'}}\nspec: {}\n",                   //nolint:lll // texts
	"mistyped.yaml":                "apiVersion: networking.istio.io/v1\nkind: VirtualServce\nmetadata: {name: a}\nspec: {hosts: [a.example], http: [{route: [{destination: {host: b.example}}]}]}\n", //nolint:lll // texts
	"policy-list.yaml":             "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicyList\nmetadata: {}\nitems: []\n",
	"docs.yaml":                    "apiVersion: v1\nkind: List\nitems: []\n",
	"package.json":                 `{"name": "x", "description": "docs"}`,
	".hidden.yaml":                 invalidPolicies["no name"],
	"deny.yaml~":                   invalidPolicies["no name"],
	"deny.yaml.swp":                "b0VIM",
	"templates/deny.yaml.disabled": invalidPolicies["no name"],
}

// TestFiles_NonObjectsRefuseNothing: files that mention policies and are no objects make no Envoy refuse requests.
func TestFiles_NonObjectsRefuseNothing(t *testing.T) {
	t.Parallel()
	for name, text := range nonPolicies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serveRules(t, name, text)
			require.False(t, refuses(t, r, "shop"), "shop: %s", r.page(t, "/debug/quarantine"))
			require.False(t, refuses(t, r, "other"), "other: %s", r.page(t, "/debug/quarantine"))
		})
	}
}
