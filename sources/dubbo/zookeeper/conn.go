// Package zookeeper reads what Dubbo's providers register in ZooKeeper.
//
// conn.go is the connection, answers.go what is made sure of before the library reads an answer, address.go where it goes, loop.go how one
// node is followed, budget.go how much is kept, and zookeeper.go what is read of which nodes.
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

	"tributary/sources/dubbo/registry"
)

// Conn is a connection to ZooKeeper, which goes on by itself from one session to the next. All calls but Close wait until there is a
// session, or end with an error of the connection after all servers were tried.
type Conn interface {
	// Children and Data read a node, and ChildrenW and DataW also set a watch, which fires once. The error of a node that is not there is
	// zk.ErrNoNode.
	Children(path string) ([]string, error)
	ChildrenW(path string) ([]string, <-chan zk.Event, error)
	Data(path string) ([]byte, error)
	DataW(path string) ([]byte, <-chan zk.Event, error)
	// ExistsW sets a watch for the creation of a node, or its deletion if it exists.
	ExistsW(path string) (bool, <-chan zk.Event, error)
	// AddAuth makes the connection known as somebody, in this session and later ones.
	AddAuth(scheme, auth string) error
	// Close ends the connection, and returns when everything that it started has ended.
	Close()
}

// Dial makes a connection, of which state is told whenever it changes. state must not block.
type Dial func(state func(registry.Connection)) (Conn, error)

// dialer returns the Dial of an address.
func dialer(a Address, config TLS) Dial {
	return func(state func(registry.Connection)) (Conn, error) {
		ctx, cancel := context.WithCancel(context.Background())
		s := &session{tell: state, servers: strings.Join(a.Servers, ", ")}
		conn, events, err := zk.Connect(a.Servers, a.Session,
			zk.WithHostProvider(&servers{}),
			zk.WithMaxBufferSize(maxAnswer),
			zk.WithEventCallback(s.event),
			zk.WithDialer(func(network, address string, _ time.Duration) (net.Conn, error) {
				return s.dial(ctx, network, address, a, config)
			}),
			zk.WithLogger(silence{}), zk.WithLogInfo(false))
		if err != nil {
			cancel()
			return nil, fmt.Errorf("connect to %s: %w", s.servers, err)
		}
		return &client{conn: conn, events: events, root: a.Root, hangUp: cancel}, nil
	}
}

// silence takes the library's log: what it says is reported as the state of the connection.
type silence struct{}

func (silence) Printf(string, ...any) {}

// session makes the library's events the state of the connection.
type session struct {
	tell    func(registry.Connection)
	servers string

	mu      sync.Mutex
	had     bool // a session, at some time
	expired bool // and it has ended
	failed  error
}

func (s *session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.State {
	case zk.StateHasSession:
		c := registry.Connection{Up: true, Fresh: !s.had || s.expired}
		s.had, s.expired, s.failed = true, false, nil
		s.tell(c)
	case zk.StateExpired:
		s.expired = true
	case zk.StateDisconnected, zk.StateConnecting, zk.StateAuthFailed:
		if e.State == zk.StateConnecting && !s.had && s.failed == nil {
			return // nothing was tried yet
		}
		why := "no connection to " + s.servers
		if s.failed != nil {
			why += ": " + s.failed.Error()
		}
		s.tell(registry.Connection{Message: why})
	}
}

// maxDial is how long one server is waited for: there are others.
const maxDial = 5 * time.Second

// dial makes a connection, which ends with ctx.
func (s *session) dial(ctx context.Context, network, address string, a Address, config TLS) (net.Conn, error) {
	begin, cancel := context.WithTimeout(ctx, min(a.Timeout, maxDial))
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
	return watched(conn, a.Session*2/3, address, s), nil
}

// stalled tells that the server stood still, and answers again: sessions of providers may have ended only because of that.
func (s *session) stalled(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(registry.Connection{Message: address + " did not answer for " + stalledAfter.String()})
	s.tell(registry.Connection{Up: true})
}

// fail notes why there is no session.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

func dialTLS(ctx context.Context, network, address string, of TLS) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	config, err := of(host)
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) { // as a server does that cannot make sense of it
		return nil, fmt.Errorf("TLS with %s: %w: does it have TLS?", address, err)
	}
	return conn, err
}

// first is a connection that notices a server that stood still, and looks at the first answer, which the library takes as it comes: it
// would wait ten times as long for it as for others from a server that takes the connection and says nothing, and take memory for as much
// as the first four bytes say, which of a server of another kind may be gigabytes.
type first struct {
	net.Conn

	// with the answer. Of later ones the library knows better: the server may have granted a longer session than was asked for
	patience time.Duration
	address  string
	session  *session

	answered bool      // the library has taken back the limit of the first answer
	limit    time.Time // of the library, for a read; zero for none
	length   []byte    // of the answer, as far as it was read
	answers  answers
}

func watched(conn net.Conn, patience time.Duration, address string, s *session) *first {
	return &first{Conn: conn, patience: patience, address: address, session: s, answers: answers{names: map[uint32]bool{}}}
}

// maxAnswer is how long any other answer may be: the names of a hundred thousand providers, at least.
const maxAnswer = 64 << 20

