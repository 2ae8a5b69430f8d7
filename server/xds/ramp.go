package xds

import (
	"context"
	"runtime"
	"sync"
	"time"

	"tributary/internal/turns"
)

// ramp lets only so many streams begin at once: to be sent their first responses, which are large. When all clients come
// back together, the first ones are served while the others wait, instead of all being served at the end. Addresses take turns, so that one
// with many streams that are slow to read holds up another for one of them. A stream that has nothing to be sent needs no turn.
type ramp struct {
	turns    *turns.Turns  // as many as may begin; nil for no limit
	patience time.Duration // for a client that is slow to read, in all; then its turn is over
}

// Defaults of the ramp. Each processor is kept busy by a few streams; the rest is for those whose clients are slow.
const (
	startingPerProcessor = 16
	startingPatience     = 500 * time.Millisecond
)

func newRamp(limit int) ramp {
	if limit < 0 {
		return ramp{}
	}
	return ramp{turns: turns.New(limit), patience: startingPatience}
}

// turn is the right of a stream to begin. The nil value is one that is over, or was never needed.
type turn struct {
	late  *time.Timer // runs while the stream waits for its client
	since time.Time   // when it was started
	left  time.Duration
	over  func()
}

// take returns the turn of who has one of r.turns.
func (r *ramp) take() *turn {
	over := sync.OnceFunc(r.turns.Leave)
	return &turn{time.AfterFunc(r.patience, over), time.Now(), r.patience, over}
}

// wait says that the stream waits for its client, for which there is a limit.
func (t *turn) wait() {
	if t != nil {
		t.since = time.Now()
		t.late.Reset(t.left)
	}
}

// work says that the stream is at work, for which there is none.
func (t *turn) work() {
	if t != nil && t.late.Stop() {
		t.left -= time.Since(t.since)
	}
}

// end gives the turn to the next stream. It may be called again.
func (t *turn) end() {
	if t != nil {
		t.late.Stop()
		t.over()
	}
}

// heavyWork bounds how many processors work at once on what is large because a client made it so: thousands of names, or of versions that
// it brings along. One is always left to what everybody waits for. With all of them at work, Go looks only every ten milliseconds whether
// the network or the file system has something new, and each step of a change would wait for that.
//
// Addresses take turns. Processors are those of the whole program, and so are the turns. Nothing is waited for by who has one.
var heavyWork = turns.New(max(runtime.GOMAXPROCS(0)-1, 1))

// Work is heavy from so many names on, or bytes of a request.
const (
	heavyNames = 1000
	heavyBytes = pooledRequest
)

// heavily has work done, when it is its turn if it is heavy. It returns an error if ctx ends before that.
func heavily(ctx context.Context, host string, is bool, work func()) error {
	if !is {
		work()
		return nil
	}
	return heavyWork.Do(ctx, host, work)
}

// HeavyWork has work done when it is its turn, which is heavy because the client wants it whose stream has ctx. It returns an error if ctx
// ends before that. The work must wait for nothing, and do none of this kind itself.
func HeavyWork(ctx context.Context, work func()) error {
	return heavyWork.Do(ctx, HostOf(ctx), work)
}
