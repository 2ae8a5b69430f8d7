package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tributary/internal/address"

	"google.golang.org/grpc/stats"
)

// connKey is the key of a connection in the contexts of its streams, and callKey that of a call.
type (
	connKey struct{}
	callKey struct{}
)

// call has the sizes of the newest request of a call, in bytes: compressed and decompressed.
type call struct{ wire, size int }

// watch learns from gRPC the connection of a stream, and the compressed size of a request.
type watch struct{ limiter *Limiter }

func (w watch) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	if c, ok := w.limiter.conns.Load(info.RemoteAddr); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

func (watch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, &call{})
}

func (watch) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.InPayload:
		if of, ok := ctx.Value(callKey{}).(*call); ok {
			*of = call{s.CompressedLength, s.Length}
		}
	case *stats.Begin:
		if c := connOf(ctx); c != nil {
			c.streamBegins()
		}
	case *stats.End:
		if c := connOf(ctx); c != nil {
			c.streamEnds()
		}
	}
}

func (watch) HandleConn(context.Context, stats.ConnStats) {}

// connOf returns the connection of a stream; nil if the gRPC server has other credentials than those of a Limiter.
func connOf(ctx context.Context) *limitedConn {
	c, _ := ctx.Value(connKey{}).(*limitedConn)
	return c
}

// limitedConn is a client's connection. It is not read while a large request on it waits for a reservation.
type limitedConn struct {
	net.Conn
	limiter *Limiter
	addr    net.Addr // unique, so that watch finds the connection by it
	host    string   // of addr
	ctx     context.Context
	cancel  context.CancelFunc

	accepted atomic.Int64 // bytes that the client has taken, or its system has for it
	sent     atomic.Int64 // bytes of messages that the client has sent

	since  time.Time   // when the connection began
	aging  *time.Timer // or nil
	aged   context.Context
	retire context.CancelFunc // ends aged, upon which the streams of the engine end
	begun  atomic.Bool

	use     sync.Mutex // guards what follows
	streams int
	unused  time.Time // when the last stream ended

	// owned by the reader
	frames *frames
	held   []byte     // bytes read after the header of a stream that waits
	opens  *ofAddress // the rate of streams of its address; nil for no limit
	hasty  bool       // it opens streams too fast
	err    error

	mu     sync.Mutex
	closed bool
	coming map[*reservation]struct{} // of incomplete requests
	whole  []wholeRequest            // in order of arrival, until their streams take them
}

// wholeRequest is a large request that has arrived completely.
type wholeRequest struct {
	size       int // on the wire
	compressed bool
	room       *reservation
}

func newConn(inner net.Conn, l *Limiter) *limitedConn {
	c := &limitedConn{Conn: inner, limiter: l, addr: ownAddr(inner.RemoteAddr())}
	c.host = address.Host(c.addr)
	c.coming = make(map[*reservation]struct{})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.since = time.Now()
	c.unused = c.since
	if l.opens.perSecond >= 0 {
		c.opens = l.opens.of(c.host, c.since)
	}
	c.frames = newFrames(c.messageStarted, c.messageEnded, c.mayOpen, &l.limits)
	l.conns.Store(c.addr, c)
	c.aged, c.retire = context.WithCancel(c.ctx)
	c.aging = c.startAging()
	return c
}

// ownAddr returns a copy of a that is a map key of its own. It keeps the types that gRPC's channelz knows.
func ownAddr(a net.Addr) net.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		own := *a
		return &own
	case *net.UnixAddr:
		own := *a
		return &own
	}
	return &struct{ net.Addr }{a}
}

func (c *limitedConn) RemoteAddr() net.Addr { return c.addr }

// Read implements net.Conn. It returns a stream that has to wait for its turn, and the bytes after it, when the turn comes. If the client
// hangs up before that, it returns the end of the connection, so that no work is done for the stream.
func (c *limitedConn) Read(b []byte) (int, error) {
	if c.frames.waits {
		if !c.opens.wait(c.ctx.Done(), func() bool { return !hungUp(c.Conn) }) {
			return 0, io.EOF
		}
		c.frames.waits = false
	}
	if c.hasty || c.opens != nil && c.opens.behind() {
		b = b[:min(len(b), max(hastyRead, c.frames.rest()))]
	}
	n, err := c.readNext(b)
	c.begun.Store(c.frames.begun)
	c.sent.Store(c.frames.bodies)
	if c.err == nil && c.frames.err != nil {
		c.err = c.frames.err
		c.complain(c.frames.reason(), c.err)
	}
	if c.err != nil {
		return 0, c.err
	}
	return n, err
}

// readNext reads up to the next stream that has to wait for its turn.
func (c *limitedConn) readNext(b []byte) (n int, err error) {
	if len(c.held) > 0 {
		n = c.frames.read(b[:copy(b, c.held)])
		c.held = c.held[n:]
		return n, nil
	}
	all, err := c.Conn.Read(b)
	if n = c.frames.read(b[:all]); n < all {
		c.held, err = bytes.Clone(b[n:all]), nil // the next Read has the error again
	}
	return n, err
}

const (
	// hastyRead is how many bytes are read at a time while streams of the address wait, so that a connection holds few of them. The rest of a
	// frame opens no stream and is read at once.
	hastyRead = 512
	// fewStreams is how many streams a connection may open before it is reported as hasty.
	fewStreams = 10
)

