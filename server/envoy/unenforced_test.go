package envoy

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

const secured = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: default}
spec: {action: DENY, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: default}
spec: {jwtRules: [{issuer: a}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: default}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: permissive, namespace: default}
spec: {mtls: {mode: PERMISSIVE}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default}
spec: {hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: plain, protocol: HTTP}], resolution: ` +
	`STATIC, endpoints: [{address: 10.0.0.1, labels: {v: one}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: named, namespace: default}
spec: {hosts: [named.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS, endpoints: [{address: ` +
	`elsewhere.example}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: passed, namespace: default}
spec: {hosts: [passed.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: mutual, namespace: default}
spec:
  host: "*.example"
  trafficPolicy:
    tls: {mode: ISTIO_MUTUAL}
    portLevelSettings: [{port: {number: 81}, tls: {mode: DISABLE}}]
  subsets: [{name: one, labels: {v: one}}]
`

// Findings name security objects that clients do not enforce as soon as there is a client, and ISTIO_MUTUAL without an
// identity sends no plaintext, unless the configuration allows it.
func TestUnenforcedSecurityObjects_Named(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		table := new(memstore.Table)
		table.Apply(decoded(t, secured), nil)
		var buffer bytes.Buffer
		c := New(table, Options{Log: slog.New(slog.NewTextHandler(&buffer, nil)), WarnUnenforced: allowed})
		c.reset(table.Snapshot(), true)
		require.Empty(t, c.Unenforced(), "there are no clients")
		require.Empty(t, buffer.String())
		for _, n := range nodes {
			allowed := allowed || model.ProfileOf(n).Identity != ""
			withEndpoints := make(map[string]bool)
			for _, m := range dump(t, c, n) {
				switch m := m.(type) {
				case *endpointv3.ClusterLoadAssignment:
					withEndpoints[m.GetClusterName()] = len(m.GetEndpoints()) > 0
				case *clusterv3.Cluster:
					if m.GetType() != clusterv3.Cluster_EDS && strings.HasPrefix(m.GetName(), "outbound|80|") {
						require.True(t, allowed, "%s finds endpoints by itself", m.GetName())
					}
				}
			}
			require.True(t, withEndpoints["outbound|81||a.example"], n)
			require.Equal(t, allowed, withEndpoints["outbound|80||a.example"], n)
			require.Equal(t, allowed, withEndpoints["outbound|80|one|a.example"], n)
		}
		require.Empty(t, c.Unenforced(), "the clients are gone")
		_, leave, err := c.Collection(t.Context(), nodeAs(node("default", "NONE", ""), model.IdentitySPIRE), xds.ClusterURL)
		require.NoError(t, err)
		if !allowed {
			require.Len(t, c.Unenforced(), 3, "a client with an identity sends no plaintext, and has no inbound listeners")
		}
		leave()
		_, release, err := c.Collection(t.Context(), nodes[0], xds.ClusterURL)
		require.NoError(t, err)
		defer release()
		var names []string
		for _, key := range c.Unenforced() {
			names = append(names, key.Name)
		}
		if allowed {
			require.Empty(t, names)
			require.Equal(t, 4, strings.Count(buffer.String(), "is not enforced"), "they are only in the log")
			continue
		}
		require.Equal(t, []string{"deny", "mutual", "strict", "tokens"}, names)
		c.reset(table.Snapshot(), true)
		for _, name := range names {
			require.Equal(t, 1, strings.Count(buffer.String(), "default/"+name+`"`), "%s in %s", name, buffer.String())
		}
	}
	require.NotEmpty(t, dumpText(t, secured, nodes[3])[xds.ClusterURL+"/outbound|80||a.example"], "of a kind that gRPC knows")
}

// A client without an identity for mutual TLS causes a report when it connects, although no object has changed.
func TestMutualTLS_ReportedForClientWithoutIdentity(t *testing.T) {
	var buffer bytes.Buffer
	table := new(memstore.Table)
	table.Apply(decoded(t, secured), nil)
	catalog := New(table, Options{Log: slog.New(slog.NewTextHandler(&buffer, nil))})
	catalog.reset(table.Snapshot(), true)
	dump(t, catalog, nodeAs(node("default", "REDIRECT", ""), model.IdentitySPIRE))
	dump(t, catalog, nodeAs(gatewayNode("default"), model.IdentitySPIRE))
	require.Empty(t, buffer.String(), "all is enforced")
	dump(t, catalog, nodeAs(node("default", "NONE", ""), model.IdentitySPIRE))
	require.Contains(t, buffer.String(), "default/deny")
	require.Contains(t, buffer.String(), "default/strict")
	require.NotContains(t, buffer.String(), "default/mutual")
	dump(t, catalog, gatewayNode("default"))
	require.Contains(t, buffer.String(), "default/mutual")
}
