package xds

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
)

// certificates are those of a test.
type certificates struct {
	authority string // PEM
	parent    *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newCertificates(t *testing.T) *certificates {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parent, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &certificates{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), parent, key}
}

// server returns credentials of a server on loopback.
func (c *certificates) server(t *testing.T, expired bool) credentials.TransportCredentials {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if expired {
		template.NotAfter = time.Now().Add(-time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.parent, &key.PublicKey, c.key)
	require.NoError(t, err)
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
}

// switching is the credentials of a server that uses others from time to time.
type switching struct{ current *atomic.Pointer[switched] }

type switched struct {
	credentials.TransportCredentials
}

func (s switching) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return s.current.Load().ServerHandshake(conn)
}

func (s switching) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return s.current.Load().ClientHandshake(ctx, authority, conn)
}

func (s switching) Info() credentials.ProtocolInfo          { return s.current.Load().Info() }
func (s switching) Clone() credentials.TransportCredentials { return s }
func (s switching) OverrideServerName(string) error         { return nil }
