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
	sightHead = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n"
	sightMeta = "metadata: {name: deny, namespace: shop}\n"
	sightSpec = "spec: {action: DENY, rules: [{}]}\n"
)

// sights are forms of a policy that denies all requests, none of which can be enforced, and of a MeshConfig.
var sights = map[string]string{
	"no name":                sightHead + "metadata: {namespace: shop}\n" + sightSpec,
	"empty name":             sightHead + "metadata: {name: '', namespace: shop}\n" + sightSpec,
	"null name":              sightHead + "metadata: {name: null, namespace: shop}\n" + sightSpec,
	"list as name":           sightHead + "metadata: {name: [a], namespace: shop}\n" + sightSpec,
	"number as name":         sightHead + "metadata: {name: 7, namespace: shop}\n" + sightSpec,
	"bad name":               sightHead + "metadata: {name: Deny_All, namespace: shop}\n" + sightSpec,
	"long name":              sightHead + "metadata: {name: " + strings.Repeat("a", 254) + ", namespace: shop}\n" + sightSpec,
	"bad namespace":          sightHead + "metadata: {name: deny, namespace: Shop_1}\n" + sightSpec,
	"no metadata":            sightHead + sightSpec,
	"kind in lower case":     "apiVersion: security.istio.io/v1\nkind: authorizationpolicy\n" + sightMeta + sightSpec,
	"kind in upper case":     "apiVersion: security.istio.io/v1\nkind: AUTHORIZATIONPOLICY\n" + sightMeta + sightSpec,
	"plural":                 "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicies\n" + sightMeta + sightSpec,
	"plural resource":        "apiVersion: security.istio.io/v1\nkind: authorizationpolicies\n" + sightMeta + sightSpec,
	"mistyped kind":          "apiVersion: security.istio.io/v1\nkind: AuthorisationPolicy\n" + sightMeta + sightSpec,
	"kind of core":           "apiVersion: v1\nkind: authorizationpolicies\n" + sightMeta + sightSpec,
	"no kind":                "apiVersion: security.istio.io/v1\n" + sightMeta + sightSpec,
	"no apiVersion":          "kind: AuthorizationPolicy\n" + sightMeta + sightSpec,
	"no version":             "apiVersion: security.istio.io\nkind: AuthorizationPolicy\n" + sightMeta + sightSpec,
	"version that is not":    "apiVersion: security.istio.io/v9\nkind: AuthorizationPolicy\n" + sightMeta + sightSpec,
	"group in upper case":    "apiVersion: SECURITY.ISTIO.IO/v1\nkind: AuthorizationPolicy\n" + sightMeta + sightSpec,
	"group mistyped":         "apiVersion: securty.istio.io/v1\nkind: AuthorizationPolicy\n" + sightMeta + sightSpec,
	"fields in upper case":   "ApiVersion: security.istio.io/v1\nKind: AuthorizationPolicy\nMetadata: {name: deny}\n",
	"kind of other letters":  "apiVersion: security.istio.io/v1\nkind: \u0410uthorizationPolicy\n" + sightMeta + sightSpec,
	"zero width":             "apiVersion: security.istio.io/v1\nkind: Authorization\u200bPolicy\n" + sightMeta + sightSpec,
	"tab":                    sightHead + sightMeta + "spec:\n\taction: DENY\n",
	"unclosed brace":         sightHead + "metadata: {name: deny, namespace: shop\n" + sightSpec,
	"unclosed quote":         sightHead + "metadata: {name: 'deny, namespace: shop}\n" + sightSpec,
	"merge key":              "<<: {apiVersion: security.istio.io/v1, kind: AuthorizationPolicy}\n<<: 7\n" + sightMeta + sightSpec,
	"merge of a scalar":      sightHead + "metadata: {<<: deny, namespace: shop}\n" + sightSpec,
	"alias":                  "x: &a {apiVersion: security.istio.io/v1, kind: AuthorizationPolicy}\ny: *a\n",
	"unknown anchor":         sightHead + "metadata: *nowhere\n" + sightSpec,
	"mistyped fields":        "apiVersoin: security.istio.io/v1\nkidn: AuthorizationPolicy\n" + sightMeta + sightSpec,
	"twice the kind":         "kind: AuthorizationPolicy\n" + sightHead + sightMeta + sightSpec,
	"NUL":                    sightHead + sightMeta + "spec: {action: DENY\x00}\n",
	"UTF-16LE":               sightWide(sightHead+sightMeta+sightSpec, 0, 1),
	"UTF-16BE":               sightWide(sightHead+sightMeta+sightSpec, 1, 0),
	"UTF-16LE with a mark":   "\xff\xfe" + sightWide(sightHead+sightMeta+sightSpec, 0, 1),
	"UTF-16BE with a mark":   "\xfe\xff" + sightWide(sightHead+sightMeta+sightSpec, 1, 0),
	"Latin-1":                sightHead + "metadata: {name: deny, namespace: shop, labels: {a: 'caf\xe9'}}\n" + sightSpec,
	"bell":                   sightHead + sightMeta + "spec: {action: 'DENY\a'}\n",
	"list":                   "kind: List\nitems:\n- {apiVersion: security.istio.io/v1, kind: authorizationpolicy, metadata: {name: a}}\n",
	"list that is none":      "apiVersion: v1\nkind: List\nitems: {apiVersion: security.istio.io/v1, kind: AuthorizationPolicy}\n",
	"list of lists":          "- apiVersion: security.istio.io/v1\n  kind: AuthorizationPolicy\n  metadata: {name: deny}\n",
	"text behind the end":    "...  " + strings.ReplaceAll(sightHead, "\n", ", ") + "\n",
	"JSON without end":       `{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": {"name": "deny"`,
	"wrong field":            sightHead + sightMeta + "spec: {actoin: DENY}\n",
	"wrong value":            sightHead + sightMeta + "spec: {action: DENI}\n",
	"too many problems":      sightHead + sightMeta + "spec: {" + strings.Repeat("a: 1, ", 99) + "}\n",
	"RequestAuthentication":  "apiVersion: security.istio.io/v1\nkind: requestauthentication\n" + sightMeta,
	"PeerAuthentication":     "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: P_1, namespace: shop}\nspec: {}\n",
	"MeshConfig":             "apiVersion: core/v1alpha1\nkind: MeshConfig\nspec: {pathNormalization: {normalization: MERGE}}\n",
	"MeshConfig, broken":     "apiVersion: core/v1alpha1\nkind: MeshConfig\nspec: {pathNormalization: {normalization: MERGE_SLASHES}\n",
	"MeshConfig, lower case": "apiVersion: core/v1alpha1\nkind: meshconfig\nspec: {pathNormalization: {normalization: MERGE_SLASHES}}\n",
	"MeshConfig, version":    "apiVersion: core/v1\nkind: MeshConfig\nspec: {pathNormalization: {normalization: MERGE_SLASHES}}\n",
}

