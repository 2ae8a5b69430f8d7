package relay

import (
	"context"
	"os"
	"runtime/debug"
	"time"
)

// While everything is read for the first time there is much garbage and little else, and memory that will be needed anyway:
// to collect it seldom saves a third of the processor time (100,000 files). It ends when all is read, or after a
// minute, since a source may take for ever.
const (
	startupGCPercent = 400
	startupLimit     = time.Minute
)

// startFast makes garbage collection rare during the start, unless GOGC says what is wanted.
func (r *Relay) startFast(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	usual := debug.SetGCPercent(startupGCPercent)
	defer func() {
		debug.SetGCPercent(usual)
		debug.FreeOSMemory()
	}()
	ctx, cancel := context.WithTimeout(ctx, startupLimit)
	defer cancel()
	r.awaitSync(ctx)
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
