package xds

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// spacing spaces out what comes from one address: connections, and streams. Each is work for several goroutines, so that thousands that come at once would have
// everybody wait for a processor.
type spacing struct {
	perSecond float64 // negative for no limit

	mu    sync.Mutex
	hosts map[string]*arriving
}

// arriving is what comes from one address.
type arriving struct {
	*rate.Limiter
	turn chan struct{} // has one element while somebody waits by wait
}

const (
	// manyHosts is from how many addresses on those are forgotten that have not come lately.
	manyHosts = 1000
	// burstsPerSecond makes those that may come at once a tenth of what may come in a second: 50 by default, which is little enough for nobody to notice.
	burstsPerSecond = 10
)

func (p *spacing) of(host string, now time.Time) *arriving {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.hosts[host]; h != nil {
		return h
	}
	if len(p.hosts) >= manyHosts {
		for host, h := range p.hosts {
			if h.TokensAt(now) >= float64(h.Burst()) {
				delete(p.hosts, host)
			}
		}
	}
	if p.hosts == nil {
		p.hosts = make(map[string]*arriving)
	}
	h := &arriving{rate.NewLimiter(rate.Limit(p.perSecond), max(int(p.perSecond/burstsPerSecond), 1)), make(chan struct{}, 1)}
	p.hosts[host] = h
	return h
}

// next returns how long the next one of a host has to wait, if that is at most so long; else it is not let in.
func (p *spacing) next(host string, most time.Duration, now time.Time) (wait time.Duration, ok bool) {
	if p.perSecond < 0 {
		return 0, true
	}
	r := p.of(host, now).ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > most {
		r.CancelAt(now)
		return 0, false
	}
	return wait, true
}

// wait waits until so many may have come, after those that began to wait before. Who gives up owes nothing.
func (a *arriving) wait(ctx context.Context, n int) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return
	}
	for ; n > 0; n -= a.Burst() {
		if a.WaitN(ctx, min(n, a.Burst())) != nil {
			return
		}
	}
}

// behind reports whether somebody waits by wait.
func (a *arriving) behind() bool { return len(a.turn) > 0 }

var errArrivals = errors.New("its address opens connections one after the other, more than limits.connectionsPerSecond")

// letIn waits until it is a connection's turn. The time for its handshakes begins then. Who would have to wait for longer than he has for them is cut off.
func (s *Server) letIn(raw net.Conn) error {
	limit := orForever(s.opts.Limits.HandshakeTimeout)
	wait, ok := s.arrivals.next(hostOf(raw.RemoteAddr()), limit, time.Now())
	if !ok {
		s.refused(refusedArrivals)
		if s.logged.Allow() {
			s.log.Warn("connection closed", "peer", peerOf(raw.RemoteAddr()), "err", errArrivals)
		}
		return errArrivals
	}
	if wait == 0 {
		return nil
	}
	select {
	case <-time.After(wait):
	case <-s.closing:
	}
	return raw.SetDeadline(time.Now().Add(min(limit, time.Hour)))
}
