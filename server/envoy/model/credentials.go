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

// Certificates and keys are files on the machine of the Envoy. Envoy reads them, also after a replacement. It gets them
// as secrets, so that a missing file fails only the resources that need it.

// The names of secrets contain their paths. They are the names that Istio's agent gives to files, except that a tilde
// in a path is escaped, because it separates paths.
const (
	CertPrefix = "file-cert:" // certificate~key
	RootPrefix = "file-root:" // certificates, or certificates~revocations
)

// CertificateName is the name of the secret of a certificate and its key.
func CertificateName(certificate, key string) string {
	return CertPrefix + nameEscaper.Replace(certificate) + "~" + nameEscaper.Replace(key)
}

// RootName is the name of the secret of files that verify peers. revoked may be empty.
func RootName(certificates, revoked string) string {
	if revoked == "" {
		return RootPrefix + nameEscaper.Replace(certificates)
	}
	return RootPrefix + nameEscaper.Replace(certificates) + "~" + nameEscaper.Replace(revoked)
}

// The escapes of paths in names.
var (
	nameEscaper   = strings.NewReplacer("%", "%25", "~", "%7E")
	NameUnescaper = strings.NewReplacer("%25", "%", "%7E", "~")
)

// DefaultCredentials is the folder of credentials, unless the node names another one.
const DefaultCredentials = "/etc/envoy/credentials" //nolint:gosec // a folder

// Certificates returns the secrets of a server's certificates. Credentials are folders below directory, as
// Kubernetes mounts them.
func Certificates(tls *networking.ServerTLSSettings, directory string) (names []string) {
	for _, credential := range append([]string{tls.GetCredentialName()}, tls.GetCredentialNames()...) {
		if folder, ok := CredentialFolder(credential); ok {
			names = append(names, CertificateName(directory+"/"+folder+"/tls.crt", directory+"/"+folder+"/tls.key"))
		}
	}
	if len(names) > 0 {
		return names
	}
	for _, certificate := range tls.GetTlsCertificates() {
		names = append(names, CertificateName(certificate.GetServerCertificate(), certificate.GetPrivateKey()))
	}
	if tls.GetServerCertificate() != "" {
		names = append(names, CertificateName(tls.GetServerCertificate(), tls.GetPrivateKey()))
	}
	return names
}

// CredentialFolder returns the folder of a credential below the folder of credentials: its name, or the namespace and
// name of a Secret or ConfigMap of Kubernetes. It refuses credentials of other providers, and names that lead out of
// the folder.
func CredentialFolder(credential string) (folder string, ok bool) {
	scheme, folder, provided := strings.Cut(credential, "://")
	if !provided {
		scheme, folder = "", credential
	}
	parts := strings.Split(folder, "/")
	if slices.ContainsFunc(parts, func(p string) bool {
		return p == "" || strings.HasPrefix(p, ".") ||
			strings.ContainsFunc(p, func(c rune) bool { return c == '\\' || unicode.IsControl(c) })
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

// IsCredential reports whether a credential has a folder.
func IsCredential(name string) bool {
	_, ok := CredentialFolder(name)
	return ok
}

// Verifies reports whether a server requests certificates of clients.
func Verifies(tls *networking.ServerTLSSettings) bool {
	return tls.GetMode() == networking.ServerTLSSettings_MUTUAL ||
		tls.GetMode() == networking.ServerTLSSettings_OPTIONAL_MUTUAL
}

// Authority returns the secret that a server verifies its clients with.
func Authority(tls *networking.ServerTLSSettings, directory string) string {
	for _, credential := range append([]string{tls.GetCaCertCredentialName(), tls.GetCredentialName()},
		tls.GetCredentialNames()...) {
		if folder, ok := CredentialFolder(credential); ok {
			return RootName(directory+"/"+folder+"/ca.crt", "")
		}
	}
	return Root(tls.GetCaCertificates(), tls.GetCaCrl())
}

// Root is the secret of files that verify peers, or empty without files.
func Root(certificates, revoked string) string {
	if certificates == "" {
		return ""
	}
	return RootName(certificates, revoked)
}

// arePins reports whether all texts are SHA-256 hashes: of keys in base 64, and of certificates in hexadecimal digits,
// with or without colons.
func arePins(keys, certificates []string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool {
		b, err := base64.StdEncoding.DecodeString(k)
		return err != nil || len(b) != sha256.Size
	}) && !slices.ContainsFunc(certificates, func(c string) bool {
		b, err := hex.DecodeString(strings.ReplaceAll(c, ":", ""))
		return err != nil || len(b) != sha256.Size || len(c) != 2*sha256.Size && len(c) != 3*sha256.Size-1
	})
}
