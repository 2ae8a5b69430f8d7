package e2e

import (
	"fmt"
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

const besideGateway = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec:
  selector: {app: vm1}
  servers:
  - {port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: 8081, name: tcp, protocol: TCP}, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: shop}
spec:
  hosts: ["*"]
  gateways: [front]
  http:
  - match: [{headers: {"@request.auth.claims[team][name]": {exact: red}}, withoutHeaders: {"@request.auth.claims.blocked": {prefix: "ye"}}}]
    route: [{destination: {host: asked.internal}}]
  - route: [{destination: {host: asked.internal}}]
  tcp:
  - route: [{destination: {host: asked.internal}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: asked, namespace: shop}
spec: {hosts: [asked.internal], ports: [{number: 9000, name: grpc, protocol: GRPC}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
`

const besidePolicies = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: all, namespace: istio-system}
spec:
  action: DENY
  rules:
  - from: [{source: {namespaces: ["bad*"], notIpBlocks: [10.0.0.0/8], principals: ["cluster.local/ns/a/sa/b", "*"]}}]
    to: [{operation: {ports: ["8080"], notPaths: ["/a/*", "/t/{*}/x"], methods: [GET, "P*"]}}]
    when: [{key: "request.headers[x-a]", values: ["*"]}, {key: destination.ip, notValues: [10.1.0.0/16]},
      {key: connection.sni, values: ["*.a"]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: allow, namespace: shop}
spec:
  selector: {matchLabels: {app: vm1}}
  rules:
  - from: [{source: {requestPrincipals: ["i/*", "*"], remoteIpBlocks: [1.2.3.4]}}, {source: {serviceAccounts: [a, b/c]}}]
    when: [{key: "request.auth.claims[a][b]", values: [c, "d*"]}, {key: request.auth.audiences, notValues: [x]}]
  - to: [{operation: {hosts: ["*.open.example"], ports: ["8081"]}}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: other, namespace: shop}
spec: {selector: {matchLabels: {app: vm2}}, action: DENY, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: tried, namespace: shop, annotations: {istio.io/dry-run: "true"}}
spec: {action: DENY, rules: [{to: [{operation: {methods: [DELETE]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: audited, namespace: shop}
spec: {action: AUDIT, rules: [{to: [{operation: {paths: [/audited]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: asks, namespace: shop}
spec: {action: CUSTOM, provider: {name: %s}, rules: [{to: [{operation: {paths: [/asked], ports: ["8080"]}}]}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: one, namespace: shop}
spec:
  jwtRules:
  - {issuer: j, jwks: '%[2]s', fromHeaders: [{name: x-token, prefix: "Token "}], fromParams: [t], fromCookies: [c], audiences: [a],
     outputPayloadToHeader: x-payload, outputClaimToHeaders: [{header: x-sub, claim: sub}], forwardOriginalToken: true}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: two, namespace: istio-system}
spec: {jwtRules: [{issuer: i, jwks: '%[2]s'}]}
`

const besideConfig = `{"trustDomain":"mesh.example","trustDomainAliases":["old.example"],"extensionProviders":[
  {"name":"grpc","envoyExtAuthzGrpc":{"service":"asked.internal","port":9000,"timeout":"2s","statusOnError":"503","failOpen":true,
    "includeRequestBodyInCheck":{"maxRequestBytes":4096,"packAsBytes":true}}},
  {"name":"http","envoyExtAuthzHttp":{"service":"shop/asked.internal","port":9000,"pathPrefix":"/check",
    "includeRequestHeadersInCheck":["x-*"],
    "includeAdditionalHeadersInCheck":{"x-b":"1"},"headersToUpstreamOnAllow":["x-c"],"headersToDownstreamOnDeny":["x-d"]}}]}`

// A gateway gets the same policies, tokens, providers and claims from tributary as from istiod.
func TestSecurityBesideIstiod(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	for _, provider := range []string{"grpc", "http", "nobody"} {
		dir := t.TempDir()
		write(t, dir, "mesh.yaml", besideGateway+fmt.Sprintf(besidePolicies, provider, s.jwks)+
			"---\napiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: istio}\nspec: "+besideConfig+"\n")
		tr := fixture.StartTributary(t, fixture.Files("files", dir))
		tr.AwaitReady(t)
		istiod := istiodBeside(t, tr, besideConfig)
		istiod.AwaitSynced(t)
		node := besideNodes(t)["gateway"]
		ours := fixture.TakeInventory(t, tr.XDS, node)
		require.Len(t, ours.Listeners, 2)
		for _, line := range compare(t, fixture.TakeInventory(t, istiod.GRPC, node), ours, compared{gateway: true}) {
			if !strings.Contains(line, "istio-ext-authz") { // istiod 1.31 adds the name of the provider, see TestGoldens
				t.Errorf("%s: %s", provider, line)
			}
		}
	}
}
