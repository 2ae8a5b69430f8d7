package config

import (
	"path/filepath"
	"strings"

	"tributary/internal/spiffe"
	"tributary/sources/xds"
)

// Secured has the settings of sources that are reached over the network.
type Secured struct {
	// TLS of the connection to the source, as in Istio.
	TLSSettings *TLSSettings `json:"tlsSettings,omitempty" reading:"-"`
}

// Connection has the settings of sources that take a token.
type Connection struct {
	Secured
	// File with a token, read anew each time it is used. For xds it needs tlsSettings.
	TokenFile string `json:"tokenFile,omitempty" reading:"-"`
}

// TLSSettings has the keys of Istio's ClientTLSSettings.
type TLSSettings struct {
	// DISABLE, SIMPLE or MUTUAL.
	Mode string `json:"mode,omitempty"`
	// File of the client certificate chain, or PEM (MUTUAL). spiffe:// is the first X509-SVID that the SPIFFE Workload API gives, and
	// spiffe://TRUST-DOMAIN/PATH that of this SPIFFE ID.
	ClientCertificate string `json:"clientCertificate,omitempty"`
	// File of the client's private key, or PEM (MUTUAL); none with spiffe://.
	PrivateKey string `json:"privateKey,omitempty"`
	// File of the certificates to verify the server by, or PEM. Default: those of the system. spiffe:// are the authorities of all trust
	// domains that the Workload API knows, and spiffe://TRUST-DOMAIN those of one; then subjectAltNames is needed.
	CACertificates string `json:"caCertificates,omitempty"`
	// Names of which the server's certificate must have one, such as spiffe://cluster.local/ns/istio-system/sa/istiod.
	SubjectAltNames []string `json:"subjectAltNames,omitempty"`
	// Where the SPIFFE Workload API is, as unix:///PATH or tcp://IP:PORT. Default: $SPIFFE_ENDPOINT_SOCKET.
	WorkloadAPI string `json:"workloadAPI,omitempty"`
	// Server name sent in the TLS handshake.
	SNI string `json:"sni,omitempty"`
	// Do not verify the server's certificate.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

func (c *Secured) tls() *xds.TLS {
	t := c.TLSSettings
	if t == nil {
		return nil
	}
	made := new(xds.TLS)
	assign(made, *t)
	if t.WorkloadAPI != "" || spiffe.Named(t.ClientCertificate) || spiffe.Named(t.CACertificates) {
		made.WorkloadAPI = spiffe.New(t.WorkloadAPI)
	}
	return made
}

// unverified returns the key by which a connection accepts any certificate, or an empty text.
func (c *Secured) unverified(string) string {
	if c.TLSSettings != nil && c.TLSSettings.InsecureSkipVerify {
		return "tlsSettings.insecureSkipVerify"
	}
	return ""
}

func (c *Secured) where(address string) where { return where{Address: address} }

func (c *Secured) locate(dir, address string) string {
	if t := c.TLSSettings; t != nil {
		for _, file := range []*string{&t.ClientCertificate, &t.PrivateKey, &t.CACertificates} {
			fileUnder(dir, file)
		}
	}
	return address
}

func (c *Connection) locate(dir, address string) string {
	fileUnder(dir, &c.TokenFile)
	return c.Secured.locate(dir, address)
}

// fileUnder makes the name of a file that is relative one that is relative to dir. PEM in its place stays, and so does what is for a
// Workload API.
func fileUnder(dir string, file *string) {
	if *file != "" && !filepath.IsAbs(*file) && !strings.Contains(*file, "-----BEGIN ") && !spiffe.Named(*file) {
		*file = filepath.Join(dir, *file)
	}
}

// CheckTLSFiles reads the files that the tlsSettings of a source name, and reports what is wrong with them. What comes from a SPIFFE
// Workload API is not asked for.
func CheckTLSFiles(of Settings) error {
	secured, ok := of.(interface{ tls() *xds.TLS })
	if !ok {
		return nil // a source without TLS
	}
	made := secured.tls()
	if made == nil || made.WorkloadAPI != nil || !made.Secure() {
		return nil
	}
	_, err := made.Config("")
	return err
}
