package transport

import (
	"time"

	"golang.org/x/time/rate"
)

// manyAddresses is the number of limiters above which idle ones are forgotten.
const manyAddresses = 1000

// rateLimit tells the limiters of one address apart.
type rateLimit struct {
	host         string
	otherService bool
}

// burst returns how many streams or requests may come at once. Hundreds of clients behind one address reconnect
// together, and may do it again soon. Clients of other services are few.
func (r rateLimit) burst(perSecond float64) int {
	if r.otherService {
		return max(int(perSecond/10), 1)
	}
	return max(int(2*perSecond), 1)
}

// awaitTurn waits until an address may open a stream, or send a request to a service other than xDS. A reset does not
// end the wait, since it would free the place of the stream on its connection. gRPC reads a connection no further while
// all places are taken.
func (l *Limiter) awaitTurn(host string, otherService bool) {
	if l.limits.StreamsPerSecond >= 0 {
		limiter := l.rate(rateLimit{host, otherService}, time.Now())
		_ = limiter.Wait(l.ctx) // an error is the end of the Limiter
	}
}

// rate returns the limiter of an address.
func (l *Limiter) rate(limit rateLimit, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limiter := l.rates[limit]; limiter != nil {
		return limiter
	}
	if len(l.rates) >= manyAddresses {
		for key, limiter := range l.rates {
			if limiter.TokensAt(now) >= float64(limiter.Burst()) {
				delete(l.rates, key)
			}
		}
	}
	perSecond := l.limits.StreamsPerSecond
	l.rates[limit] = rate.NewLimiter(rate.Limit(perSecond), limit.burst(perSecond))
	return l.rates[limit]
}
