package xds

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// gate bounds the memory of large requests, over all clients: of those that are being received, and of those whose versions
// were not looked at yet. Who wants to send a large one is read no further until there is room for all of it. Requests that
// are not large need no room, so that nobody waits who sends nothing or little.
type gate struct {
	rooms    *semaphore.Weighted
	size     int64
	largest  int           // requests beyond that are refused by their header
	patience time.Duration // for a client that holds room and sends nothing while others wait for it
	waiting  atomic.Int64
}

const (
	// largeRequest is the size in bytes from which on a request needs room. The first request of an Envoy, which lists all
	// of its extensions, has half of that.
	largeRequest = 64 << 10
	// roomPatience is longer than any pause in a request that is under way on a network that works, and between processes
	// that share processors with a thousand others that come back.
	roomPatience = 5 * time.Second
	// takePatience is how long a request that is whole may lie before it counts as one for another service than ours.
	takePatience = 5 * time.Second
	// waitForRoom is how long a connection is left waiting for room. It stays below what keepalives allow.
	waitForRoom = 20 * time.Second
)

func newGate(l *Limits) *gate {
	size := int64(max(l.RequestMemory, l.RequestBytes))
	return &gate{rooms: semaphore.NewWeighted(size), size: size, largest: l.RequestBytes, patience: roomPatience}
}

// room is memory that is kept free for one request. The nil value is that of a small one.
type room struct {
	gate *gate
	size int64
	last atomic.Int64 // when something of the request came
	left atomic.Bool

	mu    sync.Mutex
	timer *time.Timer // nil once the request is with its stream
}

var errNoRoom = errors.New("there was no room for a large request")

// enter waits for room for a request. Once there is, and until it is whole, stalled is called if its client sends nothing
// while others wait.
func (g *gate) enter(ctx context.Context, size int, stalled func()) (*room, error) {
	r := &room{gate: g, size: min(int64(size), g.size)}
	if !g.rooms.TryAcquire(r.size) {
		g.waiting.Add(1)
		ctx, cancel := context.WithTimeoutCause(ctx, waitForRoom, errNoRoom)
		err := g.rooms.Acquire(ctx, r.size)
		cause := context.Cause(ctx)
		cancel()
		g.waiting.Add(-1)
		if err != nil {
			return nil, cause
		}
	}
	r.progress()
	r.after(g.patience, func() { r.judge(stalled) })
	return r, nil
}

// judge looks whether the client lets others wait for nothing, now or later.
func (r *room) judge(stalled func()) {
	patience := r.gate.patience
	quiet := time.Since(time.Unix(0, r.last.Load()))
	if quiet >= patience && r.gate.waiting.Load() > 0 {
		stalled()
		return
	}
	r.after(max(patience-quiet, patience/10), func() { r.judge(stalled) })
}

// after has f called after d, in place of what was to be called.
func (r *room) after(d time.Duration, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	if !r.left.Load() {
		r.timer = time.AfterFunc(d, f)
	}
}

// progress notes that something of the request has come.
func (r *room) progress() {
	if r != nil {
		r.last.Store(time.Now().UnixNano())
	}
}

// keep says that the request is with its stream: there is nothing more to wait for.
func (r *room) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
}

// leave gives the room to the next one. It may be called again, and on nil.
func (r *room) leave() {
	if r != nil && !r.left.Swap(true) {
		r.keep()
		r.gate.rooms.Release(r.size)
	}
}
