package xds

import (
	"context"
	"runtime"
	"sync"
	"time"

	"tributary/internal/turns"
	"tributary/server/xds/wire"
)

// startLimiter bounds the number of streams that are sent their first responses, which are large, at the same time.
// When all clients reconnect together, the first ones are served early while the others wait, instead of all late.
// Addresses take turns, so that an address with many slow streams delays another by one of them. A stream without a due
// response needs no slot.
type startLimiter struct {
	turns    *turns.Turns  // the slots; nil for no limit
	readTime time.Duration // the client's time to read, in total; then the slot is free
}

// A few streams keep a processor busy; the other slots are for slow clients.
const (
	startingPerProcessor = 16
	startingReadTime     = 500 * time.Millisecond
)

func newStartLimiter(limit int) startLimiter {
	if limit < 0 {
		return startLimiter{}
	}
	return startLimiter{turns: turns.New(limit), readTime: startingReadTime}
}

// startSlot is the right of a stream to start. nil is a slot that is free again, or was never needed.
type startSlot struct {
	late      *time.Timer // runs while the stream waits for its client
	lateStart time.Time   // when late was started
	remaining time.Duration
	over      func()
}

// newSlot returns the slot for a turn of s.turns that the stream has.
func (s *startLimiter) newSlot() *startSlot {
	over := sync.OnceFunc(s.turns.Leave)
	return &startSlot{time.AfterFunc(s.readTime, over), time.Now(), s.readTime, over}
}

// wait notes that the stream waits for its client; such streams have a limit.
func (s *startSlot) wait() {
	if s != nil {
		s.lateStart = time.Now()
		s.late.Reset(s.remaining)
	}
}

// work notes that the stream works; such streams have no limit.
func (s *startSlot) work() {
	if s != nil && s.late.Stop() {
		s.remaining -= time.Since(s.lateStart)
	}
}

// end frees the slot. It may be called again.
func (s *startSlot) end() {
	if s != nil {
		s.late.Stop()
		s.over()
	}
}

// heavyWork bounds the number of processors that work on large requests at the same time: requests with thousands of
// names or resume versions. One processor is always left for other work. With all processors busy, Go polls the network
// and the file system only every ten milliseconds, and each step of a change would wait for that.
//
// Addresses take turns. The limit is that of the whole program. Heavy work must not block.
var heavyWork = turns.New(max(runtime.GOMAXPROCS(0)-1, 1))

// Work is heavy from this many names, or bytes of a request.
const (
	heavyNames = 1000
	heavyBytes = wire.PooledRequest
)

// runHeavy runs work, under the limit if it is heavy. It returns an error if ctx ends before that.
func runHeavy(ctx context.Context, host string, heavy bool, work func()) error {
	if !heavy {
		work()
		return nil
	}
	return heavyWork.Do(ctx, host, work)
}

// HeavyWork runs work caused by the client of ctx's stream, a bounded number at a time. It returns an error if ctx ends
// before that. work must not block or call HeavyWork.
func HeavyWork(ctx context.Context, work func()) error {
	return heavyWork.Do(ctx, HostOf(ctx), work)
}
