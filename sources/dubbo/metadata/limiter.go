package metadata

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tributary/internal/worker"
)

// askLimiter bounds how many instances are asked at once. An ask longer than fastTimeout moves to the slow lane if that
// has room. If it then fails, or if there is no room, the next ask of the address begins in the slow lane.
type askLimiter struct {
	fast, slow chan struct{} // one element for each ask under way

	mu     sync.Mutex
	silent map[string]bool // addresses that did not answer the last time
}

const (
	maxFast = 64
	maxSlow = 64
	// fastTimeout bounds an ask in the fast lane. Instances that answer do so in milliseconds.
	fastTimeout = 300 * time.Millisecond
	// maxSilent bounds the remembered addresses. With more of them all are forgotten.
	maxSilent = 10_000
)

// errCrowded: the slow lane has no room for an instance.
var errCrowded = errors.New("no answer; too many instances do not answer, retrying later")

func newAskLimiter() *askLimiter {
	return &askLimiter{fast: make(chan struct{}, maxFast), slow: make(chan struct{}, maxSlow), silent: map[string]bool{}}
}

// ask calls ask for an address when there is room. ask must end with its context.
func (l *askLimiter) ask(ctx context.Context, address string, ask func(context.Context) error) (err error) {
	if l.isSilent(address) {
		select {
		case l.slow <- struct{}{}:
		default:
			return fmt.Errorf("%s: %w", address, errCrowded)
		}
		defer func() { <-l.slow }()
		began := time.Now()
		err := ask(ctx)
		l.set(address, err != nil && time.Since(began) >= fastTimeout)
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case l.fast <- struct{}{}:
	}
	leave := sync.OnceFunc(func() { <-l.fast })
	defer leave()
	ctx, cancelFunc := context.WithCancel(ctx)
	defer cancelFunc()
	moved := make(chan bool, 1) // to the slow lane, or there is no room
	timer := time.AfterFunc(fastTimeout, func() {
		select {
		case l.slow <- struct{}{}:
			leave()
			moved <- true
		default:
			cancelFunc()
			moved <- false
		}
	})
	err = worker.Do(func() error { return ask(ctx) })
	switch {
	case timer.Stop():
		return err
	case <-moved:
		<-l.slow
	default:
		err = fmt.Errorf("%s: %w", address, errCrowded)
	}
	l.set(address, err != nil)
	return err
}

// set remembers whether an address did not answer.
func (l *askLimiter) set(address string, silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !silent {
		delete(l.silent, address)
		return
	}
	if len(l.silent) >= maxSilent {
		clear(l.silent)
	}
	l.silent[address] = true
}

func (l *askLimiter) isSilent(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent[address]
}
