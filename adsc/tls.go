package adsc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/internal/spiffe"
	"tributary/internal/words"
)

// The modes of TLS, as Istio writes them.
const (
	TLSDisable = "DISABLE"
	TLSSimple  = "SIMPLE" // the server has a certificate
	TLSMutual  = "MUTUAL" // the client has one, too
)

// TLS has the settings of secure connections, with the fields of Istio's ClientTLSSettings.
//
// The value of a certificate or key is PEM, or the name of a file, which is read for each connection. ClientCertificate
// and CACertificates may also be a name of package spiffe. Then each connection gets them from the Workload API.
type TLS struct {
	Mode              string // one of the modes; empty means DISABLE
	ClientCertificate string // the client's certificate chain, only for MUTUAL
	PrivateKey        string // the client's key, only for MUTUAL
	CACertificates    string // the trusted authorities; empty means those of the system
	// SubjectAltNames are exact DNS names, IP addresses, or URIs such as spiffe://cluster.local/ns/istio-system/sa/istiod.
	// The server's certificate must have one of them. They replace the check of the host name.
	SubjectAltNames []string
	// WorkloadAPI is the API for names of package spiffe. It caches certificates in case it becomes unavailable. Nil means
	// the API that the environment names.
	WorkloadAPI *spiffe.API
	SNI         string // the server name to send and to check; empty means the host of the address
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool
}

// FieldError is an error in a field of TLS. Its text begins with the name of the field.
type FieldError struct{ error }

func (e *FieldError) Unwrap() error { return e.error }

// Check returns an error of t as a *FieldError. It reads no files.
func (t *TLS) Check() error { return fieldError(t.check()) }

func fieldError(err error) error {
	if err == nil {
		return nil
	}
	return &FieldError{err}
}

func (t *TLS) check() error {
	switch t.Mode {
	case TLSMutual:
		if t.ClientCertificate == "" {
			return errors.New("clientCertificate: missing; MUTUAL needs clientCertificate and privateKey")
		}
		if t.PrivateKey == "" && !spiffe.Named(t.ClientCertificate) {
			return errors.New("privateKey: missing; MUTUAL needs clientCertificate and privateKey")
		}
	case "", TLSDisable, TLSSimple:
		if t.ClientCertificate != "" || t.PrivateKey != "" {
			return fmt.Errorf("mode: a client certificate is presented in MUTUAL only, got %q", t.Mode)
		}
	case "ISTIO_MUTUAL":
		return errors.New("mode: ISTIO_MUTUAL takes certificates from an Istio agent, which is not here; " +
			"write MUTUAL, with the files in clientCertificate, privateKey and caCertificates")
	default:
		return fmt.Errorf("mode: want %s, %s or %s, got %q", TLSDisable, TLSSimple, TLSMutual, t.Mode)
	}
	if err := t.checkSPIFFE(); err != nil {
		return err
	}
	if !t.Secure() &&
		(t.CACertificates != "" || len(t.SubjectAltNames) > 0 || t.SNI != "" || t.InsecureSkipVerify) {
		return fmt.Errorf("mode: the connection would be plaintext all the same; write %s or %s", TLSSimple, TLSMutual)
	}
	if t.InsecureSkipVerify && len(t.SubjectAltNames) > 0 {
		return errors.New("insecureSkipVerify: subjectAltNames would not be checked")
	}
	return nil
}

// checkSPIFFE returns an error of the settings for a Workload API.
func (t *TLS) checkSPIFFE() error {
	if spiffe.Named(t.ClientCertificate) {
		if err := spiffe.CheckCertificate(t.ClientCertificate); err != nil {
			return fmt.Errorf("clientCertificate: %w", err)
		}
		if t.PrivateKey != "" {
			return errors.New("privateKey: the Workload API gives the key with the certificate: leave it out")
		}
	}
	if spiffe.Named(t.CACertificates) {
		if err := spiffe.CheckTrust(t.CACertificates); err != nil {
			return fmt.Errorf("caCertificates: %w", err)
		}
		if len(t.SubjectAltNames) == 0 && !t.InsecureSkipVerify {
			return errors.New("subjectAltNames: missing; name the SPIFFE ID of the server, " +
				"else any workload of the trust domain could stand in for it")
		}
	}
	if t.WorkloadAPI != nil {
		if err := t.WorkloadAPI.Check(); err != nil {
			return fmt.Errorf("workloadAPI: %w", err)
		}
		if !t.asksWorkloadAPI() {
			return fmt.Errorf("workloadAPI: nothing is asked of it: write %s in clientCertificate, caCertificates or both",
				spiffe.Scheme)
		}
	}
	return nil
}

// asksWorkloadAPI reports whether connections need certificates of a Workload API.
func (t *TLS) asksWorkloadAPI() bool {
	return spiffe.Named(t.ClientCertificate) || spiffe.Named(t.CACertificates)
}

// fromWorkloadAPI returns the certificates of the Workload API; nil if t needs none.
func (t *TLS) fromWorkloadAPI() (*spiffe.Credentials, error) {
	if !t.asksWorkloadAPI() {
		return nil, nil //nolint:nilnil // t needs none
	}
	api := t.WorkloadAPI
	if api == nil {
		api = spiffe.New("")
	}
	return api.Ask(context.Background()) // it limits its time itself
}

// Secure reports whether connections are encrypted.
func (t *TLS) Secure() bool { return t.Mode == TLSSimple || t.Mode == TLSMutual }

