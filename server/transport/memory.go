package transport

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// memoryLimiter bounds the memory of large requests, over all clients: of those that are being received, and of those whose versions
// were not looked at yet. Who wants to send a large one is read no further until there is room for all of it. Requests that
// are not large need no room, so that nobody waits who sends nothing or little.
type memoryLimiter struct {
	rooms    *semaphore.Weighted
	size     int64
	largest  int           // requests beyond that are refused by their header
	patience time.Duration // for a client that has room and sends little while others wait for it
	waiting  atomic.Int64

	mu    sync.Mutex
	hosts map[string]*share // of those that have room or wait for it
}

// share is what one host may have of all room: half of it, so that others come in beside it.
type share struct {
	host    string
	rooms   *semaphore.Weighted
	waiting atomic.Int64 // for room within the share
	users   int          // guarded by memoryLimiter.mu
}

const (
	// largeRequest is the size in bytes from which on a request needs room. The first request of an Envoy, which lists all
	// of its extensions, has half of that.
	largeRequest = 64 << 10
	// roomPatience is longer than any pause in a request that is under way on a network that works, and between processes
	// that share processors with a thousand others that come back. Within it, while others wait, one of leastShares of the
	// request has to come, so that nobody waits longer for one client than waitForRoom.
	roomPatience = 5 * time.Second
	leastShares  = 3
	// takePatience is how long a request that is whole may lie before it counts as one for another service than ours.
	takePatience = 5 * time.Second
	// heldPatience is how many times the patience a stream may keep the room of a request from others if there is nothing to
	// send to it, as when its type is not synced, and dueHeldPatience if there is: its turn may have to come, or it does not read.
	heldPatience    = 3
	dueHeldPatience = 12
	// waitForRoom is how long a connection is left waiting for room. It stays below what keepalives allow.
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

// stage is where a request is that has room. It only ever goes forward.
type stage int

const (
	stageComing stage = iota // on its connection
	stageWhole               // waiting for its stream to take it
	stageHeld                // with its stream
	stageLeft                // the room is given back
)

// reservation is memory that is kept free for one request. The nil value is that of a small one.
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
	errNoRoom  = errors.New("there was no room for a large request")
	errStalled = errors.New("it stalled in the middle of a large request while others waited for room")
	errHeld    = errors.New("what a large request brought along could not be looked at while others waited for room")
)

// enter waits for room for size bytes, for a request of a host of which wire bytes are to come. Once there is, and until it is
// whole, lose is called if its client sends little while others wait.
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
	r.after(stageComing, g.patience, func() { r.judge(0, lose) })
	return r, nil
}

// acquire takes size of rooms, and is counted while it waits.
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

// wanted says whether others wait for what r has.
func (r *reservation) wanted() bool {
	return r.limiter.waiting.Load() > 0 || r.share.waiting.Load() > 0
}

// judge looks whether the client lets others wait for little, now or later: since it was last looked at, when so many bytes had
// come, as much must have come as makes the request whole before those who wait have waited too long.
func (r *reservation) judge(had int64, lose func(error)) {
	came := r.came.Load()
	if (came-had)*leastShares < r.wire && r.wanted() && r.at(stageComing) {
		lose(errStalled)
		return
	}
	r.after(stageComing, r.limiter.patience, func() { r.judge(came, lose) })
}

// at says whether the request is at stage s.
func (r *reservation) at(s stage) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stage == s
}

// after has f called after d if the request is then still at stage s, to which it comes with that, in place of what was to be
// called. It does nothing if the request is further on.
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

// stop ends what was to be called; r.mu is held.
func (r *reservation) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// progress notes that so much more of the request has come.
func (r *reservation) progress(n int) {
	if r != nil {
		r.came.Add(int64(n))
	}
}

// hold leaves the room to a stream that has the request, or what of it such a request needs: one that was compressed is as large as
// it is, now that it has been seen. It returns nil if that is no room. While others wait it is not left to the stream for good:
// lose is called, sooner if nothing is due to its client.
func (r *reservation) hold(size int, due func() bool, lose func(error)) *reservation {
	if size <= largeRequest {
		r.leave()
		return nil
	}
	if more := r.shrink(int64(size)); more > 0 {
		r.giveBack(more)
	}
	r.judgeHeld(0, due, lose)
	return r
}

func (r *reservation) shrink(size int64) (more int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stage == stageLeft {
		return 0
	}
	size = min(size, r.size)
	more, r.size = r.size-size, size
	return more
}

func (r *reservation) giveBack(size int64) {
	r.share.rooms.Release(size)
	r.limiter.rooms.Release(size)
}

// judgeHeld looks whether a stream keeps its room from others for too long, after so many times the patience, or later.
func (r *reservation) judgeHeld(times int, due func() bool, lose func(error)) {
	if times >= heldPatience && r.wanted() && (times >= dueHeldPatience || !due()) && r.at(stageHeld) {
		lose(errHeld)
		return
	}
	r.after(stageHeld, r.limiter.patience, func() { r.judgeHeld(times+1, due, lose) })
}

// leave gives the room to the next one. It may be called again, and on nil.
func (r *reservation) leave() {
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
