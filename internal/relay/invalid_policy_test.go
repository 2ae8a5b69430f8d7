package relay

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/server/xds"
)

const (
	policyHead = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n"
	policyMeta = "metadata: {name: deny, namespace: shop}\n"
	policySpec = "spec: {action: DENY, rules: [{}]}\n"
)

// invalidPolicies are invalid forms of a policy that denies all requests, and of a MeshConfig.
var invalidPolicies = map[string]string{
	"no name":                policyHead + "metadata: {namespace: shop}\n" + policySpec,
	"empty name":             policyHead + "metadata: {name: '', namespace: shop}\n" + policySpec,
	"null name":              policyHead + "metadata: {name: null, namespace: shop}\n" + policySpec,
	"list as name":           policyHead + "metadata: {name: [a], namespace: shop}\n" + policySpec,
	"number as name":         policyHead + "metadata: {name: 7, namespace: shop}\n" + policySpec,
	"bad name":               policyHead + "metadata: {name: Deny_All, namespace: shop}\n" + policySpec,
	"long name":              policyHead + "metadata: {name: " + strings.Repeat("a", 254) + ", namespace: shop}\n" + policySpec,
	"bad namespace":          policyHead + "metadata: {name: deny, namespace: Shop_1}\n" + policySpec,
	"no metadata":            policyHead + policySpec,
	"kind in lower case":     "apiVersion: security.istio.io/v1\nkind: authorizationpolicy\n" + policyMeta + policySpec,
	"kind in upper case":     "apiVersion: security.istio.io/v1\nkind: AUTHORIZATIONPOLICY\n" + policyMeta + policySpec,
	"plural":                 "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicies\n" + policyMeta + policySpec,
	"plural resource":        "apiVersion: security.istio.io/v1\nkind: authorizationpolicies\n" + policyMeta + policySpec,
	"mistyped kind":          "apiVersion: security.istio.io/v1\nkind: AuthorisationPolicy\n" + policyMeta + policySpec,
	"kind of core":           "apiVersion: v1\nkind: authorizationpolicies\n" + policyMeta + policySpec,
	"no kind":                "apiVersion: security.istio.io/v1\n" + policyMeta + policySpec,
	"no apiVersion":          "kind: AuthorizationPolicy\n" + policyMeta + policySpec,
	"no version":             "apiVersion: security.istio.io\nkind: AuthorizationPolicy\n" + policyMeta + policySpec,
	"version that is not":    "apiVersion: security.istio.io/v9\nkind: AuthorizationPolicy\n" + policyMeta + policySpec,
	"group in upper case":    "apiVersion: SECURITY.ISTIO.IO/v1\nkind: AuthorizationPolicy\n" + policyMeta + policySpec,
	"group mistyped":         "apiVersion: securty.istio.io/v1\nkind: AuthorizationPolicy\n" + policyMeta + policySpec,
	"fields in upper case":   "ApiVersion: security.istio.io/v1\nKind: AuthorizationPolicy\nMetadata: {name: deny}\n",
	"kind of other letters":  "apiVersion: security.istio.io/v1\nkind: \u0410uthorizationPolicy\n" + policyMeta + policySpec,
	"zero width":             "apiVersion: security.istio.io/v1\nkind: Authorization\u200bPolicy\n" + policyMeta + policySpec,
	"tab":                    policyHead + policyMeta + "spec:\n\taction: DENY\n",
	"unclosed brace":         policyHead + "metadata: {name: deny, namespace: shop\n" + policySpec,
	"unclosed quote":         policyHead + "metadata: {name: 'deny, namespace: shop}\n" + policySpec,
	"merge key":              "<<: {apiVersion: security.istio.io/v1, kind: AuthorizationPolicy}\n<<: 7\n" + policyMeta + policySpec,
	"merge of a scalar":      policyHead + "metadata: {<<: deny, namespace: shop}\n" + policySpec,
	"alias":                  "x: &a {apiVersion: security.istio.io/v1, kind: AuthorizationPolicy}\ny: *a\n",
	"unknown anchor":         policyHead + "metadata: *nowhere\n" + policySpec,
	"mistyped fields":        "apiVersoin: security.istio.io/v1\nkidn: AuthorizationPolicy\n" + policyMeta + policySpec,
	"twice the kind":         "kind: AuthorizationPolicy\n" + policyHead + policyMeta + policySpec,
	"NUL":                    policyHead + policyMeta + "spec: {action: DENY\x00}\n",
	"UTF-16LE":               utf16(policyHead+policyMeta+policySpec, 0, 1),
	"UTF-16BE":               utf16(policyHead+policyMeta+policySpec, 1, 0),
	"UTF-16LE with a mark":   "\xff\xfe" + utf16(policyHead+policyMeta+policySpec, 0, 1),
	"UTF-16BE with a mark":   "\xfe\xff" + utf16(policyHead+policyMeta+policySpec, 1, 0),
	"Latin-1":                policyHead + "metadata: {name: deny, namespace: shop, labels: {a: 'caf\xe9'}}\n" + policySpec,
	"bell":                   policyHead + policyMeta + "spec: {action: 'DENY\a'}\n",
	"list":                   "kind: List\nitems:\n- {apiVersion: security.istio.io/v1, kind: authorizationpolicy, metadata: {name: a}}\n",
	"list that is none":      "apiVersion: v1\nkind: List\nitems: {apiVersion: security.istio.io/v1, kind: AuthorizationPolicy}\n",
	"list of lists":          "- apiVersion: security.istio.io/v1\n  kind: AuthorizationPolicy\n  metadata: {name: deny}\n",
	"text behind the end":    "...  " + strings.ReplaceAll(policyHead, "\n", ", ") + "\n",
	"JSON without end":       `{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": {"name": "deny"`,
	"wrong field":            policyHead + policyMeta + "spec: {actoin: DENY}\n",
	"wrong value":            policyHead + policyMeta + "spec: {action: DENI}\n",
	"too many problems":      policyHead + policyMeta + "spec: {" + strings.Repeat("a: 1, ", 99) + "}\n",
	"RequestAuthentication":  "apiVersion: security.istio.io/v1\nkind: requestauthentication\n" + policyMeta,
	"PeerAuthentication":     "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: P_1, namespace: shop}\nspec: {}\n",
	"MeshConfig":             "apiVersion: core/v1alpha1\nkind: MeshConfig\nspec: {pathNormalization: {normalization: MERGE}}\n",
	"MeshConfig, broken":     "apiVersion: core/v1alpha1\nkind: MeshConfig\nspec: {pathNormalization: {normalization: MERGE_SLASHES}\n",
	"MeshConfig, lower case": "apiVersion: core/v1alpha1\nkind: meshconfig\nspec: {pathNormalization: {normalization: MERGE_SLASHES}}\n",
	"MeshConfig, version":    "apiVersion: core/v1\nkind: MeshConfig\nspec: {pathNormalization: {normalization: MERGE_SLASHES}}\n",
}

