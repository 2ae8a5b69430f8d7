package envoy

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

const mutualMesh = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec:
  hosts: [a.example]
  location: MESH_INTERNAL
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, serviceAccount: a}, {address: 10.0.0.2}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec: {servers: [{port: {number: 443, name: mutual, protocol: TLS}, hosts: ["*"], tls: {mode: ISTIO_MUTUAL}}]}
`

// mutualNames returns the names that a cluster accepts in certificates, and whether it uses mutual TLS.
func mutualNames(t *testing.T, resources map[string]proto.Message) (names []string, mutual bool) {
	t.Helper()
	cluster, ok := resources[xds.ClusterURL+"/outbound|80||a.example"].(*clusterv3.Cluster)
	require.True(t, ok)
	if len(cluster.GetTransportSocketMatches()) == 0 {
		return nil, false
	}
	var tls tlsv3.UpstreamTlsContext
	require.NoError(t, cluster.GetTransportSocketMatches()[0].GetTransportSocket().GetTypedConfig().UnmarshalTo(&tls))
	require.Equal(t, "outbound_.80_._.a.example", tls.GetSni())
	for _, m := range tls.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext().GetMatchTypedSubjectAltNames() {
		names = append(names, m.GetMatcher().GetExact())
	}
	return names, true
}

// authenticatedOf returns for each endpoint whether it is connected to by mutual TLS.
func authenticatedOf(t *testing.T, resources map[string]proto.Message) (list []bool) {
	t.Helper()
	a, ok := resources[xds.EndpointURL+"/outbound|80||a.example"].(*endpointv3.ClusterLoadAssignment)
	require.True(t, ok)
	for _, e := range a.GetEndpoints()[0].GetLbEndpoints() {
		list = append(list, e.GetMetadata().GetFilterMetadata()["envoy.transport_socket_match"] != nil)
	}
	return list
}

// Clients with an identity use mutual TLS as the mesh configures it at that time; clients without one do not, and get
// different resources.
func TestMutualTLSFollowsTheMesh(t *testing.T) {
	withIdentity, withoutIdentity := nodeAs(node("default", "NONE", ""), model.IdentitySPIRE), node("default", "NONE", "")
	byFiles := nodeAs(node("default", "NONE", ""), "/etc/identity")
	s := newSteps(Options{}, decoded(t, mutualMesh)...)
	stay := see(t, s.c, []*corev3.Node{withIdentity, withoutIdentity, byFiles})
	resources := func(i int) map[string]proto.Message { return dumpOf(t, stay.collections[i]) }
	change := func(text string) {
		t.Helper()
		s.change(t, text)
		_, mutual := mutualNames(t, resources(1))
		require.False(t, mutual, "without an identity")
		require.Equal(t, []bool{false, false}, authenticatedOf(t, resources(1)))
	}
	expect := func(mutual bool, want ...string) {
		t.Helper()
		names, usesMutual := mutualNames(t, resources(0))
		require.Equal(t, mutual, usesMutual)
		require.Equal(t, want, names)
	}
	for i, certificate := range map[int]string{0: "default", 2: "file-cert:/etc/identity/cert-chain.pem~/etc/identity/key.pem"} {
		c, ok := resources(i)[xds.ClusterURL+"/outbound|80||a.example"].(*clusterv3.Cluster)
		require.True(t, ok)
		var tls tlsv3.UpstreamTlsContext
		require.NoError(t, c.GetTransportSocketMatches()[0].GetTransportSocket().GetTypedConfig().UnmarshalTo(&tls))
		require.Equal(t, certificate, tls.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs()[0].GetName(), "each its own")
	}
	expect(true, "spiffe://cluster.local/ns/shop/sa/a")
	require.Equal(t, []bool{true, false}, authenticatedOf(t, resources(0)), "only the endpoint with a service account")

	const peers = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: p, namespace: "
	change(peers + "shop}\nspec: {mtls: {mode: DISABLE}}\n")
	expect(false)
	change(peers + "shop}\nspec: {mtls: {mode: STRICT}}\n")
	expect(true, "spiffe://cluster.local/ns/shop/sa/a")
	change(peers + "istio-system}\nspec: {mtls: {mode: DISABLE}}\n")
	expect(true, "spiffe://cluster.local/ns/shop/sa/a")
	require.Equal(t, []bool{false, false}, authenticatedOf(t, resources(0)),
		"endpoints listed in a ServiceEntry have no namespace, as with istiod")
	change(peers + "istio-system}\nspec: {}\n")

	const config = "apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: istio}\nspec: "
	change(config + "{trustDomain: example.org, trustDomainAliases: [old.example]}\n")
	expect(true, "spiffe://example.org/ns/shop/sa/a", "spiffe://old.example/ns/shop/sa/a")
	change(config + "{enableAutoMtls: false}\n")
	expect(false)
	change(config + "{}\n")
	expect(true, "spiffe://cluster.local/ns/shop/sa/a")
}

// When a MUTUAL policy with the files of an identity is deleted, the identity keeps its secrets.
func TestIdentitySecrets_KeptAfterPolicyDeletion(t *testing.T) {
	s := newSteps(Options{}, decoded(t, mutualMesh+`---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: files, namespace: default}
spec:
  host: a.example
  trafficPolicy:
    tls:
      mode: MUTUAL
      clientCertificate: /etc/identity/cert-chain.pem
      privateKey: /etc/identity/key.pem
      caCertificates: /etc/identity/root-cert.pem
`)...)
	stay := see(t, s.c, []*corev3.Node{nodeAs(node("default", "NONE", ""), "/etc/identity")})
	secrets := func() (n int) {
		for range stay.collections[0][xds.SecretURL].All() {
			n++
		}
		return n
	}
	require.Equal(t, 2, secrets())
	s.apply(nil, resource.Key{Kind: resource.DestinationRule, Namespace: "default", Name: "files"})
	require.Equal(t, 2, secrets())
}
