package consul

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/time/rate"

	"tributary/internal/worker"
)

// gate limits the requests to Consul.
//
// Over plain HTTP each blocking query holds a connection, and Consul allows 200 from one address. So their number is
// limited by slots. Services without a slot are polled. HTTP/2 shares a few connections, and needs no slots.
type gate struct {
	readLimiter *rate.Limiter // first reads, confirmations, and attempts after errors
	pollLimiter *rate.Limiter // services without a slot
	slowLimiter *rate.Limiter // the full compare, and absent services
	reads       chan struct{} // reads in progress that do not block

	slots int           // 0 for any number
	full  chan struct{} // closed when a service gets no slot for the first time

	mu          sync.Mutex
	slotsTaken  int
	isFull      bool
	pausedUntil time.Time // Consul asked for a pause
}

const (
	// pollBurst is how many seconds of polls may be made at once after a quiet time.
	pollBurst          = 10
	maxConcurrentReads = 16
	// pollInterval is the least time between two polls of a service.
	pollInterval = 5 * time.Second
	// queriedPollInterval is pollInterval while the change queries run.
	queriedPollInterval = time.Second
)

func newGate(settings Settings, slots int) *gate {
	limit := rate.Limit(settings.RampRate)
	return &gate{
		readLimiter: rate.NewLimiter(limit, max(1, settings.RampRate/10)),
		pollLimiter: rate.NewLimiter(limit, pollBurst*settings.RampRate),
		slowLimiter: rate.NewLimiter(max(1, limit/5), 1),
		reads:       make(chan struct{}, maxConcurrentReads), slots: slots, full: make(chan struct{}),
	}
}

// begin waits until a read that does not block may start; finish ends the read. It fails when ctx ends.
func (g *gate) begin(ctx context.Context, limiter *rate.Limiter) (finish func(), ok bool) {
	if limiter.Wait(ctx) != nil || !g.wait(ctx) {
		return nil, false
	}
	select {
	case g.reads <- struct{}{}:
		return func() { <-g.reads }, true
	case <-ctx.Done():
		return nil, false
	}
}

// takeSlot takes a slot for a blocking query, if one is free.
func (g *gate) takeSlot() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slots > 0 && g.slotsTaken >= g.slots {
		if !g.isFull {
			g.isFull = true
			close(g.full)
		}
		return false
	}
	g.slotsTaken++
	return true
}

func (g *gate) releaseSlot() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slotsTaken--
}

// pauseAll delays all requests.
func (g *gate) pauseAll(pause time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if end := time.Now().Add(pause); end.After(g.pausedUntil) {
		g.pausedUntil = end
	}
}

// wait waits for the end of a pause.
func (g *gate) wait(ctx context.Context) bool {
	g.mu.Lock()
	end := g.pausedUntil
	g.mu.Unlock()
	return worker.Wait(ctx, nil, time.Until(end)) == nil
}

// pacer limits how often one service is read: two reads at once, and then ever fewer for one that keeps changing, down
// to one in 15 s. It is a leaky bucket: a service that changes at most once in 15 s never waits.
type pacer struct {
	last    time.Duration // the longest wait
	level   float64       // reads in the bucket
	updated time.Time     // when it had that level
}

const (
	paceBurst = 2
	paceFirst = time.Second // doubled by each further read
	paceLeak  = 15 * time.Second
	paceLast  = 15 * time.Second
	// paceNames is shorter: new services register at any time.
	paceNames = time.Second
	// paceChanges is shorter: a check that flips costs one read of one service, and is to be seen within a second.
	paceChanges = time.Second
	// paceFull is the level of the longest wait, and the highest one.
	paceFull = paceBurst + 5
)

// next returns the time until the next read, which the caller then makes.
func (p *pacer) next(now time.Time) time.Duration {
	if !p.updated.IsZero() {
		p.level = max(0, p.level-float64(now.Sub(p.updated))/float64(paceLeak))
	}
	p.level = min(p.level+1, paceFull)
	p.updated = now
	if p.level <= paceBurst {
		return 0
	}
	wait := min(paceFirst<<(int(math.Ceil(p.level))-paceBurst-1), p.last)
	p.updated = now.Add(wait) // the wait does not count as quiet
	return wait
}

// The times between attempts after errors.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 15 * time.Second // for one service
	// lastNamesRetry is shorter: this read detects for all services that Consul is back.
	lastNamesRetry = 5 * time.Second
)

func newBackOff(first, last time.Duration) backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(first), backoff.WithMultiplier(2), backoff.WithMaxInterval(last),
		backoff.WithMaxElapsedTime(0))
}
