// Package worker is the one way in which sources, and those who look after them, start goroutines: a panic in one of them
// is an error of the group, and not the end of the process.
package worker

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// Group is a number of goroutines that work for one thing and end together. Make it with New.
type Group struct {
	end context.CancelCauseFunc
	all sync.WaitGroup

	mu  sync.Mutex
	err error // the first
}

// New returns a group, and the context of its workers: it ends with ctx, or when one of them fails.
func New(ctx context.Context) (*Group, context.Context) {
	ctx, end := context.WithCancelCause(ctx)
	return &Group{end: end}, ctx
}

// Go starts a worker. If it panics, that fails the group. It may be called by workers, too.
func (g *Group) Go(work func()) {
	g.all.Go(func() {
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
	g.end(err)
}

// Wait waits until every worker has ended, and returns why the group failed; nil if it did not.
func (g *Group) Wait() error {
	g.all.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Stop ends the workers, whatever has become of who started them, and waits for them. It is meant to be deferred.
func (g *Group) Stop() {
	g.end(nil)
	g.all.Wait()
}

// Panic is the error that a panic becomes.
type Panic struct {
	Value any
	Stack []byte // where it was
}

// Error tells the value.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Do calls f. A panic in it is returned as a *Panic; one that was raised with a *Panic is that.
func Do(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if p, ok := v.(*Panic); ok {
				err = p
				return
			}
			err = &Panic{v, debug.Stack()}
		}
	}()
	return f()
}
