package transport

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// addressRates bounds the rate of streams, calls and requests to services other than xDS, by IP address. As many as in
// a second may come at once: hundreds of clients behind one address reconnect together.
type addressRates struct {
	perSecond float64 // negative for no limit

	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

// manyAddresses is the number of addresses above which idle ones are forgotten.
const manyAddresses = 1000

func (a *addressRates) limiter(host string, now time.Time) *rate.Limiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if limiter := a.limiters[host]; limiter != nil {
		return limiter
	}
	if len(a.limiters) >= manyAddresses {
		for host, limiter := range a.limiters {
			if limiter.TokensAt(now) >= float64(limiter.Burst()) {
				delete(a.limiters, host)
			}
		}
	}
	if a.limiters == nil {
		a.limiters = make(map[string]*rate.Limiter)
	}
	limiter := rate.NewLimiter(rate.Limit(a.perSecond), max(int(a.perSecond), 1))
	a.limiters[host] = limiter
	return limiter
}

// awaitTurn waits until an address may open a stream. A reset does not end the wait, since it would free the place of
// the stream on its connection. gRPC reads a connection no further while all places are taken.
func (l *Limiter) awaitTurn(host string) {
	if l.rates.perSecond < 0 {
		return
	}
	now := time.Now()
	delay := l.rates.limiter(host, now).ReserveN(now, 1).DelayFrom(now)
	if delay == 0 {
		return
	}
	select {
	case <-time.After(delay):
	case <-l.closing:
	}
}
