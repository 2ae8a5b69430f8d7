package xds

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// ramp lets only so many streams begin at once: to be read the first request, which may be large, and to be sent the first
// responses, which are. When all clients come back together, the first ones are served while the others wait in the
// transport, instead of all being served at the end.
type ramp struct {
	turns chan struct{} // has room for as many as may begin; nil for no limit
	hold  time.Duration // after which a turn ends at the latest: a client may be slow, or never ask
}

// Defaults of the ramp. Each processor is kept busy by a few streams; the rest is for those that are slow to ask or to read.
const (
	startingPerProcessor = 16
	startingHold         = 200 * time.Millisecond
)

func newRamp(limit int) ramp {
	if limit == 0 {
		limit = startingPerProcessor * runtime.GOMAXPROCS(0)
	}
	if limit < 0 {
		return ramp{}
	}
	return ramp{turns: make(chan struct{}, limit), hold: startingHold}
}

// begin waits for a turn, first come, first served, and reports whether there was one before ctx or quit ended. The function
// that ends the turn may be called any number of times.
func (r *ramp) begin(ctx context.Context, quit <-chan struct{}) (end func(), ok bool) {
	if r.turns == nil {
		return func() {}, true
	}
	select {
	case r.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	case <-quit:
		return nil, false
	}
	back := sync.OnceFunc(func() { <-r.turns })
	late := time.AfterFunc(r.hold, back)
	return func() {
		late.Stop()
		back()
	}, true
}
