package xds

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

func TestArrivalsAreSpacedOutByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spacing{perSecond: 100}
		never := func() bool { return false }
		start, in, refused := time.Now(), make(chan time.Duration, 100), make(chan error, 100)
		come := func(host string, n int, gone func() bool) {
			for range n {
				go func() {
					switch ok, err := s.of(host, time.Now()).letIn(nil, 100*time.Millisecond, gone); {
					case err != nil:
						refused <- err
					case ok:
						in <- time.Since(start)
					}
				}()
			}
			synctest.Wait()
		}
		come("a", 10, never)
		require.Len(t, in, 10, "so many at once")
		come("a", 3, never)
		come("a", 4, func() bool { return true })
		come("a", 3, never)
		require.Empty(t, refused, "ten may wait")
		require.Len(t, in, 10)
		come("b", 1, never)
		require.Len(t, in, 11, "others do not wait")
		time.Sleep(time.Second)
		require.Len(t, in, 11+6)
		for range 11 {
			require.Zero(t, <-in)
		}
		for i := range 6 {
			require.InDelta(t, float64(i+1)/100, (<-in).Seconds(), 0.001, "nobody waits for those who have gone")
		}
		come("a", 10+10+3, never)
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

func TestHasGone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it cannot be told elsewhere")
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer lis.Close() //nolint:errcheck // at the end
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", lis.Addr().String())
	require.NoError(t, err)
	conn, err := lis.Accept()
	require.NoError(t, err)
	conn = wrapped{wrapped{conn}}
	defer conn.Close() //nolint:errcheck // at the end
	_, err = client.Write([]byte("hello"))
	require.NoError(t, err)
	require.False(t, hasGone(conn))
	require.NoError(t, client.Close())
	eventually(t, func() bool { return hasGone(conn) })
}

// Who waits for his turn has the time for the handshakes from then on; who would wait for longer than that is cut off.
func TestConnectionsThatComeTooFast(t *testing.T) {
	w := newWorld(t, Options{Limits: Limits{ConnectionsPerSecond: 2, HandshakeTimeout: time.Second}})
	w.set(testType, "a")
	for range 4 {
		w.delta(testType).ask(testType, "a")
	}
	eventually(t, func() bool { return w.server.Streams() == 4 })
	require.Zero(t, testutil.ToFloat64(w.server.metrics.refusals.WithLabelValues(refusedArrivals)))
	for range 8 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, http2.ClientPreface)
		require.NoError(t, err)
	}
	eventually(t, func() bool {
		return testutil.ToFloat64(w.server.metrics.refusals.WithLabelValues(refusedArrivals)) > 0
	})
}

// Those who hung up before it was their turn keep nobody waiting.
func TestWhoHungUpIsNotWaitedFor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it cannot be told elsewhere")
	}
	w := newWorld(t, Options{Limits: Limits{ConnectionsPerSecond: 1, HandshakeTimeout: time.Hour}})
	w.set(testType, "a")
	w.delta(testType).ask(testType, "a")
	for range 300 { // five minutes for each that waits
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
		require.NoError(t, err)
		_, err = io.WriteString(conn, http2.ClientPreface)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	w.delta(testType).ask(testType, "a")
	eventually(t, func() bool { return w.server.Streams() == 2 })
}

func TestWhoSaysNothingTakesNoTurn(t *testing.T) {
	w := newWorld(t, Options{Limits: Limits{ConnectionsPerSecond: 1, HandshakeTimeout: time.Hour}})
	w.set(testType, "a")
	for range 300 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	w.delta(testType).ask(testType, "a")
	w.delta(testType).ask(testType, "a")
	eventually(t, func() bool { return w.server.Streams() == 2 })
}

type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }
