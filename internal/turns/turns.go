// Package turns limits concurrent work. Addresses take turns, so that one with much work delays another by the time of
// one piece of work at most.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Turns are the turns of a limited number of workers.
type Turns struct {
	mu      sync.Mutex
	free    int
	hosts   []string                   // hosts with waiting work, in the order of their turns
	waiting map[string][]chan struct{} // by host, in order of arrival
}

// New returns turns with a limit of concurrent turns.
func New(limit int) *Turns { return &Turns{free: limit, waiting: make(map[string][]chan struct{})} }

// Do waits for a turn of a host and calls work, or returns the cause if ctx ends before.
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

// Queue takes a turn for a host and returns nil, or returns a channel that is closed when the turn comes. A turn ends
// with Leave, and the wait for one also with GiveUp.
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

// Waiting returns the number of queued turns.
func (t *Turns) Waiting() (count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, queue := range t.waiting {
		count += len(queue)
	}
	return count
}

// GiveUp leaves the queue. If the turn has already come, the next in the queue gets it.
func (t *Turns) GiveUp(host string, turn <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	position := slices.IndexFunc(t.waiting[host], func(c chan struct{}) bool { return c == turn })
	if position < 0 {
		t.next()
		return
	}
	t.waiting[host] = slices.Delete(t.waiting[host], position, position+1)
	if len(t.waiting[host]) == 0 {
		delete(t.waiting, host)
		position = slices.Index(t.hosts, host)
		t.hosts = slices.Delete(t.hosts, position, position+1)
	}
}

// Leave ends a turn.
func (t *Turns) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next()
}

// next gives a turn to the next host in the queue; t.mu is held.
func (t *Turns) next() {
	if len(t.hosts) == 0 {
		t.free++
		return
	}
	host := t.hosts[0]
	t.hosts = t.hosts[1:]
	queue := t.waiting[host]
	close(queue[0])
	if queue = queue[1:]; len(queue) == 0 {
		delete(t.waiting, host)
	} else {
		t.waiting[host], t.hosts = queue, append(t.hosts, host)
	}
}
