package xds

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// arrivals spaces out the connections that come from one address. Each is work for several goroutines, so that thousands that come at once would have
// everybody wait for a processor.
type arrivals struct {
	perSecond float64 // negative for no limit

	mu    sync.Mutex
	hosts map[string]*rate.Limiter
}

// manyHosts is from how many addresses on those are forgotten that have not come lately.
const manyHosts = 1000

// burstsPerSecond makes those that may come at once a tenth of what may come in a second: 50 by default, which is little enough for nobody to notice.
const burstsPerSecond = 10

// next returns how long the next connection of a host has to wait, if that is at most so long; else it is not let in.
func (a *arrivals) next(host string, most time.Duration, now time.Time) (wait time.Duration, ok bool) {
	if a.perSecond < 0 {
		return 0, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.hosts[host]
	if l == nil {
		if len(a.hosts) >= manyHosts {
			for host, l := range a.hosts {
				if l.TokensAt(now) >= float64(l.Burst()) {
					delete(a.hosts, host)
				}
			}
		}
		if a.hosts == nil {
			a.hosts = make(map[string]*rate.Limiter)
		}
		l = rate.NewLimiter(rate.Limit(a.perSecond), max(int(a.perSecond/burstsPerSecond), 1))
		a.hosts[host] = l
	}
	r := l.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > most {
		r.CancelAt(now)
		return 0, false
	}
	return wait, true
}

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
