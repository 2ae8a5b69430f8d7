package adsc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tributary/adsc"
	"tributary/internal/testutil"
	"tributary/internal/xdstest"
)

// authority signs the certificates of these tests.
type authority struct{ *testutil.Authority }

func newAuthority(t *testing.T) authority { return authority{testutil.NewAuthority(t)} }

const istiodID = "spiffe://cluster.local/ns/istio-system/sa/istiod"

// server returns credentials of a server on loopback that is also istiod.
func (a authority) server(alter func(*tls.Config), expires time.Time) credentials.TransportCredentials {
	id := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/istio-system/sa/istiod"}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{a.Sign(&x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"istiod.test"}, URIs: []*url.URL{id}, NotAfter: expires,
	}).TLS()}}
	if alter != nil {
		alter(config)
	}
	return credentials.NewTLS(config)
}

// client returns a certificate and its key.
func (a authority) client() (certPEM, keyPEM string) {
	p := a.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "client"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return p.Certificate, p.Key
}

// outcome returns the error of a client with these settings: nil if the server answers.
func outcome(t *testing.T, address string, settings *adsc.TLS) error {
	t.Helper()
	answered := make(chan struct{}, 1)
	config := quiet(address, subscribe(typeA, func(context.Context, *adsc.Response) error {
		answered <- struct{}{}
		return nil
	}))
	config.TLS = settings
	select {
	case <-answered:
		return nil
	case err := <-run(t, config).ended:
		return err
	case <-time.After(xdstest.Patience):
		require.FailNow(t, "no outcome")
		return nil
	}
}

