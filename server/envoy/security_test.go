package envoy

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

const guardedMesh = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: one, namespace: default}
spec:
  hosts: [one.internal]
  gateways: [mesh, shop/front]
  http:
  - match: [{headers: {"@request.auth.claims.team": {exact: red}}, withoutHeaders: {"@request.auth.claims[a][b]": {}}}]
    route: [{destination: {host: two.internal}}]
  - route: [{destination: {host: one.internal}}]
---
`

func policyIn(namespace, path string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: %s}\n"+
		"spec: {action: DENY, rules: [{to: [{operation: {paths: [%s], ports: ['8080']}}]}]}\n", namespace, path)
}

// A policy changes the listeners of the gateways that it selects. Other gateways get no response, and neither does a
// change without effect on the policy's rules.
func TestPolicyChange_AffectsSelectedGateways(t *testing.T) {
	s := newSteps(Options{}, decoded(t, shared+"---"+guardedMesh+policyIn("shop", "/a")+"---\n"+policyIn("default", "/b"))...)
	listeners := make(map[string]*xds.Collection)
	for _, id := range []string{"router~10.0.0.1~a.shop~x", "router~10.0.0.1~a.default~x", "sidecar~10.0.0.1~a.shop~x"} {
		coll, release, err := s.c.Collection(t.Context(), &corev3.Node{Id: id}, xds.ListenerURL)
		require.NoError(t, err)
		defer release()
		listeners[id] = coll
	}
	name := func(id string) string {
		if id[0] == 's' {
			return "127.0.0.1_80"
		}
		return "0.0.0.0_8080"
	}
	previous := make(map[string]*xds.Entry)
	changed := func() (ids []string) {
		for id, coll := range listeners {
			now := coll.Get(name(id))
			require.NotNil(t, now, id)
			if previous[id] != now {
				ids = append(ids, id)
			}
			previous[id] = now
		}
		return ids
	}
	require.Len(t, changed(), 3)
	s.apply(decoded(t, policyIn("shop", "/c")))
	require.Equal(t, []string{"router~10.0.0.1~a.shop~x"}, changed())
	require.Contains(t, string(previous["router~10.0.0.1~a.shop~x"].Any), "/c")
	s.apply(decoded(t, policyIn("shop", `"/c"`)+"  \n"))
	require.Empty(t, changed(), "it says the same")
	s.apply(decoded(t, policyIn("other", "/d")))
	require.Empty(t, changed(), "no client is affected")
	s.apply(decoded(t, policyIn(model.RootNamespace, "/d")))
	require.Len(t, changed(), 2, "both gateways, and no outbound listener")
	s.apply(nil, resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "shop", Name: "p"})
	require.Equal(t, []string{"router~10.0.0.1~a.shop~x"}, changed())
	require.NotContains(t, string(previous["router~10.0.0.1~a.shop~x"].Any), "/c")
}
