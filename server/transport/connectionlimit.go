package transport

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"tributary/internal/address"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// ConnectionLimit bounds how many connections are open at once, in all and from one address. It closes further connections at once, which
// keeps file descriptors free for the process itself. It is safe for concurrent use.
type ConnectionLimit struct {
	most, perHost int // -1 for no limit
	log           *slog.Logger
	limiter       *rate.Limiter
	refusals      *prometheus.CounterVec
	errors        prometheus.Counter
	open          atomic.Int64

	mu    sync.Mutex
	hosts map[string]int
}

// NewConnectionLimit returns a limit of most connections, and of perHost from one address; -1 is no limit.
func NewConnectionLimit(most, perHost int, log *slog.Logger, metrics prometheus.Registerer) *ConnectionLimit {
	l := &ConnectionLimit{
		most: most, perHost: perHost, log: log, limiter: rate.NewLimiter(1, 10), hosts: make(map[string]int),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tributary_connections_refused_total", Help: "Connections to the xDS server that were cut off because of a limit, by the limit.",
		}, []string{"reason"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tributary_accept_errors_total", Help: "Connections to the xDS server that could not be accepted.",
		}),
	}
	for _, reason := range []string{refusedConnections, refusedPerPeer} {
		l.refusals.WithLabelValues(reason)
	}
	if metrics != nil {
		metrics.MustRegister(l.refusals, l.errors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tributary_connections", Help: "Open connections to the xDS server.",
		}, func() float64 { return float64(l.open.Load()) }))
	}
	return l
}

const (
	refusedConnections = "connections"
	refusedPerPeer     = "connections_per_peer"
)

// Listener returns a listener that accepts the connections of lis within the limit.
func (l *ConnectionLimit) Listener(lis net.Listener) net.Listener { return &limitedListener{lis, l} }

type limitedListener struct {
	net.Listener

	limit *ConnectionLimit
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.limit.errors.Inc()
				if l.limit.limiter.Allow() {
					l.limit.log.Error("a connection could not be accepted", "listener", l.Addr().String(), "err", err)
				}
			}
			return nil, err
		}
		host := address.Host(conn.RemoteAddr())
		if reason := l.limit.enter(host); reason != "" {
			_ = conn.Close() // its error changes nothing
			l.limit.refusals.WithLabelValues(reason).Inc()
			if l.limit.limiter.Allow() {
				l.limit.log.Warn("a connection was cut off", "peer", host, "limit", reason, "open", l.limit.open.Load())
			}
			continue
		}
		return &countedConn{Conn: conn, leave: sync.OnceFunc(func() { l.limit.leave(host) })}, nil
	}
}

// enter counts a connection, or returns the limit that it would exceed.
func (l *ConnectionLimit) enter(host string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.most >= 0 && int(l.open.Load()) >= l.most:
		return refusedConnections
	case l.perHost >= 0 && l.hosts[host] >= l.perHost:
		return refusedPerPeer
	}
	l.open.Add(1)
	l.hosts[host]++
	return ""
}

func (l *ConnectionLimit) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.Add(-1)
	if l.hosts[host]--; l.hosts[host] <= 0 {
		delete(l.hosts, host)
	}
}

// countedConn ends its count when it is closed.
type countedConn struct {
	net.Conn

	leave func()
}

// NetConn returns the wrapped connection, as tls.Conn does.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
