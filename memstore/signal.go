package memstore

import "sync"

// signal wakes whoever waits. The channel is made only when somebody asks for it, so that raising a signal that nobody
// waits for costs a lock and nothing else.
type signal struct {
	mu sync.Mutex
	ch chan struct{} // guarded by mu; nil while nobody waits
}

// wait returns a channel that the next raise closes.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// raise wakes all who wait.
func (s *signal) raise() {
	s.mu.Lock()
	ch := s.ch
	s.ch = nil
	s.mu.Unlock()
	if ch != nil {
		close(ch)
	}
}
