package envoy

import (
	"fmt"
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
