package relay

import (
	"context"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// While everything is read for the first time there is much garbage and little else, and memory that will be needed anyway:
// to collect it seldom saves a third of the processor time (100,000 files). It ends when all sources were read by this
// process, or after a minute, since one may take for ever. A memory limit (GOMEMLIMIT) counts meanwhile, as it always does:
// the closer it is, the more often is collected.
const (
	startupGCPercent = 400
	startupLimit     = time.Minute
)

// starting counts the starts in this process that last, before the first of which garbage collection was as usual.
var starting struct {
	sync.Mutex
	count, usual int
}

// rarelyCollect makes garbage collection rare, unless GOGC says what is wanted, until the function is called that it returns.
func rarelyCollect() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	starting.Lock()
	defer starting.Unlock()
	if starting.count++; starting.count == 1 {
		starting.usual = debug.SetGCPercent(startupGCPercent)
	}
	return func() {
		starting.Lock()
		defer starting.Unlock()
		if starting.count--; starting.count == 0 {
			debug.SetGCPercent(starting.usual)
			debug.FreeOSMemory()
		}
	}
}

// endStart makes garbage collection usual again when the start is over.
func (r *Relay) endStart(ctx context.Context) error {
	defer r.started()
	ctx, cancel := context.WithTimeout(ctx, startupLimit)
	defer cancel()
	r.supervisor.AwaitRead(ctx)
	return nil
}

// awaitSync waits until everything was read once, and reports whether it was before ctx ended.
func (r *Relay) awaitSync(ctx context.Context) bool {
	for {
		changed := r.view.Changed()
		if r.view.Synced() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}