// mayOpen reports whether the client may open a stream now. If not, the connection is not read until its turn. Closing it would make the
// client reconnect and open even more.
func (c *limitedConn) mayOpen() bool {
	if c.opens == nil || c.opens.Allow() {
		return true
	}
	if c.hasty || c.frames.opened <= fewStreams {
		return false
	}
	c.hasty = true
	c.limiter.refused(refusedStreamRate)
	if c.limiter.logged.Allow() {
		c.limiter.log.Warn("connection is read slowly: its address opens more streams than limits.streamsPerSecond", "peer", address.Peer(c.addr),
			"streams", c.frames.opened)
	}
	return false
}

func (c *limitedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.accepted.Add(int64(n))
	return n, err
}

// streamBegins counts a stream of any service, and reports when the limit is reached; gRPC accepts no more then.
func (c *limitedConn) streamBegins() {
	c.use.Lock()
	c.streams++
	full := c.streams == c.limiter.limits.StreamsPerConnection
	c.use.Unlock()
	if !full {
		return
	}
	c.limiter.refused(refusedPerConnection)
	if c.limiter.logged.Allow() {
		c.limiter.log.Warn("a connection has as many streams as it may: more wait, or are refused", "peer", address.Peer(c.addr), "limit",
			c.limiter.limits.StreamsPerConnection)
	}
}

func (c *limitedConn) streamEnds() {
	c.use.Lock()
	defer c.use.Unlock()
	if c.streams--; c.streams == 0 {
		c.unused = time.Now()
	}
}

// idle reports whether gRPC closes the connection because it had no stream for limits.idleConnection.
func (c *limitedConn) idle() bool {
	c.use.Lock()
	defer c.use.Unlock()
	limit := c.limiter.limits.IdleConnection
	return limit > 0 && c.streams == 0 && time.Since(c.unused) >= limit
}

// slow reports whether gRPC closes the connection because its handshakes took too long.
func (c *limitedConn) slow() bool {
	limit := c.limiter.limits.HandshakeTimeout
	return limit > 0 && !c.begun.Load() && time.Since(c.since) >= limit
}

var (
	errNoHandshake = errors.New("no handshake in time")
	errNoStreams   = errors.New("there was no stream for longer than limits.idleConnection")
)

// messageStarted waits for the reservation of a large request. A compressed request reserves the largest size.
func (c *limitedConn) messageStarted(m *incoming) {
	size, largest := m.size, c.limiter.memory.largest
	if size > largest || size <= largeRequest && !m.compressed() || c.err != nil {
		return
	}
	if m.compressed() {
		size = largest
	}
	r, err := c.limiter.memory.enter(c.ctx, c.host, size, m.size, c.lose)
	if err != nil {
		if c.ctx.Err() == nil {
			c.complain(refusedRequestMemory, err)
		}
		c.err = err
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		r.release()
		return
	}
	m.room, c.coming[r] = r, struct{}{}
}

// ended notes that a request is whole, or that its stream has ended.
func (c *limitedConn) messageEnded(m *incoming) {
	r := m.room
	if r == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.coming, r)
	if m.have < messagePrefix || m.left > 0 || c.closed {
		r.release()
		return
	}
	c.whole = append(c.whole, wholeRequest{m.size, m.compressed(), r})
	r.after(stageWhole, claimPatience, func() {
		if c.remove(func(a wholeRequest) bool { return a.room == r }) == r {
			r.release()
		}
	})
}

// claim moves the reservation of a request to the stream that received it, and returns it; nil if the request is small. c may be nil.
// Requests of a connection are distinguished by their compressed size, and by whether it differs from the decompressed size. A compressed
// request of unchanged size counts as uncompressed, and the other one takes its reservation; if it is small, nobody does.
func (c *limitedConn) claim(of call, due func() bool) *reservation {
	if c == nil {
		return nil
	}
	compressed := of.wire != of.size
	if !compressed && of.size <= largeRequest {
		return nil
	}
	r := c.remove(func(a wholeRequest) bool { return a.size == of.wire && a.compressed == compressed })
	if r == nil && !compressed {
		r = c.remove(func(a wholeRequest) bool { return a.size == of.wire })
	}
	if r == nil {
		return nil
	}
	return r.hold(of.size, due, c.lose)
}

// remove removes the first complete request that matches.
func (c *limitedConn) remove(match func(wholeRequest) bool) *reservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.whole, match)
	if i < 0 {
		return nil
	}
	r := c.whole[i].room
	c.whole = slices.Delete(c.whole, i, i+1)
	return r
}

// lose closes a connection whose client keeps memory from others.
func (c *limitedConn) lose(why error) { c.end(refusedStalled, why) }

// end closes the connection because of a limit.
func (c *limitedConn) end(reason string, why error) {
	c.complain(reason, why)
	_ = c.Close()
}

// complain logs and counts why the connection is closed.
func (c *limitedConn) complain(reason string, why error) { c.limiter.complain(c.addr, reason, why) }

func (l *Limiter) complain(peer net.Addr, reason string, why error) {
	if l.logged.Allow() {
		l.log.Warn("connection closed", "peer", address.Peer(peer), "err", why)
	}
	l.refused(reason)
}

func (c *limitedConn) Close() error {
	if c.ctx.Err() == nil {
		switch {
		case c.slow():
			c.complain(refusedHandshake, errNoHandshake)
		case c.idle():
			c.complain(refusedIdle, errNoStreams)
		}
	}
	if c.aging != nil {
		c.aging.Stop()
	}
	c.cancel()
	c.limiter.conns.Delete(c.addr)
	c.mu.Lock()
	c.closed = true
	for r := range c.coming {
		r.release()
	}
	for _, a := range c.whole {
		a.room.release()
	}
	clear(c.coming)
	c.whole = nil
	c.mu.Unlock()
	return c.Conn.Close()
}
