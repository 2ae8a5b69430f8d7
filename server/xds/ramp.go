package xds

import (
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