// utf16 returns an ASCII text in UTF-16. offset is the index of the character in its two bytes, and fill that of the zero.
func utf16(s string, offset, fill int) string {
	text := make([]byte, 2*len(s))
	for i := range len(s) {
		text[2*i+offset], text[2*i+fill] = s[i], 0
	}
	return string(text)
}

// listeners returns the listeners of an Envoy, and its stream.
func (r *rig) listeners(t *testing.T, token, role, namespace, metadata string) (
	*discovery.DiscoveryResponse, *subscriber,
) {
	t.Helper()
	node := &corev3.Node{Id: role + "~10.0.0.1~a." + namespace + "~x", Metadata: &structpb.Struct{}}
	require.NoError(t, protojson.Unmarshal([]byte(metadata), node.GetMetadata()))
	node.Metadata.Fields["NAMESPACE"] = structpb.NewStringValue(namespace)
	s := subscribeTo(t, r.XDS().String(), insecure.NewCredentials(), token, node)
	require.NoError(t, s.stream.Send(&discovery.DiscoveryRequest{TypeUrl: xds.ListenerURL}))
	for {
		resp, err := s.stream.Recv()
		require.NoError(t, err)
		if resp.GetTypeUrl() == xds.ListenerURL {
			return resp, s
		}
	}
}

// refusal is the part of a listener that denies all requests.
const refusal = "http.rbac.v3.RBAC]:{rules:{}}"

// spaceless returns a message as text that does not depend on its spaces.
func spaceless(message fmt.Stringer) string { return strings.ReplaceAll(message.String(), " ", "") }

