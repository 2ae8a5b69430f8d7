package envoy

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// Certificates and keys are files on the machine of the Envoy, which reads them, and reads them again when they are replaced. It is told of them as
// secrets, so that a file that is missing fails those who need it, and nothing else.

// The names of secrets say all about them, and are those that Istio's agent gives to files, but for a tilde in a path, which would end it.
const (
	certPrefix = "file-cert:" // certificate~key
	rootPrefix = "file-root:" // certificates, or certificates~revocations
)

// certificateName is the name of the secret of a certificate and its key.
func certificateName(certificate, key string) string {
	return certPrefix + inName.Replace(certificate) + "~" + inName.Replace(key)
}

// rootName is the name of the secret of files that verify, of which the second may be empty.
func rootName(certificates, revoked string) string {
	if revoked == "" {
		return rootPrefix + inName.Replace(certificates)
	}
	return rootPrefix + inName.Replace(certificates) + "~" + inName.Replace(revoked)
}

// How paths stand in names, and are read from them.
var (
	inName   = strings.NewReplacer("%", "%25", "~", "%7E")
	fromName = strings.NewReplacer("%25", "%", "%7E", "~")
)

// defaultCredentials is where credentials are by name, unless the node says where.
const defaultCredentials = "/etc/envoy/credentials" //nolint:gosec // a folder

// secretOf makes the secret of a name.
func secretOf(name string) *tlsv3.Secret {
	file := func(path string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: fromName.Replace(path)}}
	}
	s := &tlsv3.Secret{Name: name}
	if files, ok := strings.CutPrefix(name, certPrefix); ok {
		cert, key, _ := strings.Cut(files, "~")
		s.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: file(cert), PrivateKey: file(key)}}
		return s
	}
	roots, revoked, limited := strings.Cut(strings.TrimPrefix(name, rootPrefix), "~")
	c := &tlsv3.CertificateValidationContext{TrustedCa: file(roots)}
	if limited {
		c.Crl = file(revoked)
	}
	s.Type = &tlsv3.Secret_ValidationContext{ValidationContext: c}
	return s
}

// askFor is how a secret is asked for.
func askFor(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: ads()}
}

// certificates returns the secrets of a server's certificates. Credentials are folders below dir, as Kubernetes mounts them.
func certificates(tls *networking.ServerTLSSettings, dir string) (names []string) {
	for _, credential := range append([]string{tls.GetCredentialName()}, tls.GetCredentialNames()...) {
		if isCredential(credential) {
			names = append(names, certificateName(dir+"/"+credential+"/tls.crt", dir+"/"+credential+"/tls.key"))
		}
	}
	if len(names) > 0 {
		return names
	}
	for _, c := range tls.GetTlsCertificates() {
		names = append(names, certificateName(c.GetServerCertificate(), c.GetPrivateKey()))
	}
	if tls.GetServerCertificate() != "" {
		names = append(names, certificateName(tls.GetServerCertificate(), tls.GetPrivateKey()))
	}
	return names
}

// isCredential says whether a credential is one of a name, and not one that some provider has.
func isCredential(name string) bool { return name != "" && !strings.Contains(name, "/") }

func verifies(tls *networking.ServerTLSSettings) bool {
	return tls.GetMode() == networking.ServerTLSSettings_MUTUAL || tls.GetMode() == networking.ServerTLSSettings_OPTIONAL_MUTUAL
}

// authority returns the secret by which a server verifies its clients.
func authority(tls *networking.ServerTLSSettings, dir string) string {
	for _, credential := range append([]string{tls.GetCaCertCredentialName(), tls.GetCredentialName()}, tls.GetCredentialNames()...) {
		if isCredential(credential) {
			return rootName(dir+"/"+credential+"/ca.crt", "")
		}
	}
	return root(tls.GetCaCertificates(), tls.GetCaCrl())
}

// root is the secret of files that verify, or empty if there are none.
func root(certificates, revoked string) string {
	if certificates == "" {
		return ""
	}
	return rootName(certificates, revoked)
}
