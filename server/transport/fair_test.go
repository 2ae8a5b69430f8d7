package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// fromHosts is a listener whose connections come from the hosts of from, one after the other.
type fromHosts struct {
	net.Listener

	from chan string
}

func (l fromHosts) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return fromHost{conn, &net.TCPAddr{IP: net.ParseIP(<-l.from), Port: 1}}, nil
}

type fromHost struct {
	net.Conn

	addr net.Addr
}

func (c fromHost) RemoteAddr() net.Addr { return c.addr }

// fairServer is an HTTP server behind a FairListener.
type fairServer struct {
	t      *testing.T
	fair   *FairListener
	from   chan string
	addr   string
	secure *tls.Config // of clients; nil for plaintext
	hold   chan struct{}
	begun  chan struct{}
}

func newFairServer(t *testing.T, most int, secure bool, log *testutil.Buffer) *fairServer {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fairServer{t: t, from: make(chan string, 1), addr: lis.Addr().String(), hold: make(chan struct{}), begun: make(chan struct{})}
	s.fair = NewFairListener(fromHosts{lis, s.from}, most, log.Logger())
	var in net.Listener = s.fair
	if secure {
		in = tls.NewListener(in, &tls.Config{Certificates: []tls.Certificate{testutil.NewAuthority(t).Loopback(time.Now().Add(time.Hour)).TLS()}})
		s.secure = &tls.Config{InsecureSkipVerify: true}
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hold":
			s.begun <- struct{}{}
			<-s.hold
		case "/wait":
			Idle(r.Context(), func() {
				s.begun <- struct{}{}
				<-r.Context().Done()
			})
		case "/large":
			_, _ = w.Write(make([]byte, 64<<10))
		}
	}
	server := &http.Server{ConnContext: ConnContext, ReadHeaderTimeout: time.Minute, Handler: CountBusy(http.HandlerFunc(handler))}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(in) })
	t.Cleanup(func() {
		close(s.hold)
		_ = server.Close()
		serving.Wait()
	})
	return s
}

// dial connects from a host and says nothing.
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

func TestIdleConnectionsGiveWayToNewOnes(t *testing.T) {
	for name, secure := range map[string]bool{"plaintext": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			s := newFairServer(t, 8, secure, new(testutil.Buffer))
			for i := range 64 {
				s.dial([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}[i%3]) // silent, also before a handshake
			}
			for range 20 {
				require.NotNil(t, s.ask("127.0.0.1", "/"))
				require.NotNil(t, s.ask("10.0.0.4", "/"), "these stay open, and are idle")
			}
		})
	}
}

func TestConnectionsWithRequestsHaveShares(t *testing.T) {
	log := new(testutil.Buffer)
	s := newFairServer(t, 6, false, log)
	for range 3 {
		require.NotNil(t, s.ask("10.0.0.1", "/hold"))
	}
	require.Nil(t, s.ask("10.0.0.1", "/"), "that address has its share")
	require.NotNil(t, s.ask("10.0.0.2", "/hold"))
	require.NotNil(t, s.ask("10.0.0.2", "/hold"))
	require.Contains(t, log.String(), `msg="connection to the admin server refused: too many requests are under way" peer=10.0.0.1 limit=6`)
	require.NotNil(t, s.ask("127.0.0.1", "/"), "the last one is for this machine")
	for range 5 {
		s.hold <- struct{}{}
	}
	require.Eventually(t, func() bool { return s.ask("10.0.0.1", "/") != nil }, time.Minute, time.Millisecond)
}

// Hosts that keep requests under way leave connections to others, also to those that have requests under way themselves.
func TestBusyHostsGiveWayToOthers(t *testing.T) {
	for _, hosts := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"2001:db8::1", "2001:db8::2"}, {"127.0.0.1", "10.0.0.1"}} {
		t.Run(hosts[0], func(t *testing.T) {
			s := newFairServer(t, 32, false, new(testutil.Buffer))
			for i := range 31 {
				require.NotNil(t, s.ask(hosts[i%2], "/hold"))
			}
			for i := range 10 {
				require.NotNil(t, s.ask(fmt.Sprintf("10.0.1.%d", i), "/"))
				require.NotNil(t, s.ask(fmt.Sprintf("10.0.2.%d", i), "/hold"))
			}
		})
	}
}

// All users of this machine have one address. None of them locks out another one.
func TestAUserOfThisMachineLocksOutNoOther(t *testing.T) {
	s := newFairServer(t, 32, false, new(testutil.Buffer))
	for range 100 {
		require.NotNil(t, s.ask("127.0.0.1", "/hold"))
		require.NotNil(t, s.ask("127.0.0.1", "/"))
	}
	require.NotNil(t, s.ask("10.0.0.1", "/"))
}

func TestIdleGoesBeforeBusy(t *testing.T) {
	s := newFairServer(t, 4, false, new(testutil.Buffer))
	for range 3 {
		require.NotNil(t, s.ask("127.0.0.1", "/hold"))
	}
	waits := s.dial("127.0.0.1")
	_, err := waits.Write([]byte("GET /wait HTTP/1.1\r\nHost: here\r\n\r\n"))
	require.NoError(t, err)
	<-s.begun
	for range 10 {
		require.NotNil(t, s.ask("127.0.0.1", "/"), "it takes the place of one that waits, or that has its answer")
	}
	_, err = waits.Read(make([]byte, 1))
	require.Error(t, err, "it is closed")
	s.fair.mu.Lock()
	defer s.fair.mu.Unlock()
	busy := 0
	for c := range s.fair.conns {
		busy += c.running
	}
	require.Equal(t, 3, busy)
}

func TestAConnectionWithAnUnreadBodyIsIdle(t *testing.T) {
	s := newFairServer(t, 6, false, new(testutil.Buffer))
	for _, path := range []string{"/", "/large"} {
		for range 6 {
			conn := s.dial("10.0.0.1")
			_, err := conn.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n"))
			require.NoError(t, err)
			if path == "/" {
				_, err = http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the test closes the connection
				require.NoError(t, err, "an answer does not wait for the body")
			}
		}
		require.Eventually(t, func() bool { return s.ask("10.0.0.1", "/") != nil }, time.Minute, time.Millisecond)
	}
}

func TestAnHTTP2ConnectionIsBusyWhileItHasStreams(t *testing.T) {
	s := newFairServer(t, 6, false, new(testutil.Buffer))
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2.CloseIdleConnections)
	busy := func() (n int) {
		s.fair.mu.Lock()
		defer s.fair.mu.Unlock()
		for c := range s.fair.conns {
			if c.running > 0 {
				n++
			}
		}
		return n
	}
	s.from <- "10.0.0.1"
	var asking sync.WaitGroup
	asking.Go(func() {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+s.addr+"/hold", nil)
		if err == nil {
			if resp, err := h2.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
		}
	})
	<-s.begun
	require.Equal(t, 1, busy())
	s.hold <- struct{}{}
	asking.Wait()
	require.Eventually(t, func() bool { return busy() == 0 }, time.Minute, time.Millisecond)
}
