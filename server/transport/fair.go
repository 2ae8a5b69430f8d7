package transport

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"tributary/internal/address"

	"golang.org/x/time/rate"
)

// FairListener bounds the connections to the admin server: in all, from one address of another machine to half of them, and from other
// machines to all but one, so that this machine always has one left. A new connection beyond a bound takes the place of an idle one, on
// which no handler of CountBusy runs, such as one that has not finished its TLS handshake. If all are busy, it takes the place of the
// one that has been busy for longest of the host that has most, if that has more than the host of the new one. All users of this machine
// share a host, which may always replace one. Otherwise the new connection is closed. It is safe for concurrent use.
type FairListener struct {
	net.Listener

	most    int
	log     *slog.Logger
	limiter *rate.Limiter // of log

	mu    sync.Mutex
	conns map[*fairConn]struct{}
	count uint64 // of the times that a connection became idle or busy
}

// fairConn is a connection of a FairListener.
type fairConn struct {
	net.Conn

	lis  *FairListener
	host string

	// guarded by lis.mu
	running int    // handlers
	since   uint64 // the count of when it became idle or busy
}

// NewFairListener returns lis with at most so many connections.
func NewFairListener(lis net.Listener, most int, log *slog.Logger) *FairListener {
	return &FairListener{Listener: lis, most: most, log: log, limiter: rate.NewLimiter(1, 10), conns: make(map[*fairConn]struct{})}
}

// Accept implements net.Listener.
func (l *FairListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &fairConn{Conn: conn, lis: l, host: localOr(conn.RemoteAddr())}
		replaced, ok := l.admit(c)
		if replaced != nil {
			_ = replaced.Conn.Close() // its requests are canceled
		}
		if ok {
			return c, nil
		}
		_ = conn.Close() // it is refused
		if l.limiter.Allow() {
			l.log.Warn("connection to the admin server refused: too many requests are under way", "peer", c.host, "limit", l.most)
		}
	}
}

// thisMachine is the host of all connections from loopback and over unix sockets.
const thisMachine = "this machine"

func localOr(addr net.Addr) string {
	host := address.Host(addr)
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() || host == "unix" {
		return thisMachine
	}
	return host
}

// admit adds a connection, and returns the one whose place it takes, if there is one.
func (l *FairListener) admit(c *fairConn) (replaced *fairConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hosts, others := make(map[string]int), 0
	for o := range l.conns {
		hosts[o.host]++
		if o.host != thisMachine {
			others++
		}
	}
	local, own := c.host == thisMachine, hosts[c.host]
	var within func(*fairConn) bool // the connections of which one has to go; nil if none has to
	switch {
	case !local && own >= l.most/2:
		within = func(o *fairConn) bool { return o.host == c.host }
	case !local && others >= l.most-1:
		within = func(o *fairConn) bool { return o.host != thisMachine }
	case len(l.conns) >= l.most:
		within = func(*fairConn) bool { return true }
	}
	if within != nil {
		for o := range l.conns {
			mayGo := o.running == 0 || local || hosts[o.host] > own
			if within(o) && mayGo && (replaced == nil || o.goesBefore(replaced, hosts)) {
				replaced = o
			}
		}
		if replaced == nil {
			return nil, false
		}
		delete(l.conns, replaced)
	}
	l.count++
	c.since = l.count
	l.conns[c] = struct{}{}
	return replaced, true
}

// goesBefore says whether c is replaced rather than o: an idle one first, then one of the host that has more, then the one that has been so
// for longer.
func (c *fairConn) goesBefore(o *fairConn, hosts map[string]int) bool {
	if busy := c.running > 0; busy != (o.running > 0) {
		return !busy
	}
	if hosts[c.host] != hosts[o.host] {
		return hosts[c.host] > hosts[o.host]
	}
	return c.since < o.since
}

// Close implements net.Conn.
func (c *fairConn) Close() error {
	c.lis.mu.Lock()
	delete(c.lis.conns, c)
	c.lis.mu.Unlock()
	return c.Conn.Close()
}

type fairKey struct{}

// ConnContext is the http.Server.ConnContext of a server behind a FairListener: CountBusy needs it.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := connectionWithin[*fairConn](conn); ok {
		ctx = context.WithValue(ctx, fairKey{}, c)
	}
	return ctx
}

// CountBusy returns a handler that runs next. The connection of a request is busy while next runs, but for Idle.
func CountBusy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Otherwise a write waits for the whole body of the request.
		_ = http.NewResponseController(w).EnableFullDuplex() // a test's writer may not support it
		run(r.Context(), 1)
		defer run(r.Context(), -1)
		next.ServeHTTP(w, r)
	})
}

// Idle runs f for the request that has ctx, which does not make its connection busy meanwhile.
func Idle(ctx context.Context, f func()) {
	run(ctx, -1)
	defer run(ctx, 1)
	f()
}

// run adds to the handlers that run on the connection of a request.
func run(ctx context.Context, n int) {
	c, ok := ctx.Value(fairKey{}).(*fairConn)
	if !ok {
		return
	}
	c.lis.mu.Lock()
	defer c.lis.mu.Unlock()
	was := c.running > 0
	if c.running += n; c.running > 0 != was {
		c.lis.count++
		c.since = c.lis.count
	}
}
