package relay

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/adsc"
)

// remoteListener has its connections come from another machine.
type remoteListener struct{ net.Listener }

func (l remoteListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return remoteConn{conn}, nil
}

type remoteConn struct{ net.Conn }

func (c remoteConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: c.Conn.RemoteAddr().(*net.TCPAddr).Port}
}

// balancer passes TCP connections on to the backend that has the fewest of them.
type balancer struct {
	lis net.Listener

	mu       sync.Mutex
	backends map[string]*atomic.Int64 // how many connections each has
}

func newBalancer(t *testing.T) *balancer {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &balancer{lis: listener, backends: map[string]*atomic.Int64{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { b.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait() // for the clients, which have ended
	})
	return b
}

func (b *balancer) add(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends[address] = new(atomic.Int64)
}

func (b *balancer) pass(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // of a test
	b.mu.Lock()
	best := ""
	for address, n := range b.backends {
		if best == "" || n.Load() < b.backends[best].Load() {
			best = address
		}
	}
	count := b.backends[best]
	count.Add(1)
	b.mu.Unlock()
	defer count.Add(-1)
	to, err := net.Dial("tcp", best)
	if err != nil {
		return
	}
	defer to.Close() //nolint:errcheck // of a test
	var passing sync.WaitGroup
	passing.Go(func() {
		_, _ = io.Copy(to, conn)
		_ = to.Close()
	})
	_, _ = io.Copy(conn, to)
	_ = conn.Close()
	passing.Wait()
}

// A replica that joins gets its share of the connected clients. No client misses an object meanwhile.
func TestJoiningReplica_GetsShareOfClients(t *testing.T) {
	t.Parallel()
	balancer := newBalancer(t)
	replica := func() *rig {
		dir := t.TempDir()
		fill(t, dir, "rules/all.yaml: prod/p*3")
		write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: 'off'\n"+
			"limits: {connectionAge: 300ms}\nconfigSources: [{address: 'fs://./rules'}]\n")
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		r := startWith(t, dir, "127.0.0.1:0", map[string]net.Listener{"xds": remoteListener{listener}})
		r.awaitReady(t)
		balancer.add(listener.Addr().String())
		return r
	}
	names := []string{"ServiceEntry prod/p00", "ServiceEntry prod/p01", "ServiceEntry prod/p02"}
	old := replica()
	var clients []*client
	for i := range 10 {
		c := startClient(t, balancer.lis.Addr().String(), []adsc.Mode{adsc.Delta, adsc.SotW}[i%2], neverMissing(t, names...))
		c.awaitObjects(t, names...)
		clients = append(clients, c)
	}
	two := replica()
	eventually(t, func() error {
		if n, m := old.engine.Streams(), two.engine.Streams(); n < 3 || m < 3 {
			return fmt.Errorf("%d and %d streams", n, m)
		}
		return nil
	})
	for _, r := range []*rig{old, two} {
		fill(t, r.dir, "rules/all.yaml: prod/p*4")
	}
	for _, c := range clients {
		c.awaitObjects(t, append(names, "ServiceEntry prod/p03")...)
	}
}
