package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// fromHosts is a listener; its connections come from the hosts of from, one after the other.
type fromHosts struct {
	net.Listener

	from chan string
}

func (f fromHosts) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return fromHost{conn, &net.TCPAddr{IP: net.ParseIP(<-f.from), Port: 1}}, nil
}

type fromHost struct {
	net.Conn

	addr net.Addr
}

func (f fromHost) RemoteAddr() net.Addr { return f.addr }

// fairServer is an HTTP server behind a FairListener.
type fairServer struct {
	t      *testing.T
	from   chan string
	addr   string
	secure *tls.Config // of clients; nil for plaintext
	hold   chan struct{}
	begun  chan struct{}
}

func newFairServer(t *testing.T, limit int, secure bool) *fairServer {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fairServer{
		t: t, from: make(chan string, 1), addr: lis.Addr().String(), hold: make(chan struct{}), begun: make(chan struct{}),
	}
	var listener net.Listener = NewFairListener(fromHosts{lis, s.from}, limit)
	if secure {
		listener = tls.NewListener(listener,
			&tls.Config{Certificates: []tls.Certificate{testutil.NewAuthority(t).Loopback(time.Now().Add(time.Hour)).TLS()}})
		s.secure = &tls.Config{InsecureSkipVerify: true}
	}
	handler := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			s.begun <- struct{}{}
			<-s.hold
		}
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(handler)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		close(s.hold)
		_ = server.Close()
		serving.Wait()
	})
	return s
}

// dial connects from a host and sends no bytes.
func (s *fairServer) dial(host string) net.Conn {
	s.from <- host
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", s.addr)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a request from a host, and returns its connection; nil if the server closed it.
func (s *fairServer) ask(host, path string) net.Conn {
	conn := s.dial(host)
	if s.secure != nil {
		conn = tls.Client(conn, s.secure)
	}
	if _, err := conn.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: here\r\n\r\n")); err != nil {
		return nil
	}
	if path == "/hold" {
		<-s.begun
		return conn
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	require.NoError(s.t, resp.Body.Close())
	return conn
}

func TestFairListener_ClosesIdleConnections(t *testing.T) {
	for name, secure := range map[string]bool{"plaintext": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			fairServer := newFairServer(t, 8, secure)
			for i := range 64 {
				fairServer.dial([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}[i%3]) // silent, also before a handshake
			}
			for range 20 {
				require.NotNil(t, fairServer.ask("127.0.0.1", "/"))
				require.NotNil(t, fairServer.ask("10.0.0.4", "/"), "these stay open, and are idle")
			}
		})
	}
}

// closed waits for the end of a connection.
func (s *fairServer) closed(conn net.Conn) {
	_, err := conn.Read(make([]byte, 1))
	require.Error(s.t, err)
}

func TestFairListener_ReplacesTheOldestOfTheHostWithMost(t *testing.T) {
	fairServer := newFairServer(t, 6, false)
	var crowd []net.Conn
	for range 3 {
		crowd = append(crowd, fairServer.ask("10.0.0.1", "/hold"))
	}
	require.NotNil(t, fairServer.ask("10.0.0.1", "/hold"))
	fairServer.closed(crowd[0]) // beyond the share of an address
	single := fairServer.ask("10.0.0.2", "/hold")
	require.NotNil(t, fairServer.ask("10.0.0.3", "/hold"))
	require.NotNil(t, fairServer.ask("10.0.0.4", "/hold"))
	fairServer.closed(crowd[1]) // beyond the share of other machines
	local := fairServer.ask("127.0.0.1", "/hold")
	require.NotNil(t, fairServer.ask("127.0.0.1", "/hold"))
	fairServer.closed(crowd[2]) // in total
	require.NotNil(t, fairServer.ask("127.0.0.1", "/hold"))
	fairServer.closed(local)
	_ = single.SetReadDeadline(time.Now().Add(quiet))
	_, err := single.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it stays")
}

// Hosts that keep requests under way leave connections to others, also to those that have requests under way themselves.
func TestFairListener_BusyHostsLeaveConnections(t *testing.T) {
	for _, hosts := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"2001:db8::1", "2001:db8::2"}, {"127.0.0.1", "10.0.0.1"}} {
		t.Run(hosts[0], func(t *testing.T) {
			fairServer := newFairServer(t, 32, false)
			for i := range 31 {
				require.NotNil(t, fairServer.ask(hosts[i%2], "/hold"))
			}
			for i := range 10 {
				require.NotNil(t, fairServer.ask(fmt.Sprintf("10.0.1.%d", i), "/"))
				require.NotNil(t, fairServer.ask(fmt.Sprintf("10.0.2.%d", i), "/hold"))
			}
		})
	}
}

// All users of this machine have one address. None of them locks out another one.
func TestLoopbackUsers_DoNotLockOutEachOther(t *testing.T) {
	fairServer := newFairServer(t, 32, false)
	for range 100 {
		require.NotNil(t, fairServer.ask("127.0.0.1", "/hold"))
		require.NotNil(t, fairServer.ask("127.0.0.1", "/"))
	}
	require.NotNil(t, fairServer.ask("10.0.0.1", "/"))
}

func TestFairListener_LocalConnectionsShareAHost(t *testing.T) {
	for _, address := range []net.Addr{
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, &net.TCPAddr{IP: net.IPv6loopback},
		&net.UnixAddr{Name: "@", Net: "unix"},
	} {
		require.Equal(t, thisMachine, hostOf(address))
	}
	require.Equal(t, "10.0.0.1", hostOf(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}))
}
