package model

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"unicode"

	networking "istio.io/api/networking/v1alpha3"
)

// Certificates and keys are files on the machine of the Envoy, which reads them, and reads them again when they are replaced. It gets them
// as secrets, so that a file that is missing fails those who need it, and nothing else.

// The names of secrets say all about them, and are those that Istio's agent gives to files, but for a tilde in a path, which would end it.
const (
	CertPrefix = "file-cert:" // certificate~key
	RootPrefix = "file-root:" // certificates, or certificates~revocations
)

// CertificateName is the name of the secret of a certificate and its key.
func CertificateName(certificate, key string) string {
	return CertPrefix + inName.Replace(certificate) + "~" + inName.Replace(key)
}

// RootName is the name of the secret of files that verify, of which the second may be empty.
func RootName(certificates, revoked string) string {
	if revoked == "" {
		return RootPrefix + inName.Replace(certificates)
	}
	return RootPrefix + inName.Replace(certificates) + "~" + inName.Replace(revoked)
}

// How paths stand in names, and are read from them.
var (
	inName   = strings.NewReplacer("%", "%25", "~", "%7E")
	FromName = strings.NewReplacer("%25", "%", "%7E", "~")
)

// DefaultCredentials is where credentials are by name, unless the node says where.
const DefaultCredentials = "/etc/envoy/credentials" //nolint:gosec // a folder

// Certificates returns the secrets of a server's certificates. Credentials are folders below dir, as Kubernetes mounts them.
func Certificates(tls *networking.ServerTLSSettings, dir string) (names []string) {
	for _, credential := range append([]string{tls.GetCredentialName()}, tls.GetCredentialNames()...) {
		if folder, ok := CredentialFolder(credential); ok {
			names = append(names, CertificateName(dir+"/"+folder+"/tls.crt", dir+"/"+folder+"/tls.key"))
		}
	}
	if len(names) > 0 {
		return names
	}
	for _, c := range tls.GetTlsCertificates() {
		names = append(names, CertificateName(c.GetServerCertificate(), c.GetPrivateKey()))
	}
	if tls.GetServerCertificate() != "" {
		names = append(names, CertificateName(tls.GetServerCertificate(), tls.GetPrivateKey()))
	}
	return names
}

// CredentialFolder returns the folder of a credential below that of all: its name, or that of a Secret or ConfigMap of Kubernetes with its
// namespace. Credentials that some other provider has, and names that lead out of the folder, have none.
func CredentialFolder(credential string) (folder string, ok bool) {
	scheme, folder, provided := strings.Cut(credential, "://")
	if !provided {
		scheme, folder = "", credential
	}
	parts := strings.Split(folder, "/")
	if slices.ContainsFunc(parts, func(p string) bool {
		return p == "" || strings.HasPrefix(p, ".") || strings.ContainsFunc(p, func(c rune) bool { return c == '\\' || unicode.IsControl(c) })
	}) {
		return "", false
	}
	switch scheme {
	case "":
		return folder, len(parts) == 1 && !provided
	case "kubernetes":
		return folder, len(parts) <= 2
	case "kubernetes-gateway", "configmap":
		return folder, len(parts) == 2
	}
	return "", false
}

// IsCredential says whether a credential has a folder.
func IsCredential(name string) bool {
	_, ok := CredentialFolder(name)
	return ok
}

// Verifies says whether a server asks for certificates of clients.
func Verifies(tls *networking.ServerTLSSettings) bool {
	return tls.GetMode() == networking.ServerTLSSettings_MUTUAL || tls.GetMode() == networking.ServerTLSSettings_OPTIONAL_MUTUAL
}

// Authority returns the secret by which a server verifies its clients.
func Authority(tls *networking.ServerTLSSettings, dir string) string {
	for _, credential := range append([]string{tls.GetCaCertCredentialName(), tls.GetCredentialName()}, tls.GetCredentialNames()...) {
		if folder, ok := CredentialFolder(credential); ok {
			return RootName(dir+"/"+folder+"/ca.crt", "")
		}
	}
	return Root(tls.GetCaCertificates(), tls.GetCaCrl())
}

// Root is the secret of files that verify, or empty if there are none.
func Root(certificates, revoked string) string {
	if certificates == "" {
		return ""
	}
	return RootName(certificates, revoked)
}

// arePins says whether all are hashes of SHA-256, of keys in base 64 and of certificates in hexadecimal digits, with colons or without.
func arePins(keys, certificates []string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool {
		b, err := base64.StdEncoding.DecodeString(k)
		return err != nil || len(b) != sha256.Size
	}) && !slices.ContainsFunc(certificates, func(c string) bool {
		b, err := hex.DecodeString(strings.ReplaceAll(c, ":", ""))
		return err != nil || len(b) != sha256.Size || len(c) != 2*sha256.Size && len(c) != 3*sha256.Size-1
	})
}
