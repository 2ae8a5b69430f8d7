package consul

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// pacer limits how often one service is read: two reads at once, then one a second, and ever less for one that changes
// all the time, down to one in 15 s. Once it has been quiet it starts afresh.
type pacer struct {
	last     time.Duration // the longest interval
	tokens   float64
	interval time.Duration
	at       time.Time // when tokens was right
}

const (
	paceBurst = 2
	paceFirst = time.Second
	paceLast  = 15 * time.Second
	// paceNames is shorter: new services register at any time, and none of them is to wait for long.
	paceNames = 2 * time.Second
)

// next returns how long to wait until the next read, which the caller then makes.
func (p *pacer) next(now time.Time) time.Duration {
	if p.at.IsZero() {
		p.tokens, p.interval, p.at = paceBurst, paceFirst, now
	}
	p.tokens = min(paceBurst, p.tokens+float64(now.Sub(p.at))/float64(p.interval))
	if p.tokens == paceBurst {
		p.interval = paceFirst
	}
	if p.at = now; p.tokens >= 1 {
		p.tokens--
		return 0
	}
	wait := time.Duration((1 - p.tokens) * float64(p.interval))
	p.tokens, p.at = 0, now.Add(wait)
	p.interval = min(2*p.interval, p.last)
	return wait
}

// The times between attempts after errors.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 15 * time.Second // of one service
	// lastNamesRetry is shorter, since it is this read that finds out that a Consul is back, for all of its services.
	lastNamesRetry = 5 * time.Second
)

func newBackOff(first, last time.Duration) backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(first), backoff.WithMultiplier(2), backoff.WithMaxInterval(last),
		backoff.WithMaxElapsedTime(0))
}

// sleep waits, and reports whether it was for as long as it should.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
