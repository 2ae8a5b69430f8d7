package xds

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"
)

// Credentials returns creds for a gRPC server that is given others than those of ServerOptions, such as TLS: connections go
// through the server's gate, which bounds the memory of large requests.
func (s *Server) Credentials(creds credentials.TransportCredentials) credentials.TransportCredentials {
	return gatedCredentials{creds, s}
}

type gatedCredentials struct {
	credentials.TransportCredentials
	server *Server
}

func (c gatedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := c.server.letIn(raw); err != nil {
		return nil, nil, err
	}
	inner, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) { // the credentials have logged it
			c.server.refused(refusedHandshake)
		}
		return nil, nil, err // as it is: gRPC compares it
	}
	return newConn(inner, c.server), info, nil
}

func (c gatedCredentials) Clone() credentials.TransportCredentials {
	return gatedCredentials{c.TransportCredentials.Clone(), c.server}
}

// connKey is the key of a connection in the contexts of its streams.
type connKey struct{}

// watch learns from gRPC which connection a stream is on, and how large a request was before it was decompressed.
type watch struct{ server *Server }

func (w watch) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	if c, ok := w.server.conns.Load(info.RemoteAddr); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

func (watch) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.InPayload:
		if r, ok := s.Payload.(*request); ok {
			r.wire = s.CompressedLength
		}
	case *stats.Begin:
		if c, ok := ctx.Value(connKey{}).(*conn); ok {
			c.streamBegins()
		}
	case *stats.End:
		if c, ok := ctx.Value(connKey{}).(*conn); ok {
			c.streamEnds()
		}
	}
}

func (watch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (watch) HandleConn(context.Context, stats.ConnStats)                     {}

// connOf returns the connection of a stream. Without one, nothing bounds the memory of large requests, which is said once.
func (s *Server) connOf(ctx context.Context) *conn {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		s.gateOff.Do(func() {
			s.log.Error("the memory of large requests is not bounded", "err",
				"the gRPC server was made without the ServerOptions of this xds.Server, or with other credentials: wrap them with its Credentials")
		})
	}
	return c
}

// conn is a client's connection. It reads no further while a large request on it has no room.
type conn struct {
	net.Conn
	server *Server
	addr   net.Addr // one of its own, by which gRPC's watch finds the connection
	host   string   // of addr
	ctx    context.Context
	cancel context.CancelFunc

	taken atomic.Int64 // bytes that the client has taken, or its system has for it
	sent  atomic.Int64 // bytes of messages that the client has sent

	since time.Time   // there is the connection
	aging *time.Timer // or nil
	begun atomic.Bool

	use     sync.Mutex // guards what follows
	streams int
	unused  time.Time // since when there is no stream

	// owned by the reader
	frames *frames
	held   []byte    // what was read behind the header of a stream that waits
	opens  *arriving // streams of its address; nil for no limit
	hasty  bool      // it opens more than it may
	err    error

	mu     sync.Mutex
	closed bool
	coming map[*room]struct{} // of requests that are not whole
	whole  []arrived          // in order of arrival, until their streams have them
}

// arrived is a large request that is whole.
type arrived struct {
	size       int // on the wire
	compressed bool
	room       *room
}

func newConn(inner net.Conn, s *Server) *conn {
	c := &conn{Conn: inner, server: s, addr: ownAddr(inner.RemoteAddr())}
	c.host = hostOf(c.addr)
	c.coming = make(map[*room]struct{})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.since = time.Now()
	c.unused = c.since
	if s.opens.perSecond >= 0 {
		c.opens = s.opens.of(c.host, c.since)
	}
	c.frames = newFrames(c.began, c.ended, c.mayOpen, &s.opts.Limits)
	s.conns.Store(c.addr, c)
	c.aging = c.startAging()
	return c
}

// ownAddr returns an address equal to a that no other connection has. The addresses that gRPC's channelz knows must stay of
// their types.
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

func (c *conn) RemoteAddr() net.Addr { return c.addr }

