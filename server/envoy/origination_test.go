package envoy

import (
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// Requests of a port of HTTP are led to one of HTTPS, as Istio's documentation has it for what is outside the mesh: the server is asked for
// their host, and speaks TLS 1.3.
func TestTLSIsOriginatedToAPortOfHTTPS(t *testing.T) {
	all := toldOf(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: default}
spec: {hosts: [api.example], ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: https, protocol: HTTPS}], `+
		`resolution: DNS}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: api, namespace: default}
spec: {host: api.example, trafficPolicy: {portLevelSettings: [{port: {number: 443}, tls: {mode: SIMPLE}}]}}
`, nodes[0])
	c, ok := all[xds.ClusterURL+"/outbound|443||api.example"].(*clusterv3.Cluster)
	require.True(t, ok)
	var options httpv3.HttpProtocolOptions
	require.NoError(t, c.GetTypedExtensionProtocolOptions()[translate.HTTPOptions].UnmarshalTo(&options))
	require.True(t, options.GetUpstreamHttpProtocolOptions().GetAutoSni())
	require.True(t, options.GetUpstreamHttpProtocolOptions().GetAutoSanValidation())
	var socket tlsv3.UpstreamTlsContext
	require.NoError(t, c.GetTransportSocket().GetTypedConfig().UnmarshalTo(&socket))
	require.Equal(t, tlsv3.TlsParameters_TLSv1_3, socket.GetCommonTlsContext().GetTlsParams().GetTlsMaximumProtocolVersion())
	require.Equal(t, tlsv3.TlsParameters_TLSv1_2, socket.GetCommonTlsContext().GetTlsParams().GetTlsMinimumProtocolVersion())
}

// The certificate of a server of the mesh has the name of a service account of its endpoints, also in TLS that is not that of the mesh,
// unless the policy has names. Such clients need no identity.
func TestTLSVerifiesServiceAccounts(t *testing.T) {
	const mesh = `
apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: mesh}
spec: {trustDomain: example.org, trustDomainAliases: [old.example]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec:
  hosts: [a.example]
  location: MESH_INTERNAL
  ports: [{number: 80, name: tcp, protocol: TCP}, {number: 81, name: named, protocol: TCP}]
  resolution: STATIC
  subjectAltNames: [a.example, spiffe://example.org/odd]
  endpoints: [{address: 10.0.0.1, serviceAccount: a}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: shop}
spec:
  host: a.example
  trafficPolicy:
    tls: {mode: SIMPLE, sni: a.example}
    portLevelSettings: [{port: {number: 81}, tls: {mode: SIMPLE, subjectAltNames: [b.example]}}]
`
	all := toldOf(t, mesh, nodes[0])
	for port, want := range map[string][]string{
		"80": {"a.example", "spiffe://example.org/ns/shop/sa/a", "spiffe://example.org/odd", "spiffe://old.example/ns/shop/sa/a"},
		"81": {"b.example"},
	} {
		c, ok := all[xds.ClusterURL+"/outbound|"+port+"||a.example"].(*clusterv3.Cluster)
		require.True(t, ok)
		var socket tlsv3.UpstreamTlsContext
		require.NoError(t, c.GetTransportSocket().GetTypedConfig().UnmarshalTo(&socket))
		var names []string
		limits := socket.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext()
		for _, m := range limits.GetMatchTypedSubjectAltNames() {
			names = append(names, m.GetMatcher().GetExact())
		}
		require.Equal(t, want, slices.Compact(names), port)
	}
}
