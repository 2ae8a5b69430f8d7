package envoy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// HTTP requests to one port are sent to the HTTPS port, as in Istio's documentation for services outside the mesh: TLS
// 1.3, with the host as the server name.
func TestTLSOrigination_ToHTTPSPort(t *testing.T) {
	resources := dumpText(t, `
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
	cluster, ok := resources[xds.ClusterURL+"/outbound|443||api.example"].(*clusterv3.Cluster)
	require.True(t, ok)
	var options httpv3.HttpProtocolOptions
	require.NoError(t, cluster.GetTypedExtensionProtocolOptions()[translate.HTTPOptions].UnmarshalTo(&options))
	require.True(t, options.GetUpstreamHttpProtocolOptions().GetAutoSni())
	require.True(t, options.GetUpstreamHttpProtocolOptions().GetAutoSanValidation())
	var socket tlsv3.UpstreamTlsContext
	require.NoError(t, cluster.GetTransportSocket().GetTypedConfig().UnmarshalTo(&socket))
	require.Equal(t, tlsv3.TlsParameters_TLSv1_3, socket.GetCommonTlsContext().GetTlsParams().GetTlsMaximumProtocolVersion())
	require.Equal(t, tlsv3.TlsParameters_TLSv1_2, socket.GetCommonTlsContext().GetTlsParams().GetTlsMinimumProtocolVersion())
}

// The certificate of a server of the mesh has the name of a service account of its endpoints, also in TLS that is not
// that of the mesh, unless the policy has names. Such clients need no identity.
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
	resources := dumpText(t, mesh, nodes[0])
	for port, want := range map[string][]string{
		"80": {"a.example", "spiffe://example.org/ns/shop/sa/a", "spiffe://example.org/odd", "spiffe://old.example/ns/shop/sa/a"},
		"81": {"b.example"},
	} {
		c, ok := resources[xds.ClusterURL+"/outbound|"+port+"||a.example"].(*clusterv3.Cluster)
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

// TestUpstreamVerification holds, for each combination of TLS settings, which servers a cluster accepts: by roots, by
// names and by the host of the request. TestOriginationBesideIstiod compares the same combinations with istiod.
func TestUpstreamVerification(t *testing.T) {
	const text = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default}
spec: {hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: default}
spec: {host: a.example, trafficPolicy: {tls: {%s}}}
`
	const system, file, folder = "/etc/ssl/certs/ca-certificates.crt", "/ca.pem", "/etc/envoy/credentials/cred/ca.crt"
	const client = "clientCertificate: /c.pem, privateKey: /k.pem"
	const ownCertificate = "/etc/envoy/credentials/cred/tls.crt"
	for settings, want := range map[string]string{
		"mode: DISABLE":                                                                 "plaintext",
		"mode: SIMPLE":                                                                  "roots " + system + ", host",
		"mode: SIMPLE, sni: b":                                                          "roots " + system + ", sni b",
		"mode: SIMPLE, subjectAltNames: [c]":                                            "roots " + system + ", names c, asks for host",
		"mode: SIMPLE, sni: b, subjectAltNames: [c]":                                    "roots " + system + ", names c, sni b",
		"mode: SIMPLE, caCertificates: /ca.pem":                                         "roots " + file + ", host",
		"mode: SIMPLE, caCertificates: /ca.pem, sni: b":                                 "roots " + file + ", sni b",
		"mode: SIMPLE, caCertificates: /ca.pem, subjectAltNames: [c]":                   "roots " + file + ", names c, asks for host",
		"mode: SIMPLE, credentialName: cred":                                            "roots " + folder + ", host",
		"mode: SIMPLE, credentialName: cred, sni: b":                                    "roots " + folder + ", sni b",
		"mode: SIMPLE, credentialName: cred, subjectAltNames: [c]":                      "roots " + folder + ", names c, asks for host",
		"mode: SIMPLE, credentialName: 'invalid://'":                                    "no endpoints",
		"mode: SIMPLE, credentialName: 'invalid://', sni: b":                            "no endpoints",
		"mode: SIMPLE, credentialName: 'sds://other'":                                   "no endpoints",
		"mode: SIMPLE, insecureSkipVerify: true":                                        "no verification, asks for host",
		"mode: SIMPLE, insecureSkipVerify: true, sni: b":                                "no verification, sni b",
		"mode: SIMPLE, insecureSkipVerify: true, credentialName: 'sds://other', sni: b": "no verification, sni b",
		"mode: MUTUAL, " + client:                                                       "roots " + system + ", host, shows /c.pem",
		"mode: MUTUAL, sni: b, " + client:                                               "roots " + system + ", sni b, shows /c.pem",
		"mode: MUTUAL, sni: b, subjectAltNames: [c], " + client:                         "roots " + system + ", names c, sni b, shows /c.pem",
		"mode: MUTUAL, caCertificates: /ca.pem, sni: b, " + client:                      "roots " + file + ", sni b, shows /c.pem",
		"mode: MUTUAL, insecureSkipVerify: true, sni: b, " + client:                     "no verification, sni b, shows /c.pem",
		"mode: MUTUAL, credentialName: cred, sni: b":                                    "roots " + folder + ", sni b, shows " + ownCertificate,
		"mode: MUTUAL, credentialName: cred, subjectAltNames: [c]": "roots " + folder +
			", names c, asks for host, shows " + ownCertificate,
		"mode: MUTUAL, credentialName: 'invalid://'":                    "no endpoints",
		"mode: MUTUAL, credentialName: 'invalid://', sni: b, " + client: "no endpoints",
		"mode: ISTIO_MUTUAL": "no endpoints",
	} {
		t.Run(settings, func(t *testing.T) {
			resources := dumpText(t, fmt.Sprintf(text, settings), nodes[0])
			c, ok := resources[xds.ClusterURL+"/outbound|80||a.example"].(*clusterv3.Cluster)
			require.True(t, ok)
			require.Equal(t, want, verification(t, c, resources[xds.EndpointURL+"/outbound|80||a.example"]))
		})
	}
}

// verification says which servers a cluster accepts.
func verification(t *testing.T, cluster *clusterv3.Cluster, endpoints proto.Message) string {
	t.Helper()
	assignment, ok := endpoints.(*endpointv3.ClusterLoadAssignment)
	if ok && len(assignment.GetEndpoints()) == 0 {
		return "no endpoints"
	}
	if cluster.GetTransportSocket() == nil {
		return "plaintext"
	}
	var socket tlsv3.UpstreamTlsContext
	require.NoError(t, cluster.GetTransportSocket().GetTypedConfig().UnmarshalTo(&socket))
	var options httpv3.HttpProtocolOptions
	if packed := cluster.GetTypedExtensionProtocolOptions()[translate.HTTPOptions]; packed != nil {
		require.NoError(t, packed.UnmarshalTo(&options))
	}
	common, upstream := socket.GetCommonTlsContext(), options.GetUpstreamHttpProtocolOptions()
	words := []string{"no verification"}
	if validation := common.GetCombinedValidationContext(); validation != nil {
		secret := translate.SecretOf(validation.GetValidationContextSdsSecretConfig().GetName())
		words[0] = "roots " + secret.GetValidationContext().GetTrustedCa().GetFilename()
		if names := validation.GetDefaultValidationContext().GetMatchTypedSubjectAltNames(); len(names) > 0 {
			words = append(words, "names "+names[0].GetMatcher().GetExact())
		}
	}
	switch {
	case upstream.GetAutoSanValidation():
		words = append(words, "host")
	case upstream.GetAutoSni():
		words = append(words, "asks for host")
	}
	if socket.GetSni() != "" {
		words = append(words, "sni "+socket.GetSni())
	}
	for _, certificate := range common.GetTlsCertificateSdsSecretConfigs() {
		words = append(words, "shows "+translate.SecretOf(certificate.GetName()).GetTlsCertificate().GetCertificateChain().GetFilename())
	}
	return strings.Join(words, ", ")
}
