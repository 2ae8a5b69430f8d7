// Package worker starts the goroutines of sources. A panic in a goroutine is an error of its group, and does not end
// the process.
package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Group is a number of goroutines that end together. Make it with New.
type Group struct {
	cancel  context.CancelCauseFunc
	workers sync.WaitGroup

	mu  sync.Mutex
	err error // the first
}

// New returns a group, and the context of its workers: it ends with ctx, or when one of them fails.
func New(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{cancel: cancel}, ctx
}

// Go starts a worker. If it panics, that fails the group. It may be called by workers, too.
func (g *Group) Go(work func()) {
	g.workers.Go(func() {
		if err := Do(func() error { work(); return nil }); err != nil {
			g.Fail(err)
		}
	})
}

// Fail ends the group, with err as the cause of its context. Only the first failure counts.
func (g *Group) Fail(err error) {
	g.mu.Lock()
	if g.err == nil {
		g.err = err
	}
	g.mu.Unlock()
	g.cancel(err)
}

// Wait waits for all workers, and returns the first failure, or nil.
func (g *Group) Wait() error {
	g.workers.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Stop ends the workers and waits for them. Defer it, so that a panic of the caller ends them, too.
func (g *Group) Stop() {
	g.cancel(nil)
	g.workers.Wait()
}

// Each calls work for 0 … count-1 on a number of processors. It panics if one of the calls does.
func Each(count, processors int, work func(i int)) {
	if processors = min(processors, count); processors < 2 {
		for i := range count {
			work(i)
		}
		return
	}
	var next atomic.Int64
	group, _ := New(context.Background())
	for range processors {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	if err := group.Wait(); err != nil {
		p, _ := errors.AsType[*Panic](err) // workers fail by panics only
		panic(rethrown{p})
	}
}

// Wait waits for a duration, or until there is a wakeup, which may be nil. It returns the error of ctx.
// Without a duration it does not wait, and leaves a wakeup for the next call.
func Wait(ctx context.Context, wakeup <-chan struct{}, duration time.Duration) error {
	if duration <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wakeup:
	case <-timer.C:
	}
	return ctx.Err()
}

// Panic is the error that a panic becomes.
type Panic struct {
	Value any
	Stack []byte
}

// Error implements error.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// rethrown is the panic of a worker in the goroutine of its caller. The runtime prints it after "panic: ", and has no
// stack of the worker.
type rethrown struct{ *Panic }

func (r rethrown) Error() string { return fmt.Sprintf("%v\n\n%s", r.Value, r.Stack) }

// Do calls work, and returns a panic in it as a *Panic. The value of a panic may be a *Panic already.
func Do(work func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			switch value := value.(type) {
			case *Panic:
				err = value
			case rethrown:
				err = value.Panic
			default:
				err = &Panic{value, debug.Stack()}
			}
		}
	}()
	return work()
}
