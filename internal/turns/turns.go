// Package turns has work done of which only so much is done at once.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Turns are taken address by address, so that one that has much done holds up another for the time of one piece of work at the most.
type Turns struct {
	mu      sync.Mutex
	free    int
	hosts   []string                   // those of whom somebody waits, in the order of their turns
	waiting map[string][]chan struct{} // by host, in order of arrival
}

// New returns turns of which so many are taken at once.
func New(atOnce int) *Turns { return &Turns{free: atOnce, waiting: make(map[string][]chan struct{})} }

// Do has work done for a host when it is its turn, or returns why it is not: ctx ended meanwhile.
func (t *Turns) Do(ctx context.Context, host string, work func()) error {
	if err := t.enter(ctx, host); err != nil {
		return err
	}
	defer t.leave()
	work()
	return nil
}

func (t *Turns) enter(ctx context.Context, host string) error {
	turn := t.queue(host)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		t.giveUp(host, turn)
		return context.Cause(ctx)
	}
}

// queue takes a turn, or returns what is closed when the caller has one.
func (t *Turns) queue(host string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	turn := make(chan struct{})
	if len(t.waiting[host]) == 0 {
		t.hosts = append(t.hosts, host)
	}
	t.waiting[host] = append(t.waiting[host], turn)
	return turn
}

// giveUp leaves the queue, or gives the turn to the next one if it has come meanwhile.
func (t *Turns) giveUp(host string, turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[host], turn)
	if i < 0 {
		t.next()
		return
	}
	if t.waiting[host] = slices.Delete(t.waiting[host], i, i+1); len(t.waiting[host]) > 0 {
		return
	}
	delete(t.waiting, host)
	i = slices.Index(t.hosts, host)
	t.hosts = slices.Delete(t.hosts, i, i+1)
}

// leave gives the turn to the next one.
func (t *Turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next()
}

// next is leave; t.mu is held.
func (t *Turns) next() {
	if len(t.hosts) == 0 {
		t.free++
		return
	}
	host := t.hosts[0]
	t.hosts = t.hosts[1:]
	waiting := t.waiting[host]
	close(waiting[0])
	if waiting = waiting[1:]; len(waiting) == 0 {
		delete(t.waiting, host)
	} else {
		t.waiting[host], t.hosts = waiting, append(t.hosts, host)
	}
}
