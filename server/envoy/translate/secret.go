package translate

import (
	"path"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"tributary/server/envoy/model"
)

// SecretOf returns the secret of a name, which has its files.
func SecretOf(name string) *tlsv3.Secret {
	file := func(path string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: model.NameUnescaper.Replace(path)}}
	}
	secret := &tlsv3.Secret{Name: name}
	if files, ok := strings.CutPrefix(name, model.CertPrefix); ok {
		cert, key, _ := strings.Cut(files, "~")
		secret.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: file(cert),
			PrivateKey:       file(key),
		}}
		return secret
	}
	roots, revoked, limited := strings.Cut(strings.TrimPrefix(name, model.RootPrefix), "~")
	validation := &tlsv3.CertificateValidationContext{TrustedCa: file(roots)}
	if limited {
		validation.Crl = file(revoked)
	}
	secret.Type = &tlsv3.Secret_ValidationContext{ValidationContext: validation}
	return secret
}

// RespelledSecretOf is SecretOf with other paths of the same files. An Envoy that could not read a file reads it again
// for these: it skips a secret that equals the last one, also if it rejected that.
func RespelledSecretOf(name string) *tlsv3.Secret {
	secret := SecretOf(name)
	for _, source := range []*corev3.DataSource{
		secret.GetTlsCertificate().GetCertificateChain(), secret.GetTlsCertificate().GetPrivateKey(),
		secret.GetValidationContext().GetTrustedCa(), secret.GetValidationContext().GetCrl(),
	} {
		if source != nil {
			folder, file := path.Split(source.GetFilename())
			source.Specifier = &corev3.DataSource_Filename{Filename: folder + "./" + file}
		}
	}
	return secret
}

func sdsConfig(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: Ads()}
}
