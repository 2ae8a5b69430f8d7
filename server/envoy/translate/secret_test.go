package translate

import (
	"path"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/model"
)

// A secret has the files of its name, whatever these are called. Istio's agent uses the same name if they have no
// tilde.
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

func TestRespelledSecretOf(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		model.CertificateName("/etc/shop/tls.crt", "/etc/shop/tls.key"), model.CertificateName("tls.crt", "tls.key"),
		model.RootName("/etc/shop/ca.crt", ""), model.RootName("/etc/shop/ca.crt", "/etc/shop/crl"),
	} {
		plain, respelled := SecretOf(name), RespelledSecretOf(name)
		require.False(t, proto.Equal(plain, respelled), name)
		for _, files := range [][2]*corev3.DataSource{
			{plain.GetTlsCertificate().GetCertificateChain(), respelled.GetTlsCertificate().GetCertificateChain()},
			{plain.GetTlsCertificate().GetPrivateKey(), respelled.GetTlsCertificate().GetPrivateKey()},
			{plain.GetValidationContext().GetTrustedCa(), respelled.GetValidationContext().GetTrustedCa()},
			{plain.GetValidationContext().GetCrl(), respelled.GetValidationContext().GetCrl()},
		} {
			require.Equal(t, path.Clean(files[0].GetFilename()), path.Clean(files[1].GetFilename()), name)
		}
	}
}
