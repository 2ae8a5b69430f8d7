package metadata

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tributary/internal/worker"
)

// lanes bound how many instances are asked at the same time, so that one that says nothing holds up no other. Who has said nothing for a
// moment goes on in the slow lane, if there is room, and begins there the next time: in the quick lane an instance stands still once, and
// for that moment only.
type lanes struct {
	quick, slow chan struct{} // has as many elements as are asked in it

	mu     sync.Mutex
	silent map[string]bool // addresses that said nothing the last time
}

const (
	maxQuick = 64
	maxSlow  = 64
	// moment is how long an instance may take that is asked in the quick lane. Those that answer do so in milliseconds.
	moment = 300 * time.Millisecond
	// maxSilent is of how many addresses it is known that they said nothing. Of more than that it is found out again.
	maxSilent = 10_000
)

// errCrowded says that an instance was not asked, or no longer, as too many others say nothing.
var errCrowded = errors.New("it says nothing, as many others, which are asked in turn")

func newLanes() *lanes {
	return &lanes{quick: make(chan struct{}, maxQuick), slow: make(chan struct{}, maxSlow), silent: map[string]bool{}}
}

// ask asks an address, when it is its turn. ask has to end with its context.
func (l *lanes) ask(ctx context.Context, address string, ask func(context.Context) error) (err error) {
	if l.isSilent(address) {
		select {
		case l.slow <- struct{}{}:
		default:
			return fmt.Errorf("%s: %w", address, errCrowded)
		}
		defer func() { <-l.slow }()
		began := time.Now()
		err := ask(ctx)
		l.set(address, err != nil && time.Since(began) >= moment)
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case l.quick <- struct{}{}:
	}
	leave := sync.OnceFunc(func() { <-l.quick })
	defer leave()
	asking, ctx := worker.New(ctx)
	defer asking.Stop()
	ended := make(chan struct{})
	asking.Go(func() {
		defer close(ended)
		err = ask(ctx)
	})
	timer := time.NewTimer(moment)
	defer timer.Stop()
	select {
	case <-ended:
		return errors.Join(asking.Wait(), err)
	case <-timer.C:
	}
	select {
	case l.slow <- struct{}{}:
		defer func() { <-l.slow }()
	default:
		asking.Stop()
		l.set(address, true)
		return fmt.Errorf("%s: %w", address, errCrowded)
	}
	leave()
	<-ended
	err = errors.Join(asking.Wait(), err)
	l.set(address, err != nil)
	return err
}

// set notes whether an address said nothing.
func (l *lanes) set(address string, silent bool) {
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

func (l *lanes) isSilent(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent[address]
}
