package zookeeper

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/backend"
)

// deadlined is a connection that remembers how long the last read may take.
type deadlined struct {
	net.Conn

	timeout time.Duration // 0 for any time
}

func (d *deadlined) SetReadDeadline(t time.Time) error {
	d.timeout = 0
	if !t.IsZero() {
		d.timeout = time.Until(t)
	}
	return nil
}

// TestSession_LongerThanRequested has a server that grants a longer session than requested. Pings follow the granted
// session, so only the first answer has the short deadline of the request.
func TestSession_LongerThanRequested(t *testing.T) {
	below := &deadlined{}
	checkedConn := newCheckedConn(t.Context(), below, time.Minute, "", &session{})
	require.NoError(t, checkedConn.SetReadDeadline(time.Now().Add(time.Hour)))
	require.InDelta(t, time.Minute, below.timeout, float64(time.Second), "the first answer")
	require.NoError(t, checkedConn.SetReadDeadline(time.Time{}))
	require.NoError(t, checkedConn.SetReadDeadline(time.Now().Add(2*time.Hour)))
	require.InDelta(t, 2*time.Hour, below.timeout, float64(time.Second), "the deadline of the library for the granted session")
}

// answering is a connection on which something was answered.
type answering struct {
	net.Conn
	io.Reader
}

func (a answering) Read(p []byte) (int, error) { return a.Reader.Read(p) }

func (answering) SetReadDeadline(time.Time) error { return nil }

func (answering) Write(p []byte) (int, error) { return len(p), nil }

// TestHTTPPort_Refused has a port that speaks HTTP. Its first four bytes would be the length of an answer: 1.2 GB.
func TestHTTPPort_Refused(t *testing.T) {
	s := &session{}
	read := func(answer io.Reader) (text []byte, err error) {
		return io.ReadAll(newCheckedConn(t.Context(), answering{Reader: answer}, 0, "h:80", s))
	}
	_, err := read(iotest.OneByteReader(strings.NewReader("HTTP/1.1 400 Bad Request\r\n\r\n")))
	require.EqualError(t, err, `h:80 is not ZooKeeper: it answered "HTTP"`)
	require.Equal(t, err, s.failed)
	answer := "\x00\x00\x00\x25" + strings.Repeat("x", 0x25) + "\xff\xff\xff\xff"
	_, err = read(iotest.OneByteReader(strings.NewReader(answer)))
	require.EqualError(t, err, "h:80: answer of 4294967295 bytes (limit 67108864, maxAnswer): delete unneeded children of the node")
	answer = answer[:len(answer)-4] + "\x04\x00\x00\x00abc"
	text, err := read(iotest.OneByteReader(strings.NewReader(answer)))
	require.NoError(t, err, "64 MiB are the most")
	require.Equal(t, answer, string(text))
}

// TestHTTPPort_NamedInStatus has the library connect to one.
func TestHTTPPort_NamedInStatus(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: keep-alive\r\n\r\n")
			_ = c.Close()
		}
	}()
	a, err := ParseAddress("zookeeper://" + listener.Addr().String())
	require.NoError(t, err)
	messages := make(chan string, 1000)
	conn, err := dialer(a, nil)(t.Context(), func(c backend.Connection) { messages <- c.Message })
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(<-messages, `is not ZooKeeper: it answered "HTTP"`) }, 20*time.Second,
		time.Millisecond)
	conn.Close()
	require.NoError(t, listener.Close())
	<-accepted
}

// firstConnection has the library connect to a server that runs f with each connection, and waits for a connection
// state with the wanted message; it returns the first state.
func firstConnection(t *testing.T, config TLS, f func(net.Conn), want string) (first backend.Connection) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			f(c)
			_ = c.Close()
		}
	}()
	a, err := ParseAddress("zookeeper://" + listener.Addr().String())
	require.NoError(t, err)
	states := make(chan backend.Connection, 1000)
	conn, err := dialer(a, config)(t.Context(), func(c backend.Connection) { states <- c })
	require.NoError(t, err)
	first = <-states
	for connection := first; !strings.Contains(connection.Message, want); {
		select {
		case connection = <-states:
		case <-time.After(20 * time.Second):
			t.Fatalf("no state with %q, the last one has %q", want, connection.Message)
		}
	}
	conn.Close()
	require.NoError(t, listener.Close())
	<-accepted
	return first
}

