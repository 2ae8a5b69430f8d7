package testutil

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	PEM string // of its own certificate
}

// NewAuthority returns an authority.
func NewAuthority(t testing.TB) *Authority {
	authority := &Authority{t: t}
	pair := authority.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	authority.cert, authority.key, authority.PEM = pair.Leaf, pair.key, pair.Certificate
	return authority
}

// Pool trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Pair is a certificate and its key, in PEM.
type Pair struct {
	Certificate, Key string
	Leaf             *x509.Certificate

	t   testing.TB
	key *ecdsa.PrivateKey
}

// Sign makes a certificate of template, valid for an hour unless it says otherwise.
func (a *Authority) Sign(template *x509.Certificate) Pair {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60))
	require.NoError(a.t, err)
	template.NotBefore = time.Now().Add(-2 * time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return Pair{
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:         string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
		Leaf:        leaf, t: a.t, key: key,
	}
}

// Loopback makes a certificate for servers on 127.0.0.1 that ends at notAfter; zero is in an hour.
func (a *Authority) Loopback(notAfter time.Time) Pair {
	a.t.Helper()
	return a.Sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: notAfter})
}

// TLS is the pair as package tls takes it.
func (p Pair) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.Leaf.Raw}, PrivateKey: p.key, Leaf: p.Leaf}
}

// Authority returns the authority whose certificate the pair is.
func (p Pair) Authority() *Authority {
	return &Authority{t: p.t, cert: p.Leaf, key: p.key, PEM: p.Certificate}
}

// Files writes the pair into dir.
func (p Pair) Files(dir string) (certificate, key string) {
	p.t.Helper()
	return WriteFile(p.t, dir, "cert.pem", p.Certificate), WriteFile(p.t, dir, "key.pem", p.Key)
}

// WriteFile writes a file by exchanging it for a new one.
func WriteFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
	return file
}
