package zookeeper

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"tributary/sources/dubbo/backend"
)

// Conn is a connection to ZooKeeper, which opens new sessions by itself, and has a part of the methods of a zk.Conn.
// All calls but Close wait for a session, or return an error of the connection after all servers were tried. Close
// returns when everything that it started has ended.
type Conn interface {
	Children(path string) ([]string, *zk.Stat, error)
	ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error)
	Get(path string) ([]byte, *zk.Stat, error)
	GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error)
	ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error)
	AddAuth(scheme string, auth []byte) error
	Close()
}

// Dial makes a connection, which calls state at each change. state must not block. ctx names the source; its end does
// not close the connection.
type Dial func(ctx context.Context, state func(backend.Connection)) (Conn, error)

// dialer returns the Dial of an address.
func dialer(parsed Address, config TLS) Dial {
	return func(ctx context.Context, state func(backend.Connection)) (Conn, error) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		session := &session{tell: state, servers: strings.Join(parsed.Servers, ", ")}
		conn, events, err := zk.Connect(parsed.Servers, parsed.Session,
			zk.WithHostProvider(&servers{}),
			zk.WithMaxBufferSize(maxAnswer),
			zk.WithEventCallback(session.event),
			zk.WithDialer(func(network, address string, _ time.Duration) (net.Conn, error) {
				return session.dial(ctx, network, address, parsed, config)
			}),
			zk.WithLogger(discardLogger{}), zk.WithLogInfo(false))
		if err != nil {
			cancel()
			return nil, fmt.Errorf("connect to %s: %w", session.servers, err)
		}
		return &client{conn, events, cancel}, nil
	}
}

// discardLogger drops the library's log, which the state of the connection repeats.
type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}

// session turns the library's events into the state of the connection.
type session struct {
	tell    func(backend.Connection)
	servers string

	mu         sync.Mutex
	hadSession bool // there was a session
	expired    bool // the last session has expired
	failed     error
}

func (s *session) event(event zk.Event) {
	if event.Type != zk.EventSession {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.State {
	case zk.StateHasSession:
		c := backend.Connection{Up: true, Fresh: !s.hadSession || s.expired}
		s.hadSession, s.expired, s.failed = true, false, nil
		s.tell(c)
	case zk.StateExpired:
		s.expired = true
	case zk.StateDisconnected, zk.StateConnecting, zk.StateAuthFailed:
		if event.State == zk.StateConnecting && !s.hadSession && s.failed == nil {
			return // no server was tried yet
		}
		reason := "no connection to " + s.servers
		if s.failed != nil {
			reason += ": " + s.failed.Error()
		}
		s.tell(backend.Connection{Message: reason})
	}
}

// maxDial is the timeout of connecting to one server: there are others.
const maxDial = 5 * time.Second

// maxGreeting is the longest wait for the first answer of a server. A hung server accepts connections, too.
const maxGreeting = 10 * time.Second

// dial connects to a server. The connection ends with ctx.
func (s *session) dial(ctx context.Context, network, address string, parsed Address, config TLS) (net.Conn, error) {
	begin, cancel := context.WithTimeout(ctx, min(parsed.Timeout, maxDial))
	defer cancel()
	var conn net.Conn
	var err error
	if config == nil {
		conn, err = (&net.Dialer{}).DialContext(begin, network, address)
	} else {
		conn, err = dialTLS(begin, network, address, config)
	}
	if err != nil {
		s.fail(err)
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return newCheckedConn(ctx, conn, min(parsed.Session*2/3, maxGreeting), address, s), nil
}

// stalled reports an outage that is over: the server did not answer for a time, and sessions of providers may have
// ended meanwhile.
func (s *session) stalled(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(backend.Connection{Message: address + " did not answer for " + stalledAfter.String()})
	s.tell(backend.Connection{Up: true})
}

// fail sets why there is no session.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

func dialTLS(ctx context.Context, network, address string, settings TLS) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	config, err := settings(host)
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) { // so does a server without TLS
		return nil, fmt.Errorf("TLS with %s: %w: does it have TLS?", address, err)
	}
	return conn, err
}

// checkedConn is a connection that detects a stalled server and checks all answers, see answers. For the first answer
// the library would wait ten times as long as for others, and allocate the size in its first four bytes: gigabytes,
// from a server of another kind.
type checkedConn struct {
	net.Conn

	// for the first answer; later the library's deadlines hold, as the server may have granted a longer session
	patience time.Duration
	address  string
	session  *session

	answered bool      // the library has removed the deadline of the first answer
	limit    time.Time // the library's read deadline; zero for none
	length   []byte    // the first four bytes of the first answer, as far as read
	answers  answers
}

func newCheckedConn(
	ctx context.Context, conn net.Conn, patience time.Duration, address string, s *session,
) *checkedConn {
	return &checkedConn{Conn: conn, patience: patience, address: address, session: s, answers: newAnswers(ctx)}
}

