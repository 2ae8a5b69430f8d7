package transport

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// Room bounds how many connections are open at once, in all and from one host. Who comes when there is none is cut off at once,
// and goes elsewhere or comes later; and so what the process needs for itself, files and connections to registries, is left to
// it. A Room is safe for concurrent use.
type Room struct {
	most, perHost int // -1 for no limit
	log           *slog.Logger
	limiter       *rate.Limiter
	refusals      *prometheus.CounterVec
	errors        prometheus.Counter
	open          atomic.Int64

	mu    sync.Mutex
	hosts map[string]int
}

// NewRoom returns room for that many connections; -1 is no limit.
func NewRoom(most, perHost int, log *slog.Logger, metrics prometheus.Registerer) *Room {
	r := &Room{
		most: most, perHost: perHost, log: log, limiter: rate.NewLimiter(1, 10), hosts: make(map[string]int),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tributary_connections_refused_total", Help: "Connections to the xDS server that were cut off because of a limit, by the limit.",
		}, []string{"reason"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tributary_accept_errors_total", Help: "Connections to the xDS server that could not be accepted.",
		}),
	}
	for _, reason := range []string{refusedConnections, refusedPerPeer} {
		r.refusals.WithLabelValues(reason)
	}
	if metrics != nil {
		metrics.MustRegister(r.refusals, r.errors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tributary_connections", Help: "Open connections to the xDS server.",
		}, func() float64 { return float64(r.open.Load()) }))
	}
	return r
}

const (
	refusedConnections = "connections"
	refusedPerPeer     = "connections_per_peer"
)

// In returns lis with the connections that r has room for.
func (r *Room) In(lis net.Listener) net.Listener { return &roomListener{lis, r} }

type roomListener struct {
	net.Listener

	room *Room
}

// Accept implements net.Listener.
func (l *roomListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.room.errors.Inc()
				if l.room.limiter.Allow() {
					l.room.log.Error("a connection could not be accepted", "listener", l.Addr().String(), "err", err)
				}
			}
			return nil, err
		}
		host := hostOf(conn.RemoteAddr())
		if reason := l.room.enter(host); reason != "" {
			_ = conn.Close() // it is not wanted
			l.room.refusals.WithLabelValues(reason).Inc()
			if l.room.limiter.Allow() {
				l.room.log.Warn("a connection was cut off", "peer", host, "limit", reason, "open", l.room.open.Load())
			}
			continue
		}
		return &roomConn{Conn: conn, leave: sync.OnceFunc(func() { l.room.leave(host) })}, nil
	}
}

// enter returns why there is no room; empty if there is.
func (r *Room) enter(host string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.most >= 0 && int(r.open.Load()) >= r.most:
		return refusedConnections
	case r.perHost >= 0 && r.hosts[host] >= r.perHost:
		return refusedPerPeer
	}
	r.open.Add(1)
	r.hosts[host]++
	return ""
}

func (r *Room) leave(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open.Add(-1)
	if r.hosts[host]--; r.hosts[host] <= 0 {
		delete(r.hosts, host)
	}
}

// roomConn gives its room back.
type roomConn struct {
	net.Conn

	leave func()
}

// NetConn returns the connection in it, as that of tls.Conn does.
func (c *roomConn) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn.
func (c *roomConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
