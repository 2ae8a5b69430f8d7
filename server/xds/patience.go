package xds

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// silence ends a stream of which no request came in time. One that is on its way, and large, has more.
type silence struct {
	stream *stream
	conn   *conn // of the stream, or nil
	limit  time.Duration
	timer  *time.Timer // nil if there is no limit
	sent   int64       // bytes of messages on the connection, when the timer began
}

// leastSent is how many bytes a client sends at the least, in the time that it has for its first request, if that is not to be all the
// time that it has.
const leastSent = 4 << 10

func (s *stream) silence() *silence {
	q := &silence{stream: s, conn: s.conn, limit: s.server.opts.Limits.FirstRequestTimeout}
	if q.limit > 0 {
		q.timer = time.NewTimer(q.limit)
		q.sent = q.conn.sentSoFar()
	}
	return q
}

func (q *silence) stop() {
	if q.timer != nil {
		q.timer.Stop()
	}
}

// passed returns what tells that it is time to look.
func (q *silence) passed() <-chan time.Time {
	if q.timer == nil {
		return nil
	}
	return q.timer.C
}

// look returns why the stream is to end, or nil.
func (q *silence) look() error {
	s := q.stream
	s.mu.Lock()
	said := s.node != nil
	s.mu.Unlock()
	if said {
		return nil
	}
	if sent := q.conn.sentSoFar(); sent-q.sent >= leastSent {
		q.sent = sent
		q.timer.Reset(q.limit)
		return nil
	}
	return s.server.refuse(refusedFirstRequest, codes.ResourceExhausted, "no request for %s, which is the limit", q.limit)
}

func (c *conn) sentSoFar() int64 {
	if c == nil {
		return 0
	}
	return c.sent.Load()
}

// stuck closes the connection of a client that does not take what it is being sent. gRPC tells its stream nothing of it: it waits in
// SendMsg for as long as the connection lasts, with what is to be sent, and the collections as they were then. nil is of a stream that may
// wait.
type stuck struct {
	conn  *conn
	limit time.Duration

	mu    sync.Mutex
	since time.Time // of the message that is being sent, or of the last progress; zero while none is
	taken int64     // bytes on the connection at that time
	timer *time.Timer
	armed bool
}

// leastTaken is how many bytes a client takes at the least within the limit. Pings and their answers are fewer.
const leastTaken = 4 << 10

var errStuck = errors.New("it does not read what it is sent, for longer than limits.stuckFor")

func newStuck(c *conn, limit time.Duration) *stuck {
	if c == nil || limit < 0 {
		return nil
	}
	return &stuck{conn: c, limit: limit}
}

// sending notes that a message is being sent.
func (s *stuck) sending() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.taken = time.Now(), s.conn.taken.Load()
	if !s.armed {
		s.arm(s.limit)
	}
}

// sent notes that gRPC has taken it. The timer is left to find that out by itself: messages are many, and limits long.
func (s *stuck) sent() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

func (s *stuck) stop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
	if s.timer != nil {
		s.timer.Stop()
	}
}

// arm has judge called after d; s.mu is held.
func (s *stuck) arm(d time.Duration) {
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.judge)
		return
	}
	s.timer.Reset(d)
}

func (s *stuck) judge() {
	if s.over() {
		s.conn.end(refusedStuck, errStuck)
	}
}

// over says whether the client had its time. If it has some left, judge is called when that is over.
func (s *stuck) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if s.since.IsZero() {
		return false
	}
	if taken := s.conn.taken.Load(); taken-s.taken >= leastTaken {
		s.since, s.taken = time.Now(), taken
	}
	left := s.limit - time.Since(s.since)
	if left > 0 {
		s.arm(left)
	}
	return left <= 0
}
