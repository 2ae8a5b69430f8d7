package transport

import (
	"errors"
	"log/slog"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"tributary/internal/address"
)

// ConnectionLimit bounds the number of open connections, in total and from one address. It closes further connections
// at once, which keeps file descriptors free for the process itself. It is safe for concurrent use.
type ConnectionLimit struct {
	total, perHost int // -1 for no limit
	log            *slog.Logger
	logLines       *rate.Limiter
	refusals       *prometheus.CounterVec
	errors         prometheus.Counter

	mu    sync.Mutex
	open  int
	hosts map[string]int // open connections
}

// NewConnectionLimit returns a limit of total connections, and of perHost from one address; -1 is no limit.
func NewConnectionLimit(total, perHost int, log *slog.Logger, metrics prometheus.Registerer) *ConnectionLimit {
	connectionLimit := &ConnectionLimit{
		total: total, perHost: perHost, log: log, logLines: rate.NewLimiter(1, 10), hosts: make(map[string]int),
		refusals: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "tributary_connections_refused_total",
			Help: "Connections to the xDS server that were cut off because of a limit, by the limit.",
		}, []string{"reason"}),
		errors: promauto.With(metrics).NewCounter(prometheus.CounterOpts{
			Name: "tributary_accept_errors_total",
			Help: "Connections to the xDS server that could not be accepted.",
		}),
	}
	for _, reason := range []string{refusedConnections, refusedPerPeer} {
		connectionLimit.refusals.WithLabelValues(reason)
	}
	promauto.With(metrics).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tributary_connections", Help: "Open connections to the xDS server.",
	}, func() float64 {
		connectionLimit.mu.Lock()
		defer connectionLimit.mu.Unlock()
		return float64(connectionLimit.open)
	})
	return connectionLimit
}

const (
	refusedConnections = "connections"
	refusedPerPeer     = "connections_per_peer"
)

// Listener returns a listener that accepts the connections of listener within the limit.
func (l *ConnectionLimit) Listener(listener net.Listener) net.Listener {
	return &limitedListener{listener, l}
}

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
				if l.limit.logLines.Allow() {
					l.limit.log.Error("a connection could not be accepted", "listener", l.Addr().String(), "err", err)
				}
			}
			return nil, err
		}
		host := address.Host(conn.RemoteAddr())
		reason, open := l.limit.enter(host)
		if reason == "" {
			return &countedConn{conn, sync.OnceFunc(func() { l.limit.leave(host) })}, nil
		}
		_ = conn.Close() // the error does not matter
		l.limit.refusals.WithLabelValues(reason).Inc()
		if l.limit.logLines.Allow() {
			l.limit.log.Warn("a connection was cut off", "peer", host, "limit", reason, "open", open)
		}
	}
}

// enter counts a connection, or returns the limit that it would exceed.
func (l *ConnectionLimit) enter(host string) (reason string, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case exceeded(l.open+1, l.total):
		return refusedConnections, l.open
	case exceeded(l.hosts[host]+1, l.perHost):
		return refusedPerPeer, l.open
	}
	l.open++
	l.hosts[host]++
	return "", l.open
}

func (l *ConnectionLimit) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	l.hosts[host]--
	if l.hosts[host] == 0 {
		delete(l.hosts, host)
	}
}

// countedConn ends its count when it is closed.
type countedConn struct {
	net.Conn

	leave func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