// maxFirst is how long the first answer may be. It is of a few numbers and a password of 16 bytes.
const maxFirst = 1024

// SetReadDeadline implements net.Conn.
func (c *first) SetReadDeadline(t time.Time) error {
	if last := time.Now().Add(c.patience); !c.answered && t.After(last) {
		t = last
	}
	c.answered, c.limit = c.answered || t.IsZero(), t
	return c.Conn.SetReadDeadline(t)
}

// A server that sends nothing for askAfter is asked to. If it then sends nothing until stalledAfter, it stood still.
const (
	askAfter     = time.Second
	stalledAfter = 2 * time.Second
)

// question is a sync of the root node, which the leader of an ensemble answers: it is the leader that ends sessions. It has the number of a
// ping, whose answer the library ignores.
const question = "\x00\x00\x00\x0d\xff\xff\xff\xfe\x00\x00\x00\x09\x00\x00\x00\x01/"

// listen reads, and tells of a server that stood still before anything is returned that it sends afterwards.
func (c *first) listen(p []byte) (n int, err error) {
	begun := time.Now()
	for asked := false; ; asked = true {
		deadline := c.limit
		if ask := begun.Add(askAfter); c.answered && !asked && (c.limit.IsZero() || ask.Before(c.limit)) {
			deadline = ask
		}
		if err := c.Conn.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		n, err = c.Conn.Read(p)
		if n > 0 && asked && time.Since(begun) >= stalledAfter {
			c.session.stalled(c.address)
		}
		if n > 0 || deadline.Equal(c.limit) || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if _, err := io.WriteString(c.Conn, question); err != nil {
			return 0, err
		}
	}
}

// Read implements net.Conn.
func (c *first) Read(p []byte) (n int, err error) {
	n, err = c.listen(p)
	if missing := 4 - len(c.length); missing > 0 {
		c.length = append(c.length, p[:min(n, missing)]...)
		if why := c.odd(err); why != nil {
			c.session.fail(why)
			return 0, why
		}
	}
	if bad := c.answers.come(p[:n]); bad != nil {
		bad = fmt.Errorf("%s: %w", c.address, bad)
		c.session.fail(bad)
		return 0, bad
	}
	return n, err
}

// alert is what begins an answer of a server that wants TLS.
const alert = "\x15\x03"

// odd says what is the matter with the first answer, of which the beginning is there, or err instead.
func (c *first) odd(err error) error {
	switch {
	case len(c.length) == 4 && string(c.length[:2]) == alert:
		return fmt.Errorf("%s is no ZooKeeper without TLS: it answers with TLS", c.address)
	case len(c.length) == 4 && binary.BigEndian.Uint32(c.length) > maxFirst:
		return fmt.Errorf("%s is no ZooKeeper: it answers with %q", c.address, c.length)
	case len(c.length) == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("%s ended the connection without an answer: it does not serve yet, or wants TLS", c.address)
	}
	return nil
}

// Write implements net.Conn. The library writes one request at a time.
func (c *first) Write(p []byte) (n int, err error) {
	c.answers.asked(p)
	return c.Conn.Write(p)
}

// servers gives the library the servers in turn, by name: the library's own way looks names up once, and servers move.
type servers struct {
	mu      sync.Mutex
	names   []string
	current int
	last    int // that took us
}

// Init implements zk.HostProvider.
func (s *servers) Init(names []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names, s.current, s.last = names, -1, -1
	return nil
}

// Len implements zk.HostProvider.
func (s *servers) Len() int { return len(s.names) }

// Next implements zk.HostProvider.
func (s *servers) Next() (server string, retryStart bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = (s.current + 1) % len(s.names)
	retryStart = s.current == s.last
	if s.last == -1 {
		s.last = 0
	}
	return s.names[s.current], retryStart
}

// Connected implements zk.HostProvider.
func (s *servers) Connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = s.current
}

// client is a Conn of the library.
type client struct {
	conn   *zk.Conn
	events <-chan zk.Event
	root   string // before all paths
	hangUp func() // ends the connection, and the making of one
}

func (c *client) Children(path string) ([]string, error) {
	names, _, err := c.conn.Children(c.root + path)
	return names, err
}

func (c *client) ChildrenW(path string) ([]string, <-chan zk.Event, error) {
	names, _, watch, err := c.conn.ChildrenW(c.root + path)
	return names, watch, err
}

func (c *client) Data(path string) ([]byte, error) {
	data, _, err := c.conn.Get(c.root + path)
	return data, err
}

func (c *client) DataW(path string) ([]byte, <-chan zk.Event, error) {
	data, _, watch, err := c.conn.GetW(c.root + path)
	return data, watch, err
}

func (c *client) ExistsW(path string) (bool, <-chan zk.Event, error) {
	there, _, watch, err := c.conn.ExistsW(c.root + path)
	return there, watch, err
}

func (c *client) AddAuth(scheme, auth string) error { return c.conn.AddAuth(scheme, []byte(auth)) }

func (c *client) Close() {
	c.conn.Close()
	c.hangUp()
	for range c.events { // the library closes it when it has ended
	}
}
