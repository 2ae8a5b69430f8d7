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
	fixture := newFixture(t, Limits{HandshakeTimeout: 20 * time.Millisecond})
	for i, preface := range []string{"", http2.ClientPreface[:5], http2.ClientPreface} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fixture.addr)
		require.NoError(t, err)
		_, err = io.WriteString(conn, preface)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, conn) // until it is cut off
		require.NoError(t, conn.Close())
		fixture.refusedFor(refusedHandshake, float64(i+1))
	}
}

// Silent connections end in time.
func TestSilentConnections_EndAfterTimeout(t *testing.T) {
	fixture := newFixture(t, Limits{HandshakeTimeout: 100 * time.Millisecond})
	for range 20 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fixture.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	fixture.refusedFor(refusedHandshake, 20)
}

// Streams of an address begin at its rate. Other addresses do not wait.
func TestStreamRate_PerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewLimiter(noEngine{}, Limits{StreamsPerSecond: 100}, slog.New(slog.DiscardHandler))
		began := time.Now()
		for range 501 {
			limiter.awaitTurn("10.0.0.1", false)
		}
		require.Equal(t, 3010*time.Millisecond, time.Since(began).Round(time.Millisecond))
		began = time.Now()
		limiter.awaitTurn("10.0.0.2", false)
		require.Zero(t, time.Since(began))
		var waiting sync.WaitGroup
		for range 1000 {
			waiting.Go(func() { limiter.awaitTurn("10.0.0.1", false) })
		}
		limiter.Close()
		waiting.Wait()
		require.Zero(t, time.Since(began), "Close ends all waits")
		for i := range 2 * manyAddresses {
			limiter.rate(rateLimit{host: strconv.Itoa(i)}, time.Now())
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(limiter.rates), manyAddresses)
	})
}

// A reset stream keeps its place on the connection until its turn, so that gRPC reads no further. Other clients do not notice.
func TestResetStreams_HoldPlaceUntilTurn(t *testing.T) {
	fixture := newFixture(t, Limits{StreamsPerSecond: 1, StreamsPerConnection: 5})
	fixture.set(testType, "a")
	client := fixture.delta()
	client.Ask(testType)
	client.ExpectAck(testType, nil, "a@1")
	rawClient := fixture.raw()
	for range 1000 {
		require.NoError(t, rawClient.Framer.WriteRSTStream(rawClient.Open(true), http2.ErrCodeCancel))
	}
	eventually(t, func() bool {
		fixture.limiter.mu.Lock()
		defer fixture.limiter.mu.Unlock()
		return fixture.limiter.streams == 1+5
	})
	fixture.set(testType, "b")
	client.ExpectAck(testType, nil, "b@1")
	require.NoError(t, rawClient.Conn.Close())
}

func TestConnection_StreamLimit(t *testing.T) {
	fixture := newFixture(t, Limits{StreamsPerConnection: 2})
	fixture.set(testType, "a")
	rawClient := fixture.raw()
	rawClient.Open(true)
	rawClient.Open(true)
	fixture.refusedFor(refusedPerConnection, 1)
	third := rawClient.Open(true)
	require.Equal(t, third, <-rawClient.Resets)
	c := fixture.delta() // on another connection
	c.Ask(testType)
	c.ExpectAck(testType, nil, "a@1")
	require.Len(t, fixture.server.Clients(), 3)
}

func TestEndlessHeaders_EndConnection(t *testing.T) {
	w := newFixture(t, Limits{HeaderBytes: 1000})
	rawClient := w.raw()
	var frames bytes.Buffer // they arrive together, before gRPC reads the first invalid one
	framer := http2.NewFramer(&frames, nil)
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 100)}))
	for range 10 {
		require.NoError(t, framer.WriteContinuation(1, false, make([]byte, 100)))
	}
	_, err := rawClient.Conn.Write(frames.Bytes())
	require.NoError(t, err)
	<-rawClient.Closed
}
