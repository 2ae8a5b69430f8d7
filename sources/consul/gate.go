package consul

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/time/rate"

	"tributary/sources/consul/dial"
	"tributary/sources/registry"
)

// gate decides who may ask Consul, and when.
//
// Over plain HTTP each query that waits has a connection, of which Consul allows 200 to one address. So there is a number
// of places for queries that wait, and a much smaller one for those that do not; services without a place are read in turn.
// HTTP/2 has all queries on a few connections, and needs no places.
type gate struct {
	ramp  *rate.Limiter // of first reads, confirmations, and attempts after errors
	turns *rate.Limiter // of the reads of services that have no place
	slow  *rate.Limiter // of the full compare, and of what was found to be absent
	short chan struct{} // reads that do not wait

	places  int          // 0 for any number
	waiting atomic.Int64 // services that have no place

	mu    sync.Mutex
	taken int
	until time.Time // Consul wants to be left alone
}

const (
	// turnBurst is how many seconds' worth of reads of services without a place may be made at once, after nothing was to be read.
	turnBurst  = 10
	shortReads = 16
	// minTurn is the least time between two reads of a service that has no place, where there are few of them.
	minTurn = 5 * time.Second
	// minTurnNoticed is the same while the witnesses tell when there is something to read.
	minTurnNoticed = time.Second
)

func newGate(s Settings, places int) *gate {
	limit := rate.Limit(s.RampRate)
	return &gate{
		ramp:  rate.NewLimiter(limit, max(1, s.RampRate/10)),
		turns: rate.NewLimiter(limit, turnBurst*s.RampRate),
		slow:  rate.NewLimiter(max(1, limit/5), 1),
		short: make(chan struct{}, shortReads), places: places,
	}
}

// read waits for the turn of a read that does not block. done ends it. ok is false if ctx ended first.
func (g *gate) read(ctx context.Context, of *rate.Limiter) (done func(), ok bool) {
	if of.Wait(ctx) != nil || !g.calm(ctx) {
		return nil, false
	}
	select {
	case g.short <- struct{}{}:
		return func() { <-g.short }, true
	case <-ctx.Done():
		return nil, false
	}
}

// enter takes a place for reads that block, if there is one.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.places > 0 && g.taken >= g.places {
		return false
	}
	g.taken++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken--
}

// scarce reports whether somebody has no place.
func (g *gate) scarce() bool { return g.waiting.Load() > 0 }

// refrain keeps all from asking for d.
func (g *gate) refrain(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := time.Now().Add(d); until.After(g.until) {
		g.until = until
	}
}

// calm waits until Consul may be asked again.
func (g *gate) calm(ctx context.Context) bool {
	g.mu.Lock()
	until := g.until
	g.mu.Unlock()
	return sleep(ctx, time.Until(until))
}

// interrupt ends what somebody waits for, so that he looks again.
type interrupt struct {
	mu      sync.Mutex
	pending bool
	cancel  context.CancelFunc // of the wait under way; nil between waits
}

// raise ends the wait under way, or the next one if there is none.
func (i *interrupt) raise() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending = true
	if i.cancel != nil {
		i.cancel()
	}
}

// begin returns the context of a wait, which end ends.
func (i *interrupt) begin(ctx context.Context) (wait context.Context, end func()) {
	wait, cancel := context.WithCancel(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pending {
		cancel()
	}
	i.cancel = cancel
	return wait, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.cancel = nil
		cancel()
	}
}

// take reports whether somebody raised it since it was last taken.
func (i *interrupt) take() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	was := i.pending
	i.pending = false
	return was
}

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
	paceNames = time.Second
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
	if d > 0 {
		registry.Sleep(ctx, d)
	}
	return ctx.Err() == nil
}

// What a Consul lists is bounded also where its answers are short: each service is followed, and each instance is kept. What is beyond that
// is not taken, and what was read before serves on.
const (
	maxServices  = 100_000   // of one domain
	maxInstances = 1_000_000 // of all services
)

// bounds are these limits.
type bounds struct{ services, instances int }

// roomForNames returns an error if a listing has too many services.
func (r *run) roomForNames(_ context.Context, _ *part, l *listing) error {
	if n := len(l.names); n > r.bounds.services {
		return fmt.Errorf("read the names of services: there are %d, of which %d at most are followed: %w", n, r.bounds.services, dial.ErrTooMuch)
	}
	return nil
}

// roomFor returns an error if with what was read of a service there would be too many instances.
func (r *run) roomFor(_ context.Context, s *service, read *reading) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	had, has := len(s.instances.list), len(read.instances.list)
	all := has - had
	for _, p := range r.parts {
		all += p.instances
	}
	if has > had && all > r.bounds.instances {
		return fmt.Errorf("read service %s: with its %d instances there would be %d, of which %d at most are kept: %w", s.name, has, all,
			r.bounds.instances, dial.ErrTooMuch)
	}
	return nil
}

// keep has i be the instances of s. The caller holds mu of run.
func (s *service) keep(i instances) {
	s.part.instances += len(i.list) - len(s.instances.list)
	s.instances = i
}
