package config

import (
	"path/filepath"
	"strings"

	"tributary/sources/xds"
)

// Connection has the settings of sources that are reached over the network.
type Connection struct {
	TLSSettings *TLSSettings `json:"tlsSettings,omitempty" jsonschema:"TLS of the connection to the source, as in Istio."`
	TokenFile   string       `json:"tokenFile,omitempty" jsonschema:"File with a token, read anew each time it is used. For xds it needs tlsSettings."`
}

// TLSSettings has the keys of Istio's ClientTLSSettings.
type TLSSettings struct {
	Mode               string   `json:"mode,omitempty" jsonschema:"DISABLE, SIMPLE or MUTUAL."`
	ClientCertificate  string   `json:"clientCertificate,omitempty" jsonschema:"File of the client certificate chain, or PEM (MUTUAL)."`
	PrivateKey         string   `json:"privateKey,omitempty" jsonschema:"File of the client's private key, or PEM (MUTUAL)."`
	CACertificates     string   `json:"caCertificates,omitempty" jsonschema:"File of the certificates to verify the server by, or PEM. Default: those of the system."`
	SubjectAltNames    []string `json:"subjectAltNames,omitempty" jsonschema:"Names of which the server's certificate must have one, such as spiffe://cluster.local/ns/istio-system/sa/istiod."`
	SNI                string   `json:"sni,omitempty" jsonschema:"Server name sent in the TLS handshake."`
	InsecureSkipVerify bool     `json:"insecureSkipVerify,omitempty" jsonschema:"Do not verify the server's certificate."`
}

// tls returns the settings of TLS as the sources take them, or nil.
func (c *Connection) tls() *xds.TLS {
	t := c.TLSSettings
	if t == nil {
		return nil
	}
	return &xds.TLS{
		Mode: t.Mode, ClientCertificate: t.ClientCertificate, PrivateKey: t.PrivateKey, CACertificates: t.CACertificates,
		SubjectAltNames: t.SubjectAltNames, SNI: t.SNI, InsecureSkipVerify: t.InsecureSkipVerify,
	}
}

func (c *Connection) locate(dir, address string) string {
	if t := c.TLSSettings; t != nil {
		for _, file := range []*string{&t.ClientCertificate, &t.PrivateKey, &t.CACertificates} {
			fileUnder(dir, file)
		}
	}
	fileUnder(dir, &c.TokenFile)
	return address
}

// fileUnder makes the name of a file that is relative one that is relative to dir. PEM in its place stays.
func fileUnder(dir string, file *string) {
	if *file != "" && !filepath.IsAbs(*file) && !strings.Contains(*file, "-----BEGIN ") {
		*file = filepath.Join(dir, *file)
	}
}
