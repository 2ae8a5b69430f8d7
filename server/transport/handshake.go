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

// serverCredentials let one gRPC server have listeners with and without TLS.
type serverCredentials struct {
	credentials.TransportCredentials // of plaintext

	tls credentials.TransportCredentials
	log *refusalLog
}

// Credentials are those of a gRPC server whose listeners are plaintext, but for those that were made with Secure, which need
// certificates. Who fails the handshake is logged.
func Credentials(certificates *Certificates, log *slog.Logger) credentials.TransportCredentials {
	c := serverCredentials{TransportCredentials: insecure.NewCredentials(), log: newRefusalLog(log)}
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
	if err != nil {
		c.log.failed(conn.RemoteAddr(), err)
	}
	return made, info, err
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials { return c }

// refusalLog says who was not let in, and why, ten times a second at most.
type refusalLog struct {
	log     *slog.Logger
	limiter *rate.Limiter
}

func newRefusalLog(log *slog.Logger) *refusalLog { return &refusalLog{log, rate.NewLimiter(10, 10)} }

func (l *refusalLog) failed(peer net.Addr, err error) {
	if errors.Is(err, io.EOF) || !l.limiter.Allow() { // a probe that connects and goes has nothing to be told
		return
	}
	l.log.Warn("client refused", "peer", peer.String(), "err", explain(err))
}

// explain says in words what the errors of package tls that are met most mean.
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
