package envoy

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// What belongs to no host, or to all of them, is found as well: a Sidecar, a MeshConfig, a Gateway. The neighbours that changed at the same time go on.
func TestWhatIsOfNoHostIsFound(t *testing.T) {
	const services = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: default}
spec: {hosts: [one.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: one, namespace: default}
spec: {hosts: [one.internal], http: [{route: [{destination: {host: one.internal}}], timeout: %ds}]}
---
`
	for name, of := range map[string]struct {
		was, now string
		kind     resource.Kind
		gateway  bool
		dislikes func(url, name string, body []byte) bool
	}{
		"the policy of a Sidecar": {
			"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: default}\nspec: {egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: ALLOW_ANY}}",
			"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: default}\nspec: {egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}",
			resource.Sidecar, false, func(url, _ string, body []byte) bool {
				return url == xds.RouteURL && bytes.Contains(body, []byte("block_all"))
			},
		},
		"the port of a Sidecar": {
			"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: default}\nspec: {egress: [{hosts: ['*/*']}]}",
			"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: default}\nspec: {egress: [{bind: 10.9.9.9, port: {number: 80, protocol: HTTP, name: http}, hosts: ['*/*']}]}",
			resource.Sidecar, false, func(url, name string, _ []byte) bool { return url == xds.ListenerURL && name == "10.9.9.9_80" },
		},
		"a Sidecar that is new": {
			"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: other, namespace: other}\nspec: {egress: [{hosts: ['./*']}]}",
			"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: default}\nspec: {egress: [{bind: 10.9.9.9, port: {number: 80, protocol: HTTP, name: http}, hosts: ['*/*']}]}",
			resource.Sidecar, false, func(url, name string, _ []byte) bool { return url == xds.ListenerURL && name == "10.9.9.9_80" },
		},
		"a MeshConfig": {
			"apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: c, namespace: istio-system}\nspec: {outboundTrafficPolicy: {mode: ALLOW_ANY}}",
			"apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: c, namespace: istio-system}\nspec: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}}",
			resource.MeshConfig, false, func(url, _ string, body []byte) bool {
				return url == xds.RouteURL && bytes.Contains(body, []byte("block_all"))
			},
		},
		"a server of a Gateway": {
			"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: default}\nspec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}",
			"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: default}\nspec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}, {port: {number: 81, name: http-81, protocol: HTTP}, hosts: ['*']}]}",
			resource.Gateway, true, func(url, name string, _ []byte) bool { return url == xds.ListenerURL && name == "0.0.0.0_81" },
		},
		"the redirect of a Gateway": {
			"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: default}\nspec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.internal]}]}",
			"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: default}\nspec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.internal], tls: {httpsRedirect: true}}]}",
			resource.Gateway, true, func(url, name string, body []byte) bool {
				return url == xds.RouteURL && name == "http.80" && bytes.Contains(body, []byte("a.internal"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, decoded(t, fmt.Sprintf(services, 1)+of.was)...)
			n := nodes[0]
			if of.gateway {
				n = gatewayNode("default")
			}
			c := s.critic(n, func(url, name string, body []byte) string {
				if of.dislikes(url, name, body) {
					return "something is wrong with it"
				}
				return ""
			}, xds.ListenerURL, xds.EndpointURL, xds.RouteURL)
			s.eventually(func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.has) > 4 }, "it has what there is")
			s.table.Apply(decoded(t, fmt.Sprintf(services, 2)+of.now), nil)
			s.eventually(func() bool { return len(s.quarantined()) > 0 }, "")
			require.Equal(t, of.kind, s.catalog.Quarantined()[0].Key.Kind)
			require.Len(t, s.quarantined(), 1)
			if !of.gateway {
				s.eventually(func() bool { return c.hasRoutes("\x08\x02") }, "the timeout is the new one")
			}
			for _, r := range decoded(t, of.now) {
				require.True(t, slices.ContainsFunc(s.catalog.Quarantined(), func(q Quarantined) bool { return q.Key == r.Key() }))
			}
		})
	}
}

// What another Envoy accepts of a MeshConfig under the same name speaks for it, as it does for any object.
func TestWhatOthersAcceptOfAMeshConfigSpeaksForIt(t *testing.T) {
	const config = "apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: c, namespace: istio-system}\nspec: {outboundTrafficPolicy: {mode: %s}}"
	s := serve(t, append(decoded(t, fmt.Sprintf(config, "ALLOW_ANY")), serviceEntry(t, "one"), labelled(t, "other."))...)
	odd := s.critic(nodes[0], func(url, _ string, body []byte) string {
		if url == xds.RouteURL && bytes.Contains(body, []byte("block_all")) {
			return "something is wrong with it"
		}
		return ""
	})
	other := s.critic(nodeWith(nodes[0], "app", "another"), func(string, string, []byte) string { return "" })
	s.eventually(func() bool { return odd.hasRoutes("one.internal") && other.hasRoutes("one.internal") }, "")
	s.table.Apply(decoded(t, fmt.Sprintf(config, "REGISTRY_ONLY")), nil)
	s.eventually(func() bool { return s.ended(endedContradicted) == 1 && other.hasRoutes("block_all") }, "")
	require.Empty(t, s.quarantined())
}

func TestASidecarBearsOnThoseWhomItIsFor(t *testing.T) {
	const sidecar = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: shop}\nspec: {workloadSelector: {labels: {app: %s}}, egress: [{hosts: ['*/*']}]}"
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	c.update(nil, table.Snapshot(), false, true)
	since := table.Snapshot().Revision()
	for _, app := range []string{"one", "two"} {
		table.Apply(decoded(t, fmt.Sprintf(sidecar, app)), nil)
		keys, snap, ok := table.Changes(since)
		c.update(keys, snap, ok, true)
		since = snap.Revision()
	}
	bears := func(n *corev3.Node) bool {
		h := &hearing{Catalog: c, scope: c.newScope(profileOf(n))}
		c.mu.Lock()
		defer c.mu.Unlock()
		return h.bearsOn(c.quarantine.suspects(everybody)[0], nil)
	}
	require.True(t, bears(nodeWith(nodes[1], "app", "two")))
	require.True(t, bears(nodeWith(nodes[1], "app", "one")), "it did")
	require.False(t, bears(nodeWith(nodes[1], "app", "three")))
	require.False(t, bears(nodeWith(nodes[0], "app", "two")), "it is of another namespace")
	require.Equal(t, map[string]string{"app": "two"}, c.mesh.sidecarFor(profileOf(nodeWith(nodes[1], "app", "two"))).spec.GetWorkloadSelector().GetLabels(), "all is as it was")
}
