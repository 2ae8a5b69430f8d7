package transport

import (
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

	tls      credentials.TransportCredentials
	log      *slog.Logger
	logLines *rate.Limiter
}

// Credentials are those of a gRPC server with plaintext listeners, and listeners that were made with Secure, which need
// certificates. They log failed handshakes, ten a second at most.
func Credentials(certificates *Certificates, log *slog.Logger) credentials.TransportCredentials {
	result := serverCredentials{
		TransportCredentials: insecure.NewCredentials(), log: log,
		logLines: rate.NewLimiter(10, 10),
	}
	if certificates != nil {
		result.tls = credentials.NewTLS(certificates.Config("h2"))
	}
	return result
}

// ServerHandshake implements credentials.TransportCredentials.
func (c serverCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, ok := conn.(secureConn)
	if !ok {
		return c.TransportCredentials.ServerHandshake(conn)
	}
	encrypted, info, err := c.tls.ServerHandshake(secure.Conn)
	if err != nil && !errors.Is(err, io.EOF) && c.logLines.Allow() { // a probe connects and sends no byte
		message := err.Error()
		if _, plaintext := errors.AsType[tls.RecordHeaderError](err); plaintext {
			message = "it does not speak TLS, which this port is for"
		}
		c.log.Warn("client refused", "peer", conn.RemoteAddr().String(), "err", message)
	}
	return encrypted, info, err
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials { return c }