// sightWide has each byte of an ASCII text as two, at is where that is.
func sightWide(s string, offset, fill int) string {
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

// refusal is part of a listener that denies all requests.
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

// sightGateways are gateways of two namespaces.
func sightGateways() (text string) {
	for _, namespace := range []string{"shop", "other"} {
		text += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: front, namespace: %s}\n"+
			"spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}\n", namespace)
	}
	return text
}

// sightConfig writes a configuration with the files of a directory as its source.
func sightConfig(t *testing.T, dir, settings string) {
	t.Helper()
	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: 'off'\nconfigSources: [{address: 'fs://"+
		dir+"/rules', defaultNamespace: shop"+settings+"}]\n")
}

// sighted runs a relay of gateways and another file.
func sighted(t *testing.T, name, text string) *rig {
	t.Helper()
	dir := t.TempDir()
	sightConfig(t, dir, "")
	write(t, dir+"/rules/gateways.yaml", sightGateways())
	write(t, dir+"/rules/"+name, text)
	r := startReady(t, dir)
	return r
}

// A valid MeshConfig, and a policy that is valid or removed, end the refusal. In warn mode, no request is refused.
func TestRefusalOfAFirstSightEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []string{sightHead + sightMeta + "spec: {action: AUDIT}\n", "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " +
		"AuthorizationPolicy}\n# security.istio.io\n"} {
		rig := sighted(t, "deny.yaml", sights["no name"])
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
func TestFirstSight_LastGoodVersionServes(t *testing.T) {
	t.Parallel()
	rig := sighted(t, "deny.yaml", sightHead+sightMeta+"spec: {action: AUDIT}\n")
	write(t, rig.dir+"/rules/deny.yaml", sights["UTF-16LE"])
	await(t, func() bool { return strings.Contains(rig.page(t, "/debug/quarantine"), "deny.yaml:") })
	require.False(t, refuses(t, rig, "shop"))
}

// A policy that was never valid is refused in its namespace, and in all if that is not known, whatever its form. A
// valid version and its deletion end that.
func TestFirstSightOfPolicies(t *testing.T) {
	t.Parallel()
	for name, text := range sights {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sighted(t, "deny.yaml", text)
			require.True(t, refuses(t, r, "shop"), text)
			require.Contains(t, r.page(t, "/debug/quarantine"), "deny.yaml:")
		})
	}
}

// A policy that was never valid is refused from the start of the next process on, although its source cannot be read,
// and until the source is read without it.
func TestFirstSightOutlivesARestart(t *testing.T) {
	t.Parallel()
	for name, text := range sights {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sightConfig(t, dir, "")
			config := mustRead(t, dir+"/tributary.yaml")
			write(t, dir+"/tributary.yaml", strings.Replace(config, "stateDir: 'off'", "stateDir: state", 1))
			write(t, dir+"/rules/gateways.yaml", sightGateways())
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
