package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"tributary/internal/address"
)

// connection is a client's connection above TLS. It is not read while it waits for the memory of a large request.
type connection struct {
	net.Conn
	limiter   *Limiter
	remote    net.Addr // a pointer that no other connection has
	opened    time.Time
	handshake atomic.Bool     // the handshakes of TLS and HTTP/2 are complete
	streams   atomic.Int64    // of all services
	written   atomic.Int64    // bytes that the operating system accepted
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc

	// owned by the reader
	unread  []byte
	payload payloadCounter

	mu          sync.Mutex   // guards the memory of large requests
	incoming    int64        // payload of requests that are not complete
	reservation *reservation // nil while incoming is small
}

// newConnection waits for the first byte of the client. gRPC would allocate buffers and send its settings before.
func newConnection(inner net.Conn, limiter *Limiter) (*connection, error) {
	c := &connection{
		Conn: inner, limiter: limiter, remote: inner.RemoteAddr(), opened: time.Now(), payload: newPayloadCounter(),
		unread: make([]byte, 1),
	}
	if _, err := inner.Read(c.unread); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	limiter.connections.Store(c.remote, c)
	return c, nil
}

// RemoteAddr implements net.Conn.
func (c *connection) RemoteAddr() net.Addr { return c.remote }

// connectionOf returns the connection of a stream, or nil if its server has no credentials of a Limiter.
func (l *Limiter) connectionOf(ctx context.Context) *connection {
	client, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	return l.connectionFrom(client.Addr)
}

func (l *Limiter) connectionFrom(addr net.Addr) *connection {
	value, _ := l.connections.Load(addr)
	c, _ := value.(*connection)
	return c
}

// Read implements net.Conn. It waits for memory while incomplete requests are large.
func (c *connection) Read(data []byte) (n int, err error) {
	if len(c.unread) > 0 {
		n = copy(data, c.unread)
		c.unread = c.unread[n:]
	} else {
		n, err = c.Conn.Read(data)
	}
	if payload := c.payload.count(data[:n]); payload > 0 {
		if err := c.receive(int64(payload)); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *connection) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	c.written.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	limit := c.limiter.limits.HandshakeTimeout
	if c.ctx.Err() == nil && limit > 0 && !c.handshake.Load() && time.Since(c.opened) >= limit {
		c.complain(refusedHandshake, errNoHandshake)
	}
	c.cancel()
	c.limiter.connections.Delete(c.remote)
	c.releaseMemory()
	return c.Conn.Close()
}

// terminate closes the connection because of a limit.
func (c *connection) terminate(reason string, cause error) {
	c.complain(reason, cause)
	_ = c.Close()
}

// complain logs and counts that the connection exceeds a limit.
func (c *connection) complain(reason string, cause error) {
	if c.limiter.logLines.Allow() {
		peer := address.Peer(c.remote)
		c.limiter.log.Warn("connection exceeds a limit", "peer", peer, "limit", reason, "err", cause)
	}
	c.limiter.engine.Refused(reason)
}

var (
	errFull        = errors.New("limits.streamsPerConnection streams are open: further ones wait, or are refused")
	errNoHandshake = errors.New("no handshake within limits.handshakeTimeout")
	errStuck       = errors.New("the client did not read a response within limits.stuckFor")
	errAged        = status.Error(codes.Unavailable, "the connection was open for limits.connectionAge: connect again")
)

// ageGrace is the time from the end of the streams of an old connection to its own end.
const ageGrace = 10 * time.Second

// goAwayAfter returns the time until GOAWAY, after which clients open new streams elsewhere. gRPC varies it by a tenth,
// and sends it before the first connections reach ConnectionAge.
func (l *Limits) goAwayAfter() time.Duration {
	if l.ConnectionAge < 0 {
		return orForever(l.ConnectionAge)
	}
	return l.ConnectionAge / 11 * 9
}

// startAging ends the streams at ConnectionAge, give or take a tenth, and then the connection. The grace of gRPC would
// also end connections of this machine, which only get the GOAWAY.
func (c *connection) startAging(endStreams context.CancelCauseFunc) (stop func() bool) {
	limit := c.limiter.limits.ConnectionAge
	if limit < 0 || isLocal(c.remote) {
		return func() bool { return false }
	}
	spread := 0.9 + 0.2*rand.Float64() //nolint:gosec // it spreads clients
	return time.AfterFunc(time.Duration(float64(limit)*spread), func() {
		endStreams(errAged)
		select {
		case <-c.ctx.Done():
		case <-time.After(ageGrace):
			_ = c.Close()
		}
	}).Stop
}

func isLocal(addr net.Addr) bool {
	parsed, err := netip.ParseAddrPort(addr.String())
	return addr.Network() == "unix" || err == nil && parsed.Addr().Unmap().IsLoopback()
}

// statistics learns from gRPC when a connection, a stream and a request begin and end.
type statistics struct{ limiter *Limiter }

type connectionKey struct{}

// taggedConnection is the connection in the context of its streams, with the function that ends them.
type taggedConnection struct {
	*connection
	end func()
}

// TagConn implements stats.Handler. The streams of an old connection end with its context.
func (s statistics) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	c := s.limiter.connectionFrom(info.RemoteAddr)
	if c == nil {
		return ctx
	}
	c.handshake.Store(true)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := c.startAging(cancel)
	return context.WithValue(ctx, connectionKey{}, taggedConnection{c, func() {
		stop()
		cancel(nil)
	}})
}

// HandleConn implements stats.Handler.
func (statistics) HandleConn(ctx context.Context, event stats.ConnStats) {
	tagged, ok := ctx.Value(connectionKey{}).(taggedConnection)
	if _, end := event.(*stats.ConnEnd); ok && end {
		tagged.end()
	}
}

// TagRPC implements stats.Handler.
func (statistics) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (s statistics) HandleRPC(ctx context.Context, event stats.RPCStats) {
	tagged, ok := ctx.Value(connectionKey{}).(taggedConnection)
	if !ok {
		return
	}
	switch event := event.(type) {
	case *stats.Begin:
		if tagged.streams.Add(1) == int64(s.limiter.limits.StreamsPerConnection) {
			tagged.complain(refusedPerConnection, errFull)
		}
	case *stats.InPayload:
		tagged.received(int64(event.WireLength))
	case *stats.End:
		if tagged.streams.Add(-1) == 0 {
			tagged.releaseMemory()
		}
	}
}
