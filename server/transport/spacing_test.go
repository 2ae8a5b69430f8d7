package transport

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

func TestArrivalsAreSpacedOutByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spacing{perSecond: 100}
		start, in, refused := time.Now(), make(chan time.Duration, 100), make(chan error, 100)
		come := func(host string, n int) {
			for range n {
				go func() {
					switch ok, err := s.of(host, time.Now()).letIn(nil, 100*time.Millisecond, nil); {
					case err != nil:
						refused <- err
					case ok:
						in <- time.Since(start)
					}
				}()
			}
			synctest.Wait()
		}
		come("a", 10)
		require.Len(t, in, 10, "so many at once")
		come("a", 3)
		come("a", 3)
		require.Empty(t, refused, "ten may wait")
		require.Len(t, in, 10)
		come("b", 1)
		require.Len(t, in, 11, "others do not wait")
		time.Sleep(time.Second)
		require.Len(t, in, 11+6)
		for range 11 {
			require.Zero(t, <-in)
		}
		for i := range 6 {
			require.InDelta(t, float64(i+1)/100, (<-in).Seconds(), 0.001)
		}
		come("a", 10+10+3)
		require.Len(t, refused, 3, "they would wait for too long")
		time.Sleep(time.Second)
		require.Len(t, in, 20)
		for i := range 2 * manyHosts {
			s.of(fmt.Sprint(i), time.Now())
			time.Sleep(time.Second)
		}
		require.Less(t, len(s.hosts), manyHosts+1)
	})
}

// Who waits for his turn has the time for the handshakes from then on; who would wait for longer than that is cut off.
func TestConnectionsThatComeTooFast(t *testing.T) {
	w := newFixture(t, Limits{ConnectionsPerSecond: 2, HandshakeTimeout: time.Second})
	w.set(testType, "a")
	for range 4 {
		w.delta().ask(testType, "a")
	}
	eventually(t, func() bool { return w.server.Streams() == 4 })
	require.Zero(t, w.refused(refusedArrivals))
	for range 8 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, http2.ClientPreface)
		require.NoError(t, err)
	}
	eventually(t, func() bool {
		return w.refused(refusedArrivals) > 0
	})
}

// Of a client that opens many streams and hangs up, no stream is begun whose turn has not come: nobody waits for it.
func TestStreamsOfWhoHungUpAreNotBegun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not tell")
	}
	w := newFixture(t, Limits{StreamsPerSecond: 10})
	r := w.raw()
	var sent bytes.Buffer
	burst := *r
	burst.Framer = http2.NewFramer(&sent, nil)
	for range 50 {
		burst.Data(burst.Open(true), r.Message(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType}))
	}
	_, err := r.Conn.Write(sent.Bytes())
	require.NoError(t, err)
	require.NoError(t, r.Conn.Close())
	eventually(t, func() bool { // it came, and is gone
		conns := 0
		w.limiter.conns.Range(func(any, any) bool { conns++; return true })
		w.limiter.opens.mu.Lock()
		defer w.limiter.opens.mu.Unlock()
		return len(w.limiter.opens.hosts) == 1 && conns == 0 && w.server.Streams() == 0
	})
	require.Less(t, w.asked.Load(), int64(10))
}

func TestWhoSaysNothingTakesNoTurn(t *testing.T) {
	w := newFixture(t, Limits{ConnectionsPerSecond: 1, HandshakeTimeout: time.Hour})
	w.set(testType, "a")
	for range 300 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	w.delta().ask(testType, "a")
	w.delta().ask(testType, "a")
	eventually(t, func() bool { return w.server.Streams() == 2 })
}

// TestAConnectionThatSaysNothingIsClosedInTime, one after the other; the last one has its time, too.
func TestAConnectionThatSaysNothingIsClosedInTime(t *testing.T) {
	w := newFixture(t, Limits{HandshakeTimeout: 100 * time.Millisecond})
	for range 3 {
		var all []net.Conn
		for range 20 {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			all = append(all, conn)
		}
		for _, conn := range all {
			_, err := conn.Read(make([]byte, 1))
			require.Error(t, err)
		}
	}
	w.refusedFor(refusedHandshake, 60)
}

// While streams of an address wait, its connections are read in small steps, so that they hold few streams. A frame is read at once.
func TestAFrameIsReadAtOnceWhileStreamsWait(t *testing.T) {
	limiter := NewLimiter(nil, Limits{}, nil)
	ours, theirs := net.Pipe()
	c := newConn(ours, limiter)
	defer func() { require.NoError(t, c.Close()) }()
	c.opens.turn <- struct{}{}
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&sent, nil)
	require.NoError(t, framer.WriteData(1, false, make([]byte, 10_000)))
	require.NoError(t, framer.WriteSettings())
	go func() { _, _ = theirs.Write(sent.Bytes()) }()
	var reads []int
	for left := sent.Len(); left > 0; {
		n, err := c.Read(make([]byte, 16<<10))
		require.NoError(t, err)
		reads = append(reads, n)
		left -= n
	}
	const first = hastyRead - len(http2.ClientPreface) - frameHeader
	require.Equal(t, []int{hastyRead, 10_000 - first, frameHeader}, reads)
}