func (c *checkedConn) Close() error {
	c.answers.lease.Release()
	return c.Conn.Close()
}

// maxAnswer bounds all other answers: it has room for the names of a hundred thousand providers, at least.
const maxAnswer = 64 << 20

// maxFirst bounds the first answer, which has a few numbers and a password of 16 bytes.
const maxFirst = 1024

func (c *checkedConn) SetReadDeadline(deadline time.Time) error {
	if last := time.Now().Add(c.patience); !c.answered && deadline.After(last) {
		deadline = last
	}
	c.answered, c.limit = c.answered || deadline.IsZero(), deadline
	return c.Conn.SetReadDeadline(deadline)
}

// After askAfter without a byte we send syncRequest. If the server then stays silent until stalledAfter, it has
// stalled.
const (
	askAfter     = time.Second
	stalledAfter = 2 * time.Second
)

// syncRequest is a sync of the root node, which the leader of an ensemble answers: the leader ends sessions. It has the
// number of a ping, since the library ignores answers to pings.
const syncRequest = "\x00\x00\x00\x0d\xff\xff\xff\xfe\x00\x00\x00\x09\x00\x00\x00\x01/"

// listen reads. It reports a server that has stalled before it returns the bytes that the server sent afterwards.
func (c *checkedConn) listen(p []byte) (n int, err error) {
	begun := time.Now()
	for hasAsked := false; ; hasAsked = true {
		deadline := c.limit
		if ask := begun.Add(askAfter); c.answered && !hasAsked && (c.limit.IsZero() || ask.Before(c.limit)) {
			deadline = ask
		}
		if err := c.Conn.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		n, err = c.Conn.Read(p)
		if n > 0 && hasAsked && time.Since(begun) >= stalledAfter {
			c.session.stalled(c.address)
		}
		if isSilent := errors.Is(err, os.ErrDeadlineExceeded); n > 0 || deadline.Equal(c.limit) || !isSilent {
			if isSilent {
				c.session.fail(fmt.Errorf("%s accepts connections, but does not answer", c.address))
			}
			return n, err
		}
		if _, err := io.WriteString(c.Conn, syncRequest); err != nil {
			return 0, err
		}
	}
}

func (c *checkedConn) Read(p []byte) (n int, err error) {
	if n, err = c.listen(p); err != nil {
		c.answers.lease.Release()
	}
	if missing := 4 - len(c.length); missing > 0 {
		c.length = append(c.length, p[:min(n, missing)]...)
		if why := c.checkFirstAnswer(err); why != nil {
			c.session.fail(why)
			return 0, why
		}
	}
	if invalid := c.answers.inspect(p[:n]); invalid != nil {
		invalid = fmt.Errorf("%s: %w", c.address, invalid)
		c.session.fail(invalid)
		return 0, invalid
	}
	return n, err
}

// tlsAlert begins the answer of a server that requires TLS.
const tlsAlert = "\x15\x03"

// checkFirstAnswer returns an error for a wrong beginning of the first answer; err is that of the read.
func (c *checkedConn) checkFirstAnswer(err error) error {
	switch {
	case len(c.length) == 4 && string(c.length[:2]) == tlsAlert:
		return fmt.Errorf("%s requires TLS", c.address)
	case len(c.length) == 4 && binary.BigEndian.Uint32(c.length) > maxFirst:
		return fmt.Errorf("%s is not ZooKeeper: it answered %q", c.address, c.length)
	case len(c.length) == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("%s ended the connection without an answer: it does not serve yet, or requires TLS", c.address)
	}
	return nil
}

// Write implements net.Conn. The library writes one request at a time.
func (c *checkedConn) Write(p []byte) (n int, err error) {
	c.answers.sawRequest(p)
	return c.Conn.Write(p)
}

// servers is the zk.HostProvider that gives the library the names of the servers in turn: the library's own provider
// would resolve the names only once. The library calls it from one goroutine.
type servers struct {
	names   []string
	current int
	last    int // the last one that accepted us
}

func (s *servers) Init(names []string) error {
	s.names, s.current, s.last = names, -1, -1
	return nil
}

func (s *servers) Len() int { return len(s.names) }

func (s *servers) Next() (server string, retryStart bool) {
	s.current = (s.current + 1) % len(s.names)
	retryStart = s.current == s.last
	s.last = max(s.last, 0)
	return s.names[s.current], retryStart
}

func (s *servers) Connected() { s.last = s.current }

// client is a Conn of the library.
type client struct {
	*zk.Conn

	events     <-chan zk.Event
	cancelDial func() // also ends the connection
}

func (c *client) Close() {
	c.Conn.Close()
	c.cancelDial()
	for range c.events { // the library closes it when it has ended
	}
}