// ConfigFunc returns a function that makes the configuration of a connection to a host; nil for plaintext, and if t is
// nil. It reads the files once, to report errors early. A Workload API may become available later.
func (t *TLS) ConfigFunc() (func(host string) (*tls.Config, error), error) {
	if t == nil {
		return nil, nil
	}
	if err := t.Check(); err != nil || !t.Secure() {
		return nil, err
	}
	if t.asksWorkloadAPI() {
		return t.Config, nil
	}
	if _, err := t.Config(""); err != nil {
		return nil, err
	}
	return t.Config, nil
}

// ConfigFuncFor is ConfigFunc for an address. If the address asks for TLS (secure), the default mode is TLSSimple.
func (t *TLS) ConfigFuncFor(secure bool) (func(host string) (*tls.Config, error), error) {
	if !secure {
		return t.ConfigFunc()
	}
	settings := TLS{}
	if t != nil {
		settings = *t
	}
	settings.Mode = cmp.Or(settings.Mode, TLSSimple)
	if !settings.Secure() {
		return nil, fmt.Errorf("mode: the address asks for TLS, got %q", settings.Mode)
	}
	return settings.ConfigFunc()
}

// Credentials reads the certificates of t for a connection to address. A nil t means plaintext.
func (t *TLS) Credentials(address string) (credentials.TransportCredentials, error) {
	config, err := t.configFor(address)
	if err != nil {
		return nil, err
	}
	return credentialsOf(config), nil
}

func credentialsOf(config *tls.Config) credentials.TransportCredentials {
	if config == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(config)
}

// configFor is Config for an address. It returns nil for plaintext.
func (t *TLS) configFor(address string) (*tls.Config, error) {
	if t == nil || !t.Secure() {
		return nil, nil //nolint:nilnil // plaintext needs none
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return t.Config(host)
}

// Config reads the certificates of t, which must be secure, and returns the configuration of a connection to host. The
// caller sets the protocols (ALPN). An error of a field is a *FieldError.
func (t *TLS) Config(host string) (*tls.Config, error) {
	//nolint:gosec // the operator's choice
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.SNI != "" {
		config.ServerName = t.SNI
	}
	credentials, err := t.fromWorkloadAPI()
	if err != nil {
		return nil, err
	}
	if t.CACertificates != "" && !spiffe.Named(t.CACertificates) {
		text, err := readPEM("caCertificates", t.CACertificates)
		if err != nil {
			return nil, fieldError(err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fieldError(fmt.Errorf("caCertificates: no certificate in %s", displayName(t.CACertificates)))
		}
	}
	if t.Mode == TLSMutual {
		cert, err := t.certificate(credentials)
		if err != nil {
			return nil, fieldError(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	if len(t.SubjectAltNames) > 0 {
		config.InsecureSkipVerify = true // the following check replaces it, without the host name
		config.VerifyConnection = t.verify(config.RootCAs, credentials)
	}
	return config, nil
}

func (t *TLS) certificate(credentials *spiffe.Credentials) (tls.Certificate, error) {
	if spiffe.Named(t.ClientCertificate) {
		cert, err := credentials.Certificate(t.ClientCertificate)
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("clientCertificate: %w", err)
		}
		return *cert, nil
	}
	chain, err := readPEM("clientCertificate", t.ClientCertificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readPEM("privateKey", t.PrivateKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("clientCertificate %s and privateKey %s: %w",
			displayName(t.ClientCertificate), displayName(t.PrivateKey),
			words.KeyPairError(err))
	}
	return cert, nil
}

// verify returns a check of the server's certificate. Its chain must lead to roots, or to those of a Workload API, and
// it must have one of the subject alternative names.
func (t *TLS) verify(roots *x509.CertPool, credentials *spiffe.Credentials) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		leaf := state.PeerCertificates[0] // a server always has one
		if spiffe.Named(t.CACertificates) {
			if err := credentials.Verify(t.CACertificates, state.PeerCertificates); err != nil {
				return err
			}
		} else {
			intermediates := x509.NewCertPool()
			for _, c := range state.PeerCertificates[1:] {
				intermediates.AddCert(c)
			}
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates}); err != nil {
				return err
			}
		}
		names := slices.Clone(leaf.DNSNames)
		for _, u := range leaf.URIs {
			names = append(names, u.String())
		}
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
		if !slices.ContainsFunc(names, func(n string) bool { return slices.Contains(t.SubjectAltNames, n) }) {
			return fmt.Errorf("the server's certificate is for %s, want one of %s",
				strings.Join(names, ", "), strings.Join(t.SubjectAltNames, ", "))
		}
		return nil
	}
}

const pemBegin = "-----BEGIN "

// readPEM returns the value of a field, or the content of the file that it names.
func readPEM(field, value string) ([]byte, error) {
	if strings.HasPrefix(strings.TrimSpace(value), pemBegin) {
		return []byte(value), nil
	}
	text, err := os.ReadFile(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return text, nil
}

// displayName returns the file that a value names, for messages. It hides PEM, which may be a private key.
func displayName(value string) string {
	if strings.HasPrefix(strings.TrimSpace(value), pemBegin) {
		return "(inline)"
	}
	return value
}

// ErrPlainToken says that a token would be sent in plaintext.
var ErrPlainToken = errors.New("token file: a token must not be sent in plaintext")

// tokenFile is a file with a bearer token, read for each stream: tokens are short-lived and replaced in place.
type tokenFile string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (f tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("tokenFile: %w", err)
	}
	token = bytes.TrimSpace(token)
	if len(token) == 0 {
		return nil, fmt.Errorf("tokenFile: %s is empty", string(f))
	}
	return map[string]string{"authorization": "Bearer " + string(token)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenFile) RequireTransportSecurity() bool { return true }
