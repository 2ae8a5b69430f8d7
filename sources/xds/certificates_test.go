package xds

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"tributary/internal/testutil"
)

// loopback returns credentials of a server on loopback.
func loopback(a *testutil.Authority, expired bool) credentials.TransportCredentials {
	var expiry time.Time // in a while
	if expired {
		expiry = time.Now().Add(-time.Hour)
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{a.Loopback(expiry).TLS()}})
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
