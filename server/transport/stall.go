package transport

import (
	"errors"
	"sync"
	"time"
)

// stallTimer calls late when a connection has made no progress for a limit while the timer runs. nil is a timer that never does.
//
// It ends a stream without a request in time, and closes the connection of a client that does not read what it is sent. gRPC does not tell
// the stream of that: it waits in SendMsg for as long as the connection lasts.
type stallTimer struct {
	limit time.Duration
	count func() int64 // bytes on the connection so far
	late  func()

	mu      sync.Mutex
	since   time.Time // of the start, or of the last progress; zero while the timer does not run
	counted int64     // bytes at that time
	timer   *time.Timer
	armed   bool
}

// leastProgress is how many bytes within the limit are progress. Pings and their answers are fewer.
const leastProgress = 4 << 10

var errStuck = errors.New("it does not read what it is sent, for longer than limits.stuckFor")

func newStallTimer(limit time.Duration, count func() int64, late func()) *stallTimer {
	if limit < 0 {
		return nil
	}
	return &stallTimer{limit: limit, count: count, late: late}
}

func (s *stallTimer) start() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.counted = time.Now(), s.count()
	if !s.armed {
		s.arm(s.limit)
	}
}

// pause leaves the timer of the runtime to find out by itself: messages are many, and limits long.
func (s *stallTimer) pause() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

func (s *stallTimer) stop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
	if s.armed {
		s.armed = false
		s.timer.Stop()
	}
}

// arm has the timer checked after d; s.mu is held.
func (s *stallTimer) arm(d time.Duration) {
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.check)
		return
	}
	s.timer.Reset(d)
}

func (s *stallTimer) check() {
	if s.over() {
		s.late()
	}
}

// over says whether the limit has passed without progress. If some of it is left, check is called again after that.
func (s *stallTimer) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if s.since.IsZero() {
		return false
	}
	if count := s.count(); count-s.counted >= leastProgress {
		s.since, s.counted = time.Now(), count
	}
	left := s.limit - time.Since(s.since)
	if left > 0 {
		s.arm(left)
	}
	return left <= 0
}

func (c *limitedConn) bytesAccepted() int64 { return c.accepted.Load() }

// bytesReceived returns how many bytes of messages have arrived; none if c is nil.
func (c *limitedConn) bytesReceived() int64 {
	if c == nil {
		return 0
	}
	return c.sent.Load()
}
