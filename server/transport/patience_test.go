package transport

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/connectivity"
)

type noEngine struct{}

func (noEngine) Refused(string) {}

func TestConnectionWithoutStream_Ends(t *testing.T) {
	w := newFixture(t, Limits{IdleConnection: 20 * time.Millisecond})
	conn := w.conn()
	defer conn.Close() //nolint:errcheck // the server has
	conn.Connect()
	eventually(t, func() bool { return conn.GetState() == connectivity.Ready })
	eventually(t, func() bool { return conn.GetState() != connectivity.Ready })
}

func TestHandshake_TimesOut(t *testing.T) {
	w := newFixture(t, Limits{HandshakeTimeout: 20 * time.Millisecond})
	for i, preface := range []string{"", http2.ClientPreface[:5], http2.ClientPreface} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
		require.NoError(t, err)
		_, err = io.WriteString(conn, preface)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, conn) // until it is cut off
		require.NoError(t, conn.Close())
		w.refusedFor(refusedHandshake, float64(i+1))
	}
}

// Silent connections end in time.
func TestSilentConnections_EndAfterTimeout(t *testing.T) {
	w := newFixture(t, Limits{HandshakeTimeout: 100 * time.Millisecond})
	for range 20 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	w.refusedFor(refusedHandshake, 20)
}

// Streams of an address begin at its rate. Other addresses do not wait.
func TestStreamRate_PerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(noEngine{}, Limits{StreamsPerSecond: 100}, slog.New(slog.DiscardHandler))
		began := time.Now()
		for range 501 {
			l.awaitTurn("10.0.0.1", false)
		}
		require.Equal(t, 3010*time.Millisecond, time.Since(began).Round(time.Millisecond))
		began = time.Now()
		l.awaitTurn("10.0.0.2", false)
		require.Zero(t, time.Since(began))
		var waiting sync.WaitGroup
		for range 1000 {
			waiting.Go(func() { l.awaitTurn("10.0.0.1", false) })
		}
		l.Close()
		waiting.Wait()
		require.Zero(t, time.Since(began), "Close ends all waits")
		for i := range 2 * manyAddresses {
			l.rate(rateLimit{host: strconv.Itoa(i)}, time.Now())
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(l.rates), manyAddresses)
	})
}

// A reset stream keeps its place on the connection until its turn, so that gRPC reads no further. Other clients do not notice.
func TestResetStreams_HoldPlaceUntilTurn(t *testing.T) {
	w := newFixture(t, Limits{StreamsPerSecond: 1, StreamsPerConnection: 5})
	w.set(testType, "a")
	c := w.delta()
	c.ask(testType)
	c.expect(testType, "a@1")
	r := w.raw()
	for range 1000 {
		require.NoError(t, r.Framer.WriteRSTStream(r.Open(true), http2.ErrCodeCancel))
	}
	eventually(t, func() bool {
		w.limiter.mu.Lock()
		defer w.limiter.mu.Unlock()
		return w.limiter.streams == 1+5
	})
	w.set(testType, "b")
	c.expect(testType, "b@1")
	require.NoError(t, r.Conn.Close())
}

func TestConnection_StreamLimit(t *testing.T) {
	w := newFixture(t, Limits{StreamsPerConnection: 2})
	w.set(testType, "a")
	r := w.raw()
	r.Open(true)
	r.Open(true)
	w.refusedFor(refusedPerConnection, 1)
	third := r.Open(true)
	require.Equal(t, third, <-r.Resets)
	c := w.delta() // on another connection
	c.ask(testType)
	c.expect(testType, "a@1")
	require.Len(t, w.server.Clients(), 3)
}

func TestEndlessHeaders_EndConnection(t *testing.T) {
	w := newFixture(t, Limits{HeaderBytes: 1000})
	r := w.raw()
	var frames bytes.Buffer // they arrive together, before gRPC reads the first invalid one
	framer := http2.NewFramer(&frames, nil)
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 100)}))
	for range 10 {
		require.NoError(t, framer.WriteContinuation(1, false, make([]byte, 100)))
	}
	_, err := r.Conn.Write(frames.Bytes())
	require.NoError(t, err)
	<-r.Closed
}