func TestTLS_VerifiesServerCertificate(t *testing.T) {
	a, otherAuthority := newAuthority(t), newAuthority(t)
	address := respondsOnce(t).Serve(t, grpc.Creds(a.server(nil, time.Time{})))
	expired := respondsOnce(t).Serve(t, grpc.Creds(a.server(nil, time.Now().Add(-time.Hour))))
	old := respondsOnce(t).Serve(t, grpc.Creds(a.server(func(c *tls.Config) {
		c.MaxVersion = tls.VersionTLS11
		c.MinVersion = tls.VersionTLS10
	}, time.Time{})))
	plain := respondsOnce(t).Serve(t)
	for name, c := range map[string]struct {
		address string
		tls     adsc.TLS
		want    string // of the error; empty for none
	}{
		"by its address":  {address, adsc.TLS{CACertificates: a.PEM}, ""},
		"by another name": {address, adsc.TLS{CACertificates: a.PEM, SNI: "istiod.test"}, ""},
		"not by a wrong name": {
			address,
			adsc.TLS{CACertificates: a.PEM, SNI: "other.test"},
			"its certificate is for istiod.test, and not for other.test",
		},
		"by its SPIFFE id": {address, adsc.TLS{CACertificates: a.PEM, SNI: "other.test", SubjectAltNames: []string{"x", istiodID}}, ""},
		"not by another SPIFFE id": {
			address,
			adsc.TLS{CACertificates: a.PEM, SubjectAltNames: []string{istiodID + "2"}},
			"want one of " + istiodID + "2",
		},
		"with a SPIFFE id of another authority": {
			address,
			adsc.TLS{CACertificates: otherAuthority.PEM, SubjectAltNames: []string{istiodID}},
			"no trusted authority signed its certificate",
		},
		"of an unknown authority": {address, adsc.TLS{CACertificates: otherAuthority.PEM}, "no trusted authority signed its certificate"},
		"of none of the system's": {address, adsc.TLS{}, "no trusted authority signed its certificate"},
		"that need not be":        {address, adsc.TLS{InsecureSkipVerify: true}, ""},
		"that has expired":        {expired, adsc.TLS{CACertificates: a.PEM}, "expired"},
		"that has expired, with a SPIFFE id": {
			expired, adsc.TLS{CACertificates: a.PEM, SubjectAltNames: []string{istiodID}}, "expired",
		},
		"that is too old":        {old, adsc.TLS{CACertificates: a.PEM}, "protocol version"},
		"that speaks plaintext":  {plain, adsc.TLS{CACertificates: a.PEM}, "it does not speak TLS"},
		"with malformed PEM":     {address, adsc.TLS{CACertificates: "-----BEGIN nonsense"}, "caCertificates: no certificate in (inline)"},
		"with a missing file":    {address, adsc.TLS{CACertificates: "missing.pem"}, "caCertificates: open missing.pem"},
		"of plaintext, not TLS":  {address, adsc.TLS{Mode: adsc.TLSDisable}, ""},
		"of plaintext, as meant": {plain, adsc.TLS{Mode: adsc.TLSDisable}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			settings := c.tls
			if settings.Mode == "" {
				settings.Mode = adsc.TLSSimple
			}
			err := outcome(t, c.address, &settings)
			switch {
			case name == "of plaintext, not TLS":
				require.Error(t, err)
			case c.want == "":
				require.NoError(t, err)
			default:
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestMutualTLS_ReadsFilesForEachConnection(t *testing.T) {
	a := newAuthority(t)
	address := respondsOnce(t).Serve(t,
		grpc.Creds(a.server(func(c *tls.Config) {
			c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, a.Pool()
		}, time.Time{})))

	t.Run("inline", func(t *testing.T) {
		certPEM, keyPEM := a.client()
		require.NoError(t, outcome(t, address, &adsc.TLS{
			Mode: adsc.TLSMutual, CACertificates: a.PEM, ClientCertificate: certPEM,
			PrivateKey: keyPEM,
		}))
	})
	t.Run("without a certificate", func(t *testing.T) {
		require.Error(t, outcome(t, address, &adsc.TLS{Mode: adsc.TLSSimple, CACertificates: a.PEM}))
	})
	t.Run("replaced files", func(t *testing.T) {
		dir := t.TempDir()
		settings := &adsc.TLS{
			Mode: adsc.TLSMutual, CACertificates: filepath.Join(dir, "ca.PEM"),
			ClientCertificate: filepath.Join(dir, "cert.pem"), PrivateKey: filepath.Join(dir, "key.pem"),
		}
		certPEM, keyPEM := newAuthority(t).client() // of another authority, at first
		write := func(name, text string) { require.NoError(t, os.WriteFile(name, []byte(text), 0o600)) }
		write(settings.CACertificates, a.PEM)
		write(settings.ClientCertificate, certPEM)
		write(settings.PrivateKey, keyPEM)
		require.Error(t, outcome(t, address, settings))

		handler, answered := recorder()
		config := quiet(address, subscribe(typeA, handler))
		config.TLS = settings
		config.Backoff = retries(1)
		failed := make(chan struct{})
		config.Hooks.Failed = func(error, time.Duration) { // the connection after this has the new ones
			certPEM, keyPEM := a.client()
			write(settings.ClientCertificate, certPEM)
			write(settings.PrivateKey, keyPEM)
			close(failed)
		}
		run(t, config)
		xdstest.Receive(t, failed)
		xdstest.Receive(t, answered)
	})
	t.Run("a key of another certificate", func(t *testing.T) {
		certPEM, _ := a.client()
		_, keyPEM := a.client()
		err := outcome(t, address, &adsc.TLS{Mode: adsc.TLSMutual, ClientCertificate: certPEM, PrivateKey: keyPEM})
		require.ErrorContains(t, err, "clientCertificate (inline) and privateKey (inline): ")
		require.NotContains(t, err.Error(), keyPEM)
	})
}

func TestToken_ReadForEachStream(t *testing.T) {
	authority := newAuthority(t)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("revoked\n"), 0o600))
	server := respondsOnce(t)
	answer := server.SotW
	server.SotW = func(n int, s xdstest.SotWStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		if got := md.Get("authorization"); len(got) != 1 || got[0] != "Bearer valid" {
			return status.Errorf(codes.Unauthenticated, "token %v", got)
		}
		return answer(n, s)
	}
	handler, summaries := recorder()
	config := quiet(server.Serve(t, grpc.Creds(authority.server(nil, time.Time{}))), subscribe(typeA, handler))
	config.TLS = &adsc.TLS{Mode: adsc.TLSSimple, CACertificates: authority.PEM}
	config.TokenFile = file
	config.Backoff = retries(1)
	denied := make(chan bool, 1)
	config.Hooks.Failed = func(err error, _ time.Duration) {
		denied <- adsc.Denied(err)
		assert.NoError(t, os.WriteFile(file, []byte("valid\n"), 0o600))
	}
	run(t, config)
	assert.True(t, xdstest.Receive(t, denied))
	xdstest.Receive(t, summaries)

	require.NoError(t, os.WriteFile(file, nil, 0o600))
	config.Backoff = retries(0)
	require.ErrorContains(t, receive(t, run(t, config).ended), file+" is empty")
}

func TestTLSSettings_Invalid(t *testing.T) {
	for name, c := range map[string]struct {
		tls  adsc.TLS
		want string
	}{
		"ISTIO_MUTUAL": {adsc.TLS{Mode: "ISTIO_MUTUAL"}, "mode: ISTIO_MUTUAL takes certificates from an Istio agent, which is not here; " +
			"write MUTUAL"},
		"unknown":            {adsc.TLS{Mode: "simple"}, `mode: want DISABLE, SIMPLE or MUTUAL, got "simple"`},
		"no certificate":     {adsc.TLS{Mode: "MUTUAL", PrivateKey: "k"}, "clientCertificate: missing"},
		"no key":             {adsc.TLS{Mode: "MUTUAL", ClientCertificate: "c"}, "privateKey: missing"},
		"certificate unused": {adsc.TLS{Mode: "SIMPLE", ClientCertificate: "c"}, "mode: a client certificate is presented in MUTUAL only"},
		"authority unused":   {adsc.TLS{CACertificates: "c"}, "mode: the connection would be plaintext"},
		"names unchecked":    {adsc.TLS{Mode: "SIMPLE", InsecureSkipVerify: true, SubjectAltNames: []string{"a"}}, "insecureSkipVerify: "},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, c.tls.Check(), c.want)
			cfg := quiet("h:1", subscribe(typeA, accept))
			cfg.TLS = &c.tls
			_, err := adsc.New(cfg)
			require.ErrorContains(t, err, c.want)
		})
	}
	cfg := quiet("h:1", subscribe(typeA, accept))
	cfg.TokenFile = "token"
	_, err := adsc.New(cfg)
	require.ErrorContains(t, err, "plaintext")
}
