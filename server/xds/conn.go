package xds

import (
	"context"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc/credentials"
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
	inner, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err // as it is: gRPC compares it
	}
	return newConn(inner, c.server), info, nil
}

func (c gatedCredentials) Clone() credentials.TransportCredentials {
	return gatedCredentials{c.TransportCredentials.Clone(), c.server}
}

// conn is a client's connection. It reads no further while a large request on it has no room.
type conn struct {
	net.Conn
	server *Server
	addr   net.Addr // one of its own, by which streams find the connection
	ctx    context.Context
	cancel context.CancelFunc

	// owned by the reader
	frames *frames
	err    error

	mu     sync.Mutex
	closed bool
	coming map[*room]struct{} // of requests that are not whole
	whole  []arrived          // in order of arrival, until their streams have them
}

// arrived is a large request that is whole.
type arrived struct {
	size       int
	compressed bool
	room       *room
}

func newConn(inner net.Conn, s *Server) *conn {
	c := &conn{Conn: inner, server: s, addr: ownAddr(inner.RemoteAddr())}
	c.coming = make(map[*room]struct{})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.frames = newFrames(c.began, c.ended)
	s.conns.Store(c.addr, c)
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

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.frames.read(b[:n])
	if c.err == nil && len(c.frames.messages) > maxUnfinished {
		c.err = net.ErrClosed
	}
	if c.err != nil {
		return 0, c.err
	}
	return n, err
}

// began waits for room for a large request. One that is compressed may become as large as any.
func (c *conn) began(m *incoming) {
	size, largest := m.size, c.server.gate.largest
	if size > largest || size <= largeRequest && !m.compressed() || c.err != nil {
		return
	}
	if m.compressed() {
		size = largest
	}
	r, err := c.server.gate.enter(c.ctx, size, c.stalled)
	if err != nil {
		if c.ctx.Err() == nil {
			c.server.log.Warn("connection closed", "peer", c.addr.String(), "err", err)
			c.server.refused(refusedRequestMemory)
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
	r.after(takePatience, func() {
		c.remove(func(a arrived) bool { return a.room == r })
		r.leave()
	})
}

// take returns the room of a request that a stream was given, and leaves it to the stream. It may be called on nil.
func (c *conn) take(size int) *room {
	if c == nil {
		return nil
	}
	r := c.remove(func(a arrived) bool { return a.size == size && !a.compressed })
	if r == nil {
		r = c.remove(func(a arrived) bool { return a.compressed })
	}
	if r != nil {
		r.keep()
	}
	return r
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

// stalled closes a connection whose client has room, sends nothing, and lets others wait.
func (c *conn) stalled() {
	c.server.log.Warn("connection closed", "peer", c.addr.String(), "err", "it stalled in the middle of a large request")
	c.server.refused(refusedStalled)
	_ = c.Close()
}

func (c *conn) Close() error {
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
