package xds

import (
	"runtime"
	"sync"
)

// heavy bounds how many processors work at once on what is large because a client made it so: thousands of names, or of versions that it brings along. One is
// always left to what everybody waits for. With all of them at work, Go looks only every ten milliseconds whether the network or the file system has something
// new, and each step of a change would wait for that.
//
// Addresses take turns, so that one that has much done holds up another for the time of one piece of work at the most. Processors are those of the whole
// program, and so are the turns.
type heavy struct {
	mu      sync.Mutex
	free    int
	hosts   []string                   // those of whom somebody waits, in the order of their turns
	waiting map[string][]chan struct{} // by host, in order of arrival
}

// Work is heavy from so many names on, or bytes of a request.
const (
	heavyNames = 1000
	heavyBytes = pooledRequest
)

var heavyWork = newHeavy(max(runtime.GOMAXPROCS(0)-1, 1))

func newHeavy(processors int) *heavy {
	return &heavy{free: processors, waiting: make(map[string][]chan struct{})}
}

// do has work done for a host when it is its turn, if it is heavy, and else at once.
func (h *heavy) do(host string, is bool, work func()) {
	if is {
		h.enter(host)
		defer h.leave()
	}
	work()
}

func (h *heavy) enter(host string) {
	if turn := h.queue(host); turn != nil {
		<-turn
	}
}

// queue takes a processor, or returns what is closed when the caller has one.
func (h *heavy) queue(host string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.free > 0 {
		h.free--
		return nil
	}
	turn := make(chan struct{})
	if len(h.waiting[host]) == 0 {
		h.hosts = append(h.hosts, host)
	}
	h.waiting[host] = append(h.waiting[host], turn)
	return turn
}

// leave gives the processor to the next one.
func (h *heavy) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.hosts) == 0 {
		h.free++
		return
	}
	host := h.hosts[0]
	h.hosts = h.hosts[1:]
	turns := h.waiting[host]
	close(turns[0])
	if turns = turns[1:]; len(turns) == 0 {
		delete(h.waiting, host)
	} else {
		h.waiting[host], h.hosts = turns, append(h.hosts, host)
	}
}
