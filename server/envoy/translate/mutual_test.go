package translate

import (
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/stretchr/testify/require"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"tributary/server/envoy/model"
)

// Inbound mutual TLS verifies the client's trust domain, by certificates of SPIRE's agent or of a directory.
func TestInboundMutual(t *testing.T) {
	secured := &model.Security{Domains: []string{"example.org"}}
	require.Nil(t, inboundMutual(model.Profile{}, secured), "there is no identity")
	inbound := func(identity string) *tlsv3.DownstreamTlsContext {
		var c tlsv3.DownstreamTlsContext
		require.NoError(t, inboundMutual(model.Profile{Identity: identity}, secured, "h2").GetTypedConfig().UnmarshalTo(&c))
		require.True(t, c.GetRequireClientCertificate().GetValue())
		require.Equal(t, []string{"h2"}, c.GetCommonTlsContext().GetAlpnProtocols())
		return &c
	}
	prefixes := func(c *tlsv3.DownstreamTlsContext) (values []string) {
		for _, m := range c.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext().GetMatchTypedSubjectAltNames() {
			require.Equal(t, tlsv3.SubjectAltNameMatcher_URI, m.GetSanType())
			values = append(values, m.GetMatcher().GetPrefix())
		}
		return values
	}
	roots := func(c *tlsv3.DownstreamTlsContext) *tlsv3.SdsSecretConfig {
		return c.GetCommonTlsContext().GetCombinedValidationContext().GetValidationContextSdsSecretConfig()
	}
	c := inbound(model.IdentitySPIRE)
	require.Equal(t, []string{"spiffe://example.org/"}, prefixes(c))
	require.Equal(t, "ROOTCA", roots(c).GetName())
	require.Equal(t, "default", c.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs()[0].GetName())
	require.Equal(t, model.SPIRECluster,
		roots(c).GetSdsConfig().GetApiConfigSource().GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName())
	require.Equal(t, tlsv3.TlsParameters_TLSv1_2, c.GetCommonTlsContext().GetTlsParams().GetTlsMinimumProtocolVersion())
	require.Equal(t, mutualCiphers, c.GetCommonTlsContext().GetTlsParams().GetCipherSuites())

	secured.Domains = append(secured.Domains, "old.example")
	secured.TLS = &meshv1alpha1.MeshConfig_TLSConfig{
		MinProtocolVersion: meshv1alpha1.MeshConfig_TLSConfig_TLSV1_3, CipherSuites: []string{"AES128-SHA", "none", "AES128-SHA"},
	}
	c = inbound(model.IdentitySPIRE)
	require.Equal(t, []string{"spiffe://example.org/", "spiffe://old.example/"}, prefixes(c))
	require.Equal(t, "ALL", roots(c).GetName(), "the roots of each trust domain for itself")
	require.Equal(t, tlsv3.TlsParameters_TLSv1_3, c.GetCommonTlsContext().GetTlsParams().GetTlsMinimumProtocolVersion())
	require.Equal(t, []string{"AES128-SHA"}, c.GetCommonTlsContext().GetTlsParams().GetCipherSuites())

	c = inbound("/etc/identity")
	require.NotNil(t, roots(c).GetSdsConfig().GetAds())
	require.Equal(t, "file-root:/etc/identity/root-cert.pem", roots(c).GetName())
	require.Equal(t, "file-cert:/etc/identity/cert-chain.pem~/etc/identity/key.pem",
		c.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs()[0].GetName())
}
