package consul

import (
	"context"
	"sync"
)

// interrupt ends what somebody waits for, so that he looks again.
type interrupt struct {
	mu      sync.Mutex
	pending bool
	cancel  context.CancelFunc // of the wait under way; nil between waits
}

// raise ends the wait under way, or the next one if there is none.
func (i *interrupt) raise() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending = true
	if i.cancel != nil {
		i.cancel()
	}
}

// begin returns the context of a wait, which end ends.
func (i *interrupt) begin(ctx context.Context) (wait context.Context, end func()) {
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

// take reports whether somebody raised it since it was last taken.
func (i *interrupt) take() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	was := i.pending
	i.pending = false
	return was
}
