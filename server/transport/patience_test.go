package transport

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"tributary/internal/testutil"
)

// unlimited are limits for the frames of a connection that has none.
var unlimited = &Limits{StreamsPerSecond: -1, HeaderBytes: 1 << 20}

func TestWhoDoesNotReadLosesTheConnection(t *testing.T) {
	log := new(testutil.Buffer)
	w := newLoggedWorld(t, Limits{StuckFor: 50 * time.Millisecond}, log.Logger())
	w.large(testType)
	r := w.raw() // which opens no window
	r.Data(r.Open(true), r.Message(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType}))
	<-r.Closed
	w.refusedFor(refusedStuck, 1)
	eventually(t, func() bool { return len(w.server.Clients()) == 0 })
	require.Contains(t, log.String(), "limits.stuckFor")
}

func TestWhoReadsSlowlyIsNotStuck(t *testing.T) {
	conn := new(limitedConn)
	s := newStallTimer(time.Hour, conn.bytesAccepted, nil)
	defer s.stop()
	s.start()
	s.since = s.since.Add(-time.Hour)
	conn.accepted.Add(leastProgress)
	require.False(t, s.over(), "it has read something")
	s.since = s.since.Add(-time.Hour)
	conn.accepted.Add(leastProgress - 1)
	require.True(t, s.over())
	s.pause()
	require.False(t, s.over(), "nothing is being sent")
}

func TestAStreamWithoutARequestEnds(t *testing.T) {
	w := newFixture(t, Limits{FirstRequestTimeout: 10 * time.Millisecond, RefusalDelay: -1})
	w.set(testType, "a")
	err := w.delta().ended()
	require.Equal(t, codes.ResourceExhausted, grpcstatus.Code(err))
	require.Contains(t, err.Error(), "no request for 10ms, which is the limit")
	w.refusedFor(refusedFirstRequest, 1)
}

func TestAStallIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, stalls := new(limitedConn), 0
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		s := newStallTimer(time.Minute, conn.bytesReceived, func() { stalls++ })
		s.start()
		pass(50 * time.Second)
		conn.sent.Add(leastProgress)
		pass(time.Minute)
		require.Zero(t, stalls, "a large request is on its way")
		conn.sent.Add(leastProgress - 1)
		pass(2 * time.Minute)
		require.Equal(t, 1, stalls)
		s.start()
		s.stop()
		pass(time.Hour)
		require.Equal(t, 1, stalls)
	})
}

type noEngine struct{}

func (noEngine) Refused(string) {}

func TestAConnectionWithoutAStreamEnds(t *testing.T) {
	w := newFixture(t, Limits{IdleConnection: 20 * time.Millisecond})
	conn := w.conn()
	defer conn.Close() //nolint:errcheck // the server has
	conn.Connect()
	w.refusedFor(refusedIdle, 1)
}

func TestAHandshakeHasItsTime(t *testing.T) {
	w := newFixture(t, Limits{HandshakeTimeout: 20 * time.Millisecond})
	for i, said := range []string{"", http2.ClientPreface[:5], http2.ClientPreface} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
		require.NoError(t, err)
		_, err = io.WriteString(conn, said)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, conn) // until it is cut off
		require.NoError(t, conn.Close())
		w.refusedFor(refusedHandshake, float64(i+1))
	}
}

// Streams come to gRPC as fast as those of an address may, whether or not they are reset at once, and the connection stays.
func TestStreamsTakeTurns(t *testing.T) {
	w := newFixture(t, Limits{StreamsPerSecond: 100}) // and 10 at once
	w.set(testType, "a")
	r := w.raw()
	start := time.Now()
	const n = 60
	for range n {
		r.Open(true)
	}
	eventually(t, func() bool { return w.server.Streams() == n })
	require.GreaterOrEqual(t, time.Since(start), 90*time.Millisecond, "at the most 40 come at once, and 10 more are free")
	w.refusedFor(refusedStreamRate, 1)
}

func TestWhoDoesNotOpenStreamsDoesNotWait(t *testing.T) {
	w := newFixture(t, Limits{StreamsPerSecond: 100}) // and 10 at once
	w.set(testType, "a")
	c := w.delta()
	c.ask(testType)
	c.expect(testType, "a@1")
	r := w.raw()
	for range 1000 { // which takes ten seconds
		require.NoError(t, r.Framer.WriteRSTStream(r.Open(true), http2.ErrCodeCancel))
	}
	w.refusedFor(refusedStreamRate, 1)
	w.set(testType, "b")
	c.expect(testType, "b@1")
	require.NoError(t, r.Conn.Close())
	require.True(t, w.limiter.opens.of("another", time.Now()).Allow())
}

func TestAConnectionHasSoManyStreams(t *testing.T) {
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

func TestHeadersThatDoNotEnd(t *testing.T) {
	w := newFixture(t, Limits{HeaderBytes: 1000})
	r := w.raw()
	var all bytes.Buffer // which comes as one, before gRPC finds out what is wrong with the first of it
	framer := http2.NewFramer(&all, nil)
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 100)}))
	for range 10 {
		require.NoError(t, framer.WriteContinuation(1, false, make([]byte, 100)))
	}
	_, err := r.Conn.Write(all.Bytes())
	require.NoError(t, err)
	<-r.Closed
	w.refusedFor(refusedHeaders, 1)
}
