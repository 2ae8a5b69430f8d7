package translate

import (
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/envoy/model"
)

// A secret has the files of its name, whatever these are called. Istio's agent uses the same name if they have no tilde.
func TestSecretsNameTheirFiles(t *testing.T) {
	for _, want := range [][2]string{
		{"/c.pem", "/k.pem"},
		{"/etc/certs~1/c.pem", "/etc/certs~1/k.pem"},
		{"/a~", "b"},
		{"/a", "~b"},
		{"/50%", "/%7E"},
	} {
		cert := SecretOf(model.CertificateName(want[0], want[1])).GetTlsCertificate()
		require.Equal(t, want, [2]string{cert.GetCertificateChain().GetFilename(), cert.GetPrivateKey().GetFilename()})
		verify := func(s *tlsv3.Secret) [2]string {
			c := s.GetValidationContext()
			return [2]string{c.GetTrustedCa().GetFilename(), c.GetCrl().GetFilename()}
		}
		require.Equal(t, want, verify(SecretOf(model.RootName(want[0], want[1]))))
		require.Equal(t, [2]string{want[0]}, verify(SecretOf(model.RootName(want[0], ""))))
	}
	require.NotEqual(t, model.CertificateName("/a~", "b"), model.CertificateName("/a", "~b"))
	require.Equal(t, "file-cert:/c.pem~/k.pem", model.CertificateName("/c.pem", "/k.pem"))
	require.Equal(t, "file-root:/ca.pem~/crl.pem", model.RootName("/ca.pem", "/crl.pem"))
	require.Equal(t, "file-root:/ca.pem", model.RootName("/ca.pem", ""))
}
