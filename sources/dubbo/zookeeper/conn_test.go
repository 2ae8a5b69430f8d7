package zookeeper

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/registry"
)

// deadlined is a connection that remembers how long the last read may take.
type deadlined struct {
	net.Conn

	left time.Duration // 0 for any time
}

func (d *deadlined) SetReadDeadline(t time.Time) error {
	d.left = 0
	if !t.IsZero() {
		d.left = time.Until(t)
	}
	return nil
}

// TestServersMayGrantLongerSessions has a server that does not grant a session as short as the one that was asked for. It is pinged as
// often as the one that it grants needs, and has nothing to say meanwhile: only its first answer is waited for as long as ours would take.
func TestServersMayGrantLongerSessions(t *testing.T) {
	below := &deadlined{}
	c := newCheckedConn(t.Context(), below, time.Minute, "", &session{})
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	require.InDelta(t, time.Minute, below.left, float64(time.Second), "the first answer")
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Hour)))
	require.InDelta(t, 2*time.Hour, below.left, float64(time.Second), "what the library says of the session that was granted")
}

// answering is a connection on which something was answered.
type answering struct {
	net.Conn
	io.Reader
}

func (a answering) Read(p []byte) (int, error) { return a.Reader.Read(p) }

func (answering) SetReadDeadline(time.Time) error { return nil }

func (answering) Write(p []byte) (int, error) { return len(p), nil }

// TestAPortOfAnotherKindIsRefused has one that speaks HTTP, of which the first four bytes would be the length of an answer: 1.2 GB.
func TestAPortOfAnotherKindIsRefused(t *testing.T) {
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

// TestAPortOfAnotherKindIsNamed has the library connect to one.
func TestAPortOfAnotherKindIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: keep-alive\r\n\r\n")
			_ = c.Close()
		}
	}()
	a, err := ParseAddress("zookeeper://" + l.Addr().String())
	require.NoError(t, err)
	said := make(chan string, 1000)
	conn, err := dialer(a, nil)(t.Context(), func(c registry.Connection) { said <- c.Message })
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(<-said, `is not ZooKeeper: it answered "HTTP"`) }, 20*time.Second,
		time.Millisecond)
	conn.Close()
	require.NoError(t, l.Close())
	<-accepted
}

// said has the library connect to a server that does f with each connection, and waits until the state of the connection says what is
// wanted; it returns the first one.
func said(t *testing.T, config TLS, f func(net.Conn), want string) (first registry.Connection) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
			_ = c.Close()
		}
	}()
	a, err := ParseAddress("zookeeper://" + l.Addr().String())
	require.NoError(t, err)
	told := make(chan registry.Connection, 1000)
	conn, err := dialer(a, config)(t.Context(), func(c registry.Connection) { told <- c })
	require.NoError(t, err)
	first = <-told
	for c := first; !strings.Contains(c.Message, want); {
		select {
		case c = <-told:
		case <-time.After(20 * time.Second):
			t.Fatalf("waited in vain for %q, was told %q", want, c.Message)
		}
	}
	conn.Close()
	require.NoError(t, l.Close())
	<-accepted
	return first
}

// TestWhoHasTLSIsNamed has servers with TLS and clients without it, and the other way round: each says no more than that it ends the
// connection.
func TestWhoHasTLSIsNamed(t *testing.T) {
	read := func(c net.Conn) { _, _ = c.Read(make([]byte, 1024)) }
	said(t, nil, read, "ended the connection without an answer: it does not serve yet, or requires TLS")
	said(t, nil, func(c net.Conn) { read(c); _, _ = c.Write([]byte("\x15\x03\x01\x00\x02\x02\x16")) },
		"requires TLS")
	said(t, func(string) (*tls.Config, error) {
		return &tls.Config{ServerName: "a", MinVersion: tls.VersionTLS12}, nil
	}, read, ": does it have TLS?")
}

// TestConnectingIsNoFailure shows that what is told first is what has failed, and not that nothing has been tried.
func TestConnectingIsNoFailure(t *testing.T) {
	first := said(t, nil, func(c net.Conn) { _, _ = c.Read(make([]byte, 1024)) }, "ended the connection")
	require.Contains(t, first.Message, "ended the connection")
}

// TestAnAnswerHasABound has the library connect to a server that sends one byte more than is read.
func TestAnAnswerHasABound(t *testing.T) {
	greeting := "\x00\x00\x00\x24" + "\x00\x00\x00\x00" + "\x00\x00\x27\x10" + "\x00\x00\x00\x00\x00\x00\x00\x01" + "\x00\x00\x00\x10" +
		strings.Repeat("p", 16)
	said(t, nil, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 100))
		_, _ = io.WriteString(c, greeting+"\x04\x00\x00\x01")
		_, _ = io.Copy(io.Discard, c)
	}, "answer of 67108865 bytes (limit 67108864, maxAnswer)")
}

// TestAServerThatStoodStillWasAway has a server that answers a second late, and then stands still for longer: that is told before what it
// sends afterwards is read.
func TestAServerThatStoodStillWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		var told []registry.Connection
		c := newCheckedConn(t.Context(), ours, time.Minute, "h:2181", &session{tell: func(c registry.Connection) { told = append(told, c) }})
		go func() {
			asked := make([]byte, len(syncRequest))
			for _, late := range []time.Duration{0, stalledAfter - askAfter - 1, 5 * time.Second} {
				_, err := io.ReadFull(theirs, asked)
				assert.NoError(t, err)
				assert.Equal(t, syncRequest, string(asked))
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
			require.Empty(t, told)
		}
		_, err := c.Read(buf)
		require.NoError(t, err)
		require.Equal(t, []registry.Connection{{Message: "h:2181 did not answer for 2s"}, {Up: true}}, told)
	})
}
