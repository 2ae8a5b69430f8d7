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
	// File with a token, read for each use. For xds it needs tlsSettings.
	TokenFile string `json:"tokenFile,omitempty" reading:"-"`
}

// TLSSettings has the keys of Istio's ClientTLSSettings.
type TLSSettings struct {
	// DISABLE, SIMPLE or MUTUAL.
	Mode string `json:"mode,omitempty"`
	// File of the client certificate chain, or PEM (MUTUAL). spiffe:// is the first X509-SVID that the SPIFFE Workload API
	// gives, and spiffe://TRUST-DOMAIN/PATH that of this SPIFFE ID.
	ClientCertificate string `json:"clientCertificate,omitempty"`
	// File of the client's private key, or PEM (MUTUAL); none with spiffe://.
	PrivateKey string `json:"privateKey,omitempty"`
	// File of the certificates to verify the server by, or PEM. Default: those of the system. spiffe:// are the
	// authorities of all trust domains that the Workload API knows, and spiffe://TRUST-DOMAIN those of one; then
	// subjectAltNames is needed.
	CACertificates string `json:"caCertificates,omitempty"`
	// Names such as spiffe://cluster.local/ns/istio-system/sa/istiod. The server's certificate must have one of them.
	SubjectAltNames []string `json:"subjectAltNames,omitempty"`
	// Where the SPIFFE Workload API is, as unix:///PATH or tcp://IP:PORT. Default: $SPIFFE_ENDPOINT_SOCKET.
	WorkloadAPI string `json:"workloadAPI,omitempty"`
	// Server name sent in the TLS handshake.
	SNI string `json:"sni,omitempty"`
	// Do not verify the server's certificate.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

func (c *Secured) tls() *xds.TLS {
	configured := c.TLSSettings
	if configured == nil {
		return nil
	}
	adapted := new(xds.TLS)
	assign(adapted, *configured)
	if configured.WorkloadAPI != "" || spiffe.Named(configured.ClientCertificate) ||
		spiffe.Named(configured.CACertificates) {
		adapted.WorkloadAPI = spiffe.New(configured.WorkloadAPI)
	}
	return adapted
}

// unverified returns the key that makes a connection accept any certificate, or an empty text.
func (c *Secured) unverified(string) string {
	if c.TLSSettings != nil && c.TLSSettings.InsecureSkipVerify {
		return "tlsSettings.insecureSkipVerify"
	}
	return ""
}

func (c *Secured) canonical(address string) string { return address }

func (c *Secured) locate(dir, address string) string {
	if t := c.TLSSettings; t != nil {
		for _, file := range []*string{&t.ClientCertificate, &t.PrivateKey, &t.CACertificates} {
			absoluteFile(dir, file)
		}
	}
	return address
}

func (c *Connection) locate(dir, address string) string {
	absoluteFile(dir, &c.TokenFile)
	return c.Secured.locate(dir, address)
}

// absoluteFile resolves the relative name of a file in dir. PEM and names for a Workload API stay.
func absoluteFile(dir string, file *string) {
	if *file != "" && !filepath.IsAbs(*file) && !strings.Contains(*file, "-----BEGIN ") && !spiffe.Named(*file) {
		*file = filepath.Join(dir, *file)
	}
}

// CheckTLSFiles reads the files that the tlsSettings of a source name, and returns the first error. It does not connect
// to a SPIFFE Workload API.
func CheckTLSFiles(settings Settings) error {
	secured, ok := settings.(interface{ tls() *xds.TLS })
	if !ok {
		return nil // a source without TLS
	}
	tlsSettings := secured.tls()
	if tlsSettings == nil || tlsSettings.WorkloadAPI != nil || !tlsSettings.Secure() {
		return nil
	}
	_, err := tlsSettings.Config("")
	return err
}
