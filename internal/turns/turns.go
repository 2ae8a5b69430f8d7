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
	if turn := t.Queue(host); turn != nil {
		select {
		case <-turn:
		case <-ctx.Done():
			t.GiveUp(host, turn)
			return context.Cause(ctx)
		}
	}
	defer t.Leave()
	work()
	return nil
}

// Queue takes a turn for a host, which ends with Leave, or returns what is closed when it is its turn; who no longer wants it calls GiveUp.
func (t *Turns) Queue(host string) <-chan struct{} {
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

// Waiting returns how many wait for a turn.
func (t *Turns) Waiting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, all := range t.waiting {
		n += len(all)
	}
	return n
}

// GiveUp leaves the queue, or gives the turn to the next one if it has come meanwhile.
func (t *Turns) GiveUp(host string, turn <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.waiting[host], func(c chan struct{}) bool { return c == turn })
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

// Leave gives the turn to the next one.
func (t *Turns) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next()
}

// next is Leave; t.mu is held.
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