// refuses reports whether the listeners of a gateway in a namespace deny everything.
func refuses(t *testing.T, r *rig, namespace string) bool {
	t.Helper()
	resp, _ := r.listeners(t, "", "router", namespace, `{"LABELS": {"a": "b"}}`)
	require.Len(t, resp.GetResources(), 1, fmt.Sprint(resp))
	return strings.Contains(spaceless(resp), refusal)
}

// gatewaysYAML are gateways of two namespaces.
func gatewaysYAML() (text string) {
	for _, namespace := range []string{"shop", "other"} {
		text += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: front, namespace: %s}\n"+
			"spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}\n", namespace)
	}
	return text
}

// configureRules writes a configuration with the files of a directory as its source.
func configureRules(t *testing.T, dir, settings string) {
	t.Helper()
	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: 'off'\nconfigSources: [{address: 'fs://"+
		dir+"/rules', defaultNamespace: shop"+settings+"}]\n")
}

// serveRules runs a relay of gateways and another file.
func serveRules(t *testing.T, name, text string) *rig {
	t.Helper()
	dir := t.TempDir()
	configureRules(t, dir, "")
	write(t, dir+"/rules/gateways.yaml", gatewaysYAML())
	write(t, dir+"/rules/"+name, text)
	r := startReady(t, dir)
	return r
}

// A valid MeshConfig, and a policy that is valid or removed, end the refusal. In warn mode, no request is refused.
func TestInvalidPolicy_RefusalEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []string{
		policyHead + policyMeta + "spec: {action: AUDIT}\n", "",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: AuthorizationPolicy}\n# security.istio.io\n",
	} {
		rig := serveRules(t, "deny.yaml", invalidPolicies["no name"])
		dir := rig.dir
		require.True(t, refuses(t, rig, "shop"))
		require.False(t, refuses(t, rig, "other"), "the namespace is known")
		if end == "" {
			require.NoError(t, os.Remove(dir+"/rules/deny.yaml"))
		} else {
			write(t, dir+"/rules/deny.yaml", end)
		}
		await(t, func() bool { return !refuses(t, rig, "shop") })
	}
}

// A policy that was valid once keeps its last good version, and no other request is refused.
func TestInvalidPolicy_LastGoodVersionServes(t *testing.T) {
	t.Parallel()
	rig := serveRules(t, "deny.yaml", policyHead+policyMeta+"spec: {action: AUDIT}\n")
	write(t, rig.dir+"/rules/deny.yaml", invalidPolicies["UTF-16LE"])
	await(t, func() bool { return strings.Contains(rig.page(t, "/debug/quarantine"), "deny.yaml:") })
	require.False(t, refuses(t, rig, "shop"))
}

// For a policy that was never valid, the gateways of its namespace refuse requests, or all gateways if the namespace is
// unknown.
func TestInvalidPolicy_RefusesRequests(t *testing.T) {
	t.Parallel()
	for name, text := range invalidPolicies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serveRules(t, "deny.yaml", text)
			require.True(t, refuses(t, r, "shop"), text)
			require.Contains(t, r.page(t, "/debug/quarantine"), "deny.yaml:")
		})
	}
}

// For a policy that was never valid, the next process refuses requests from its start on, although its source cannot be
// read, until the source is read without the policy.
func TestInvalidPolicy_RefusesRequestsAfterRestart(t *testing.T) {
	t.Parallel()
	for name, text := range invalidPolicies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			configureRules(t, dir, "")
			config := mustRead(t, dir+"/tributary.yaml")
			write(t, dir+"/tributary.yaml", strings.Replace(config, "stateDir: 'off'", "stateDir: state", 1))
			write(t, dir+"/rules/gateways.yaml", gatewaysYAML())
			write(t, dir+"/rules/deny.yaml", text)
			rig := startReady(t, dir)
			require.True(t, refuses(t, rig, "shop"), text)
			rig.stop()

			require.NoError(t, os.Rename(dir+"/rules", dir+"/away"))
			for range 2 { // also by a process that ended without a read
				rig = startReady(t, dir)
				require.True(t, refuses(t, rig, "shop"), text)
				require.Contains(t, rig.page(t, "/debug/quarantine"), "deny.yaml")
				rig.stop()
			}
			rig = start(t, dir)
			require.NoError(t, os.Remove(dir+"/away/deny.yaml"))
			require.NoError(t, os.Rename(dir+"/away", dir+"/rules"))
			await(t, func() bool { return !refuses(t, rig, "shop") })
		})
	}
}
