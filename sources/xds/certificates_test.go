package xds

import (
	"crypto/tls"
	"time"

	"google.golang.org/grpc/credentials"

	"tributary/internal/testutil"
)

// certificate returns a certificate of a server on loopback.
func certificate(a *testutil.Authority, expired bool) *tls.Certificate {
	var expiry time.Time // in a while
	if expired {
		expiry = time.Now().Add(-time.Hour)
	}
	pair := a.Loopback(expiry).TLS()
	return &pair
}

// presenting returns credentials of a server that presents the current certificate on each connection.
func presenting(current func() *tls.Certificate) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current(), nil },
	})
}

// loopback returns credentials of a server on loopback.
func loopback(a *testutil.Authority, expired bool) credentials.TransportCredentials {
	return presenting(func() *tls.Certificate { return certificate(a, expired) })
}
