package transport

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// memoryLimiter bounds the memory of large requests of all clients: of requests that are being received, and of requests whose versions
// were not compared yet. A connection with a large request is not read until there is a reservation for it. Small requests need none.
type memoryLimiter struct {
	rooms    *semaphore.Weighted
	size     int64
	largest  int           // requests beyond that are refused by their header
	patience time.Duration // how long a client may send little of a request while others wait for its memory
	waiting  atomic.Int64

	mu    sync.Mutex
	hosts map[string]*share // of clients that have a reservation or wait for one
}

// share is the part of the memory that one address may reserve: half, so that others find some.
type share struct {
	host    string
	rooms   *semaphore.Weighted
	waiting atomic.Int64 // for memory within the share
	users   int          // guarded by memoryLimiter.mu
}

const (
	// largeRequest is the size in bytes above which a request needs a reservation. The first request of an Envoy, which lists all of its
	// extensions, is half as large.
	largeRequest = 64 << 10
	// roomPatience is longer than any pause within a request on a working network, also while a thousand clients return. While others
	// wait, a leastShares-th of the request must arrive within it, so that nobody waits for one client for longer than waitForRoom.
	roomPatience = 5 * time.Second
	leastShares  = 3
	// claimPatience is how long a complete request waits for its stream before it counts as a request to another service.
	claimPatience = 5 * time.Second
	// heldPatience is how many times the patience a stream may keep a reservation that others wait for if there is nothing to send to it,
	// such as while its type is not synced; dueHeldPatience if there is, since it may wait for its turn, or read slowly.
	heldPatience    = 3
	dueHeldPatience = 12
	// waitForRoom is how long a connection waits for a reservation. It is less than keepalives allow.
	waitForRoom = 20 * time.Second
)

func newMemoryLimiter(l *Limits) *memoryLimiter {
	size := int64(max(l.RequestMemory, l.RequestBytes))
	return &memoryLimiter{
		rooms: semaphore.NewWeighted(size), size: size, largest: l.RequestBytes, patience: roomPatience,
		hosts: make(map[string]*share),
	}
}

// share returns the share of a host for one more user.
func (g *memoryLimiter) share(host string) *share {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.hosts[host]
	if s == nil {
		s = &share{host: host, rooms: semaphore.NewWeighted(max(g.size/2, int64(g.largest)))}
		g.hosts[host] = s
	}
	s.users++
	return s
}

func (g *memoryLimiter) doneWith(s *share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(g.hosts, s.host)
	}
}

// stage is the state of a request with a reservation. It only advances.
type stage int

const (
	stageComing stage = iota // on its connection
	stageWhole               // waiting for its stream to take it
	stageHeld                // with its stream
	stageLeft                // the memory is free again
)

// reservation is memory that is kept free for one request. nil is the reservation of a small request.
type reservation struct {
	limiter *memoryLimiter
	share   *share
	wire    int64        // how many bytes of the request are to come
	came    atomic.Int64 // how many have

	mu    sync.Mutex
	size  int64
	stage stage
	timer *time.Timer
}

var (
	errNoRoom  = errors.New("no memory for a large request within limits.requestMemory")
	errStalled = errors.New("it stalled within a large request while others waited for memory (limits.requestMemory)")
	errHeld    = errors.New("the versions of a large request were not compared while others waited for memory (limits.requestMemory)")
)

// enter waits until it can reserve size bytes for a request of a host of which wire bytes are to come. Until the request is complete, lose
// is called if the client sends little of it while others wait.
func (g *memoryLimiter) enter(ctx context.Context, host string, size, wire int, lose func(error)) (*reservation, error) {
	r := &reservation{limiter: g, share: g.share(host), wire: int64(wire), size: min(int64(size), g.size)}
	ctx, cancel := context.WithTimeoutCause(ctx, waitForRoom, errNoRoom)
	defer cancel()
	if err := acquire(ctx, r.share.rooms, r.size, &r.share.waiting); err != nil {
		g.doneWith(r.share)
		return nil, err
	}
	if err := acquire(ctx, g.rooms, r.size, &g.waiting); err != nil {
		r.share.rooms.Release(r.size)
		g.doneWith(r.share)
		return nil, err
	}
	r.after(stageComing, g.patience, func() { r.checkProgress(0, lose) })
	return r, nil
}

// acquire takes size from rooms, and counts in waiting while it waits.
func acquire(ctx context.Context, rooms *semaphore.Weighted, size int64, waiting *atomic.Int64) error {
	if rooms.TryAcquire(size) {
		return nil
	}
	waiting.Add(1)
	defer waiting.Add(-1)
	if err := rooms.Acquire(ctx, size); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// hasWaiters reports whether others wait for the memory.
func (r *reservation) hasWaiters() bool {
	return r.limiter.waiting.Load() > 0 || r.share.waiting.Load() > 0
}

// checkProgress calls lose if others wait and too little of the request has arrived since the last check, when it had had bytes. Else it
// checks again later.
func (r *reservation) checkProgress(had int64, lose func(error)) {
	came := r.came.Load()
	if (came-had)*leastShares < r.wire && r.hasWaiters() && r.at(stageComing) {
		lose(errStalled)
		return
	}
	r.after(stageComing, r.limiter.patience, func() { r.checkProgress(came, lose) })
}

// at reports whether the request is at stage s.
func (r *reservation) at(s stage) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stage == s
}

// after moves the request to stage s and calls f after d if the request is still at s then. The former timer ends. If the request is
// beyond s, after does nothing.
func (r *reservation) after(s stage, d time.Duration, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stage > s {
		return
	}
	r.stage = s
	r.stop()
	r.timer = time.AfterFunc(d, func() {
		if r.at(s) {
			f()
		}
	})
}

// stop stops the timer; r.mu is held.
func (r *reservation) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// progress counts n more bytes of the request.
func (r *reservation) progress(n int) {
	if r != nil {
		r.came.Add(int64(n))
	}
}

// hold moves the reservation to the stream that has the request, and reduces it to the size of the decompressed request. It returns nil if
// the request is small. If others wait for too long, lose is called; sooner if nothing is due to the client.
func (r *reservation) hold(size int, due func() bool, lose func(error)) *reservation {
	if size <= largeRequest {
		r.release()
		return nil
	}
	r.mu.Lock()
	if r.stage != stageLeft {
		more := max(r.size-int64(size), 0)
		r.size -= more
		r.giveBack(more)
	}
	r.mu.Unlock()
	r.checkHeld(0, due, lose)
	return r
}

func (r *reservation) giveBack(size int64) {
	r.share.rooms.Release(size)
	r.limiter.rooms.Release(size)
}

// checkHeld calls lose if the stream has kept the reservation from others for too long. Else it checks again after the patience.
func (r *reservation) checkHeld(times int, due func() bool, lose func(error)) {
	if times >= heldPatience && r.hasWaiters() && (times >= dueHeldPatience || !due()) && r.at(stageHeld) {
		lose(errHeld)
		return
	}
	r.after(stageHeld, r.limiter.patience, func() { r.checkHeld(times+1, due, lose) })
}

// release frees the memory. It may be called again, and on nil.
func (r *reservation) release() {
	if r == nil {
		return
	}
	r.mu.Lock()
	again := r.stage == stageLeft
	r.stage = stageLeft
	r.stop()
	r.mu.Unlock()
	if !again {
		r.giveBack(r.size)
		r.limiter.doneWith(r.share)
	}
}
