package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"tributary/internal/address"
)

// connection is a client's connection above TLS. It is not read while it waits for the memory of a large request.
type connection struct {
	net.Conn
	limiter *Limiter
	streams atomic.Int64    // of all services
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc

	// owned by the reader
	unread  []byte
	payload payloadCounter
	socket  socketReader

	mu          sync.Mutex   // guards the memory of large requests
	incoming    int64        // payload of requests that are not complete
	reservation *reservation // nil while incoming is small
}

// newConnection waits for the preface of HTTP/2 with the header of SETTINGS. grpc-go allocates its buffers before it
// reads the preface, so that a silent connection would be expensive.
func newConnection(inner net.Conn, limiter *Limiter) (*connection, error) {
	const preface = len(http2.ClientPreface)
	created := &connection{
		Conn: inner, limiter: limiter, unread: make([]byte, preface+frameHeader), socket: newSocketReader(inner),
	}
	if _, err := io.ReadFull(inner, created.unread); err != nil {
		return nil, err
	}
	created.payload.count(created.unread[preface:])
	created.ctx, created.cancel = context.WithCancel(context.Background())
	return created, nil
}

// clientAddress is the remote address of a connection, from which gRPC's contexts lead to the connection.
type clientAddress struct {
	net.Addr

	connection *connection
}

// RemoteAddr implements net.Conn.
func (c *connection) RemoteAddr() net.Addr { return clientAddress{c.Conn.RemoteAddr(), c} }

// connectionOf returns the connection of a stream, or nil if its server has no credentials of a Limiter.
func connectionOf(ctx context.Context) *connection {
	client, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	remote, _ := client.Addr.(clientAddress)
	return remote.connection
}

// Read implements net.Conn. It waits for memory while incomplete requests are large.
func (c *connection) Read(data []byte) (n int, err error) {
	if len(c.unread) > 0 {
		n = copy(data, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	n, err = c.Conn.Read(data)
	if err := c.countPayload(data[:n]); err != nil {
		return 0, err
	}
	return n, err
}

// countPayload waits for the memory of the requests in data, which was read.
func (c *connection) countPayload(data []byte) error {
	if payload := c.payload.count(data); payload > 0 {
		return c.reserve(int64(payload))
	}
	return nil
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.cancel()
	c.releaseMemory()
	return c.Conn.Close()
}

// reportExceeded logs and counts that the connection exceeds a limit.
func (c *connection) reportExceeded(reason string, cause error) {
	if c.limiter.logLines.Allow() {
		client := address.Peer(c.Conn.RemoteAddr())
		c.limiter.log.Warn("connection exceeds a limit", "peer", client, "limit", reason, "err", cause)
	}
	c.limiter.engine.Refused(reason)
}

var errFull = errors.New("limits.streamsPerConnection streams are open: further ones wait, or are refused")

// streamStatistics learns from gRPC when a stream and a request begin and end.
type streamStatistics struct{ limit int64 } // limits.streamsPerConnection

// TagConn implements stats.Handler.
func (streamStatistics) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}

// HandleConn implements stats.Handler.
func (streamStatistics) HandleConn(context.Context, stats.ConnStats) {}

// TagRPC implements stats.Handler.
func (streamStatistics) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (s streamStatistics) HandleRPC(ctx context.Context, event stats.RPCStats) {
	connection := connectionOf(ctx)
	if connection == nil {
		return
	}
	switch event := event.(type) {
	case *stats.Begin:
		if connection.streams.Add(1) == s.limit {
			connection.reportExceeded(refusedPerConnection, errFull)
		}
	case *stats.InPayload:
		connection.noteComplete(int64(event.WireLength))
	case *stats.End:
		if connection.streams.Add(-1) == 0 {
			connection.releaseMemory()
		}
	}
}
