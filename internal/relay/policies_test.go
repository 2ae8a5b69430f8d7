package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// policies are security objects of each kind, with a mark. The second RequestAuthentication is for a Gateway of their
// namespace.
func policies(namespace string) string {
	return strings.NewReplacer("NS", namespace, "MARK", "mark-"+namespace).Replace(`---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: wide, namespace: NS}
spec: {jwtRules: [{issuer: MARK, jwks: '{"keys":[{"kty":"oct","alg":"HS256","k":"c3VwZXJzZWNyZXRzdXBlcnNlY3JldHN1cGVyc2VjcmV0"}]}'}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: of-gateway, namespace: NS}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: front}], jwtRules: [{issuer: MARK-front, jwks: '{"keys":[]}'}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: NS}
spec: {action: DENY, rules: [{to: [{operation: {paths: [/MARK]}}]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: plaintext, namespace: NS}
spec: {mtls: {mode: DISABLE}}
`)
}

// A client may say that it is in any namespace. It is sent only the policies of those that its rule has, and of the
// root namespace; where others would apply, everything is refused.
func TestPolicies_ApplyOutsideNamespacesOfRule(t *testing.T) {
	t.Parallel()
	for _, envoys := range []string{"", "envoy: {unenforced: warn}\n"} {
		dir := t.TempDir()
		gateways := ""
		for _, namespace := range []string{"prod", "secret"} {
			gateways += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: front, namespace: %s}\n"+
				"spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}\n", namespace)
		}
		keys := policies("peers")
		write(t, dir+"/rules/all.yaml", entries("prod", "p", 2)+gateways+policies("secret")+policies("istio-system")+
			keys[strings.LastIndex(keys, "---"):])
		token, line := newToken(t, "prod")
		write(t, dir+"/tokens", line)
		configure := func(namespaces string) {
			restricted(t, dir, envoys+"access: [{who: {token: [prod]}, allow: {namespaces: ["+namespaces+"]}}]\n")
		}
		configure("prod")
		rig := startReady(t, dir)
		listeners := func(role, namespace string) (string, *subscriber) {
			const metadata = `{"INTERCEPTION_MODE": "REDIRECT", "LABELS": {"gateway.networking.k8s.io/gateway-name": "front"}}`
			resp, s := rig.listeners(t, token, role, namespace, metadata)
			return spaceless(resp), s
		}
		const front = "mark-istio-system-front"
		for _, role := range []string{"sidecar", "router"} {
			got, _ := listeners(role, "secret")
			require.NotContains(t, got, "mark-", role)
			require.Contains(t, got, refusal, role)

			got, _ = listeners(role, "prod")
			require.Contains(t, got, "mark-istio-system", role)
			require.NotContains(t, got, "mark-secret", role)
			require.NotContains(t, got, refusal, role)

			got, _ = listeners(role, "istio-system")
			require.NotContains(t, got, front, "it is not for all namespaces")
		}

		got, _ := listeners("sidecar", "peers")
		require.Contains(t, got, refusal)
		got, _ = listeners("router", "peers")
		require.NotContains(t, got, refusal, "gateways do as their servers say")

		configure("prod, secret, istio-system")
		rig.reloadFile(t)
		got, _ = listeners("router", "istio-system")
		require.Contains(t, got, front)
		got, s := listeners("router", "secret")
		require.Contains(t, got, "mark-secret")
		configure("prod")
		rig.reloadFile(t)
		s.ends(t)
		got, _ = listeners("router", "secret")
		require.NotContains(t, got, "mark-")
	}
}