// TestTLSMismatch_Named has servers with TLS and clients without it, and the other way round: each says no more than
// that it ends the connection.
func TestTLSMismatch_Named(t *testing.T) {
	read := func(c net.Conn) { _, _ = c.Read(make([]byte, 1024)) }
	firstConnection(t, nil, read, "ended the connection without an answer: it does not serve yet, or requires TLS")
	firstConnection(t, nil, func(c net.Conn) { read(c); _, _ = c.Write([]byte("\x15\x03\x01\x00\x02\x02\x16")) },
		"requires TLS")
	firstConnection(t, func(string) (*tls.Config, error) {
		return &tls.Config{ServerName: "a", MinVersion: tls.VersionTLS12}, nil
	}, read, ": does it have TLS?")
}

// TestConnecting_ReportsFailureFirst shows that the first reported state is the failure, not the start of the attempt.
func TestConnecting_ReportsFailureFirst(t *testing.T) {
	first := firstConnection(t, nil, func(c net.Conn) { _, _ = c.Read(make([]byte, 1024)) }, "ended the connection")
	require.Contains(t, first.Message, "ended the connection")
}

// TestAnswerOverLimit_Refused has the library connect to a server that sends one byte more than is read.
func TestAnswerOverLimit_Refused(t *testing.T) {
	greeting := "\x00\x00\x00\x24" + "\x00\x00\x00\x00" + "\x00\x00\x27\x10" + "\x00\x00\x00\x00\x00\x00\x00\x01" + "\x00\x00\x00\x10" +
		strings.Repeat("p", 16)
	firstConnection(t, nil, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 100))
		_, _ = io.WriteString(c, greeting+"\x04\x00\x00\x01")
		_, _ = io.Copy(io.Discard, c)
	}, "answer of 67108865 bytes (limit 67108864, maxAnswer)")
}

// TestStalledServer_ReportedAsAway has a server that answers a second late, and then stalls for longer: the outage is
// reported before its later answers are read.
func TestStalledServer_ReportedAsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		var states []backend.Connection
		c := newCheckedConn(t.Context(), ours, time.Minute, "h:2181", &session{tell: func(c backend.Connection) { states = append(states, c) }})
		go func() {
			request := make([]byte, len(syncRequest))
			for _, late := range []time.Duration{0, stalledAfter - askAfter - 1, 5 * time.Second} {
				_, err := io.ReadFull(theirs, request)
				assert.NoError(t, err)
				assert.Equal(t, syncRequest, string(request))
				time.Sleep(late)
				_, err = theirs.Write(answer(0xfffffffe, 0))
				assert.NoError(t, err)
			}
		}()
		require.NoError(t, c.SetReadDeadline(time.Time{})) // it was greeted
		buf := make([]byte, 100)
		for range 2 {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
			_, err := c.Read(buf)
			require.NoError(t, err)
			require.Empty(t, states)
		}
		_, err := c.Read(buf)
		require.NoError(t, err)
		require.Equal(t, []backend.Connection{{Message: "h:2181 did not answer for 2s"}, {Up: true}}, states)
	})
}

// TestHungServer_LimitsFirstAnswer has a server that accepts connections and stays silent, and a long session.
func TestHungServer_LimitsFirstAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close() //nolint:errcheck // nothing is lost
	s := &session{}
	address := Address{Timeout: time.Second, Session: time.Hour}
	conn, err := s.dial(t.Context(), "tcp", listener.Addr().String(), address, nil)
	require.NoError(t, err)
	defer conn.Close()             //nolint:errcheck // nothing is lost
	checked := conn.(*checkedConn) //nolint:errcheck // it is one
	below := &deadlined{Conn: checked.Conn}
	checked.Conn = below
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Hour)))
	require.InDelta(t, maxGreeting, below.timeout, float64(time.Second))
}

// TestHungServer_Named has a server that stops answering, before and after its first answer.
func TestHungServer_Named(t *testing.T) {
	for _, hasAnswered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			s := &session{}
			c := newCheckedConn(t.Context(), ours, time.Minute, "h:2181", s)
			c.answered = hasAnswered
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
			_, err := c.Read(make([]byte, 100))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.EqualError(t, s.failed, "h:2181 accepts connections, but does not answer")
			require.NoError(t, c.Close())
		})
	}
}
