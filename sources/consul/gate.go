package consul

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
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

	places  int64 // 0 for any number
	taken   atomic.Int64
	waiting atomic.Int64 // services that have no place

	mu    sync.Mutex
	until time.Time // Consul wants to be left alone
}

const (
	// turnBurst is how many seconds' worth of reads of services without a place may be made at once, after nothing was to be read.
	turnBurst  = 10
	shortReads = 16
	// minTurn is the least time between two reads of a service that has no place, where there are few of them.
	minTurn = 5 * time.Second
)

func newGate(s Settings, places int) *gate {
	limit := rate.Limit(s.RampRate)
	return &gate{
		ramp:  rate.NewLimiter(limit, max(1, s.RampRate/10)),
		turns: rate.NewLimiter(limit, turnBurst*s.RampRate),
		slow:  rate.NewLimiter(max(1, limit/5), 1),
		short: make(chan struct{}, shortReads), places: int64(places),
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
	for {
		n := g.taken.Load()
		if g.places > 0 && n >= g.places {
			return false
		}
		if g.taken.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (g *gate) leave() { g.taken.Add(-1) }

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
