package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// serverCredentials allow listeners with and without TLS on one gRPC server.
type serverCredentials struct {
	credentials.TransportCredentials // of plaintext

	tls     credentials.TransportCredentials
	log     *slog.Logger
	limiter *rate.Limiter // of log
}

// Credentials are those of a gRPC server whose listeners are plaintext, but for those that were made with Secure, which need
// certificates. They log failed handshakes, ten a second at most.
func Credentials(certificates *Certificates, log *slog.Logger) credentials.TransportCredentials {
	c := serverCredentials{TransportCredentials: insecure.NewCredentials(), log: log, limiter: rate.NewLimiter(10, 10)}
	if certificates != nil {
		c.tls = credentials.NewTLS(certificates.Config("h2"))
	}
	return c
}

// ServerHandshake implements credentials.TransportCredentials.
func (c serverCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, ok := conn.(secureConn)
	if !ok {
		return c.TransportCredentials.ServerHandshake(conn)
	}
	made, info, err := c.tls.ServerHandshake(secure.Conn)
	if err != nil && !errors.Is(err, io.EOF) && c.limiter.Allow() { // a probe connects and says nothing
		c.log.Warn("client refused", "peer", conn.RemoteAddr().String(), "err", explain(err))
	}
	return made, info, err
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials { return c }

// explain returns the meaning of the most common errors of package tls.
func explain(err error) string {
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record):
		return "it does not speak TLS, which this port is for"
	case errors.Is(err, context.DeadlineExceeded):
		return "no handshake in time"
	}
	return err.Error()
}
