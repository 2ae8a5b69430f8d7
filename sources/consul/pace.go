package consul

import (
	"context"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// pacer limits how often one service is read: two reads at once, and then ever less for one that keeps changing, down to
// one in 15 s. It is a bucket that each read fills and that leaks: a service that changes no more often than once in 15 s
// never waits.
type pacer struct {
	last  time.Duration // the longest wait
	level float64       // reads in the bucket
	at    time.Time     // when it had that level
}

const (
	paceBurst = 2
	paceFirst = time.Second // doubled by each further read
	paceLeak  = 15 * time.Second
	paceLast  = 15 * time.Second
	// paceNames is shorter: new services register at any time, and none of them is to wait for long.
	paceNames = 2 * time.Second
	// paceNotices is shorter still: a check that flips is to be seen within a second or so, and costs one read of one service.
	paceNotices = time.Second
	// paceFull is the level at which the longest wait is reached; there is nothing to count beyond.
	paceFull = paceBurst + 5
)

// next returns how long to wait until the next read, which the caller then makes.
func (p *pacer) next(now time.Time) time.Duration {
	if !p.at.IsZero() {
		p.level = max(0, p.level-float64(now.Sub(p.at))/float64(paceLeak))
	}
	p.level, p.at = min(p.level+1, paceFull), now
	if p.level <= paceBurst {
		return 0
	}
	wait := min(paceFirst<<(int(math.Ceil(p.level))-paceBurst-1), p.last)
	p.at = now.Add(wait) // the wait does not count as quiet
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
