package dial

import (
	"context"
	"sync"
	"time"
)

// Interrupt ends the blocking query or the wait of a reader, so that it reads at once. Raise may be called at any time.
// One goroutine calls the other methods.
type Interrupt struct {
	mu      sync.Mutex
	pending bool
	cancel  context.CancelFunc // ends the current wait; nil between waits
}

// Raise ends the current wait, or else the next one.
func (i *Interrupt) Raise() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending = true
	if i.cancel != nil {
		i.cancel()
	}
}

// Begin returns the context of a wait; end ends the wait.
func (i *Interrupt) Begin(ctx context.Context) (wait context.Context, end func()) {
	wait, cancel := context.WithCancel(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pending {
		cancel()
	}
	i.cancel = cancel
	return wait, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.cancel = nil
		cancel()
	}
}

// Take reports whether it was raised since the last call.
func (i *Interrupt) Take() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	pending := i.pending
	i.pending = false
	return pending
}

// Pause waits for delay, or until Raise is called.
func (i *Interrupt) Pause(ctx context.Context, delay time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, delay)
	defer cancel()
	ctx, end := i.Begin(ctx)
	defer end()
	<-ctx.Done()
}
