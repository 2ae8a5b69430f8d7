package transport

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"tributary/internal/address"

	"golang.org/x/time/rate"
)

// spacing limits the rate of connections, or of streams, by address. Each costs work in several goroutines; thousands at once would make
// all clients wait for a processor.
type spacing struct {
	perSecond float64 // negative for no limit

	mu    sync.Mutex
	hosts map[string]*ofAddress
}

// ofAddress is the rate of one address.
type ofAddress struct {
	*rate.Limiter
	turn    chan struct{} // has an element while somebody waits
	waiting atomic.Int64  // connections
}

const (
	// manyHosts is the number of addresses above which addresses without recent connections are forgotten.
	manyHosts = 1000
	// burstsPerSecond makes the burst a tenth of the rate: 50 by default, which other clients do not notice.
	burstsPerSecond = 10
)

func (p *spacing) of(host string, now time.Time) *ofAddress {
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
		p.hosts = make(map[string]*ofAddress)
	}
	h := &ofAddress{Limiter: rate.NewLimiter(rate.Limit(p.perSecond), max(int(p.perSecond/burstsPerSecond), 1)), turn: make(chan struct{}, 1)}
	p.hosts[host] = h
	return h
}

// wait waits for a turn, in order of arrival, and reports whether it came. It returns false if done is closed first, or if wanted, which
// may be nil, returns false when the turn comes.
func (a *ofAddress) wait(done <-chan struct{}, wanted func() bool) bool {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-done:
		return false
	}
	if wanted != nil && !wanted() {
		return false
	}
	r := a.Reserve()
	select {
	case <-time.After(r.Delay()):
		return true
	case <-done:
		r.Cancel()
		return false
	}
}

// behind reports whether a connection or stream of the address waits.
func (a *ofAddress) behind() bool { return len(a.turn) > 0 }

// letIn waits for the turn of a connection, as wait does. It returns an error if that would take longer than most.
func (a *ofAddress) letIn(done <-chan struct{}, most time.Duration, wanted func() bool) (in bool, err error) {
	if !a.behind() && a.Allow() {
		return true, nil
	}
	defer a.waiting.Add(-1)
	if float64(a.waiting.Add(1)) > most.Seconds()*float64(a.Limit()) {
		return false, errArrivals
	}
	return a.wait(done, wanted), nil
}

var errArrivals = errors.New("its address opens more connections than limits.connectionsPerSecond")

// letIn waits for the first byte of a connection, and then for its turn, when the time for its handshakes begins.
func (l *Limiter) letIn(raw net.Conn) error {
	if err := awaitFirstByte(raw); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.complain(raw.RemoteAddr(), refusedHandshake, errNoHandshake)
		}
		return err
	}
	if l.arrivals.perSecond < 0 {
		return nil
	}
	limit := orForever(l.limits.HandshakeTimeout)
	in, err := l.arrivals.of(address.Host(raw.RemoteAddr()), time.Now()).letIn(l.closing, limit, func() bool { return !hungUp(raw) })
	switch {
	case err != nil:
		l.complain(raw.RemoteAddr(), refusedArrivals, err)
		return err
	case !in:
		return net.ErrClosed // the server closes, or the client has hung up
	}
	return raw.SetDeadline(time.Now().Add(min(limit, time.Hour)))
}