// Read implements net.Conn. A stream that has to wait for its turn, and all behind it, is not returned before that; it is never returned if
// the client hangs up meanwhile, so that no work is done for streams that nobody waits for.
func (c *conn) Read(b []byte) (int, error) {
	if c.frames.waits {
		if !c.opens.wait(c.ctx.Done(), func() bool { return !hungUp(c.Conn) }) {
			return 0, io.EOF
		}
		c.frames.waits = false
	}
	if c.hasty || c.opens != nil && c.opens.behind() {
		b = b[:min(len(b), hastyRead)]
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

// readNext reads up to the next stream that has to wait.
func (c *conn) readNext(b []byte) (n int, err error) {
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
	// hastyRead is how many bytes are read at a time while streams wait, so that a connection holds no more.
	hastyRead = 512
	// fewStreams are those that a client may open for which others of its address have to wait, without a word.
	fewStreams = 10
)

// mayOpen reports whether the client may open a stream now. If it may not, the connection is read no further until it is its turn. To end
// the connection would have the client come back, with more of them.
func (c *conn) mayOpen() bool {
	if c.opens == nil || c.opens.Allow() {
		return true
	}
	if c.hasty || c.frames.opened <= fewStreams {
		return false
	}
	c.hasty = true
	c.server.refused(refusedStreamRate)
	if c.server.logged.Allow() {
		c.server.log.Warn("connection is read slowly: its address opens more streams than limits.streamsPerSecond", "peer", peerOf(c.addr),
			"streams", c.frames.opened)
	}
	return false
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.taken.Add(int64(n))
	return n, err
}

// streamBegins counts a stream of any service. It says so when there are as many as there may be: gRPC lets no more in.
func (c *conn) streamBegins() {
	c.use.Lock()
	c.streams++
	full := c.streams == c.server.opts.Limits.StreamsPerConnection
	c.use.Unlock()
	if !full {
		return
	}
	c.server.refused(refusedPerConnection)
	if c.server.logged.Allow() {
		c.server.log.Warn("a connection has as many streams as it may: more wait, or are refused", "peer", peerOf(c.addr), "limit",
			c.server.opts.Limits.StreamsPerConnection)
	}
}

func (c *conn) streamEnds() {
	c.use.Lock()
	defer c.use.Unlock()
	if c.streams--; c.streams == 0 {
		c.unused = time.Now()
	}
}

// idle says whether there was no stream for as long as there must be one, which is why gRPC closes the connection.
func (c *conn) idle() bool {
	c.use.Lock()
	defer c.use.Unlock()
	limit := c.server.opts.Limits.IdleConnection
	return limit > 0 && c.streams == 0 && time.Since(c.unused) >= limit
}

// slow says whether the handshakes took so long that gRPC closes the connection.
func (c *conn) slow() bool {
	limit := c.server.opts.Limits.HandshakeTimeout
	return limit > 0 && !c.begun.Load() && time.Since(c.since) >= limit
}

var (
	errNoHandshake = errors.New("no handshake in time")
	errNoStreams   = errors.New("there was no stream for longer than limits.idleConnection")
)

// began waits for room for a large request. One that is compressed may become as large as any.
func (c *conn) began(m *incoming) {
	size, largest := m.size, c.server.gate.largest
	if size > largest || size <= largeRequest && !m.compressed() || c.err != nil {
		return
	}
	if m.compressed() {
		size = largest
	}
	r, err := c.server.gate.enter(c.ctx, c.host, size, m.size, c.lose)
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
		r.leave()
		return
	}
	m.room, c.coming[r] = r, struct{}{}
}

// ended notes that a request is whole, or that its stream has ended.
func (c *conn) ended(m *incoming) {
	r := m.room
	if r == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.coming, r)
	if m.have < messagePrefix || m.left > 0 || c.closed {
		r.leave()
		return
	}
	c.whole = append(c.whole, arrived{m.size, m.compressed(), r})
	r.after(stageWhole, takePatience, func() {
		if c.remove(func(a arrived) bool { return a.room == r }) == r {
			r.leave()
		}
	})
}

// take returns the room of a request that a stream was given, as far as it needs any, and leaves it to the stream. It may be
// called on nil. Requests on one connection are told apart by what gRPC says of them, which is their size on the wire, and that
// they were compressed if they have another size now. One that was compressed and kept its size is taken for one that was not,
// in whose place that one takes its room; if it is small, nobody takes its room.
func (c *conn) take(req *request, due func() bool) *room {
	if c == nil {
		return nil
	}
	compressed := req.wire != req.size
	if !compressed && req.size <= largeRequest {
		return nil
	}
	r := c.remove(func(a arrived) bool { return a.size == req.wire && a.compressed == compressed })
	if r == nil && !compressed {
		r = c.remove(func(a arrived) bool { return a.size == req.wire })
	}
	if r == nil {
		return nil
	}
	return r.hold(req.size, due, c.lose)
}

// remove takes the first request for which is says so from those that are whole.
func (c *conn) remove(is func(arrived) bool) *room {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.whole, is)
	if i < 0 {
		return nil
	}
	r := c.whole[i].room
	c.whole = slices.Delete(c.whole, i, i+1)
	return r
}

// lose closes a connection whose client keeps room from others.
func (c *conn) lose(why error) { c.end(refusedStalled, why) }

// end closes a connection because of a limit.
func (c *conn) end(reason string, why error) {
	c.complain(reason, why)
	_ = c.Close()
}

// complain says why a connection is closed.
func (c *conn) complain(reason string, why error) { c.server.complain(c.addr, reason, why) }

func (s *Server) complain(peer net.Addr, reason string, why error) {
	if s.logged.Allow() {
		s.log.Warn("connection closed", "peer", peerOf(peer), "err", why)
	}
	s.refused(reason)
}

func (c *conn) Close() error {
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
	c.server.conns.Delete(c.addr)
	c.mu.Lock()
	c.closed = true
	for r := range c.coming {
		r.leave()
	}
	for _, a := range c.whole {
		a.room.leave()
	}
	clear(c.coming)
	c.whole = nil
	c.mu.Unlock()
	return c.Conn.Close()
}
