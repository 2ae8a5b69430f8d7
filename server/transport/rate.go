package transport

import (
	"time"

	"golang.org/x/time/rate"
)

// manyAddresses is the number of addresses above which idle ones are forgotten.
const manyAddresses = 1000

// awaitTurn waits until an address may open a stream. A reset does not end the wait, since it would free the place of
// the stream on its connection. gRPC reads a connection no further while all places are taken.
func (l *Limiter) awaitTurn(host string) {
	if l.limits.StreamsPerSecond >= 0 {
		_ = l.rate(host, time.Now()).Wait(l.ctx) // an error is the end of the Limiter
	}
}

// rate returns the rate of an address. As many streams as in a second may come at once: hundreds of clients behind one
// address reconnect together.
func (l *Limiter) rate(host string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limiter := l.rates[host]; limiter != nil {
		return limiter
	}
	if len(l.rates) >= manyAddresses {
		for host, limiter := range l.rates {
			if limiter.TokensAt(now) >= float64(limiter.Burst()) {
				delete(l.rates, host)
			}
		}
	}
	perSecond := l.limits.StreamsPerSecond
	l.rates[host] = rate.NewLimiter(rate.Limit(perSecond), max(int(perSecond), 1))
	return l.rates[host]
}
