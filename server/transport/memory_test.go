package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	"tributary/internal/testutil"
)

// resuming is a request that brings along versions of about size bytes.
func resuming(typeURL string, size int) *discoveryv3.DeltaDiscoveryRequest {
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, InitialResourceVersions: map[string]string{"a": "1"}}
	for i := range size / 1000 {
		m.InitialResourceVersions[fmt.Sprintf("gone-%d", i)] = strings.Repeat("v", 1000)
	}
	return m
}

// free says how many bytes of requests the memory limiter has room for.
func (w *fixture) free() (n int64) {
	for w.limiter.memory.capacity.TryAcquire(1 << 10) {
		n += 1 << 10
	}
	w.limiter.memory.capacity.Release(n)
	return n
}

func (w *fixture) full() bool     { return w.free() == 0 }
func (w *fixture) empty() bool    { return w.free() == int64(w.limiter.limits.RequestMemory) }
func (w *fixture) waiting() int64 { return w.limiter.memory.waiting.Load() }

// newGatedFixture has memory for one large request.
func newGatedFixture(t *testing.T, patience time.Duration) *fixture {
	w := newFixture(t, Limits{RequestBytes: 1 << 20, RequestMemory: 1 << 20, RefusalDelay: -1})
	w.limiter.memory.small, w.limiter.memory.reservationLimit = 1<<10, patience
	return w
}

func TestLargeRequest_WaitsForMemory(t *testing.T) {
	fixture := newGatedFixture(t, time.Hour)
	fixture.set(testType, "a")
	first := fixture.raw()
	upload := first.Message(resuming(testType, 900_000))
	id := first.Open(true)
	first.Data(id, upload[:60<<10]) // and no more
	eventually(t, fixture.full)

	second := fixture.delta()
	second.Send(resuming(testType, 900_000))
	eventually(t, func() bool { return fixture.waiting() == 1 })
	small := fixture.delta()
	small.Ask(testType)
	small.ExpectAck(testType, nil, "a@1") // a small request does not wait
	second.Silence()

	go first.Data(id, upload[60<<10:])
	require.Len(t, second.Next().Removed, 900) // the first request is complete
	eventually(t, fixture.empty)
}

func TestHangUp_ReleasesMemory(t *testing.T) {
	for name, hangUp := range map[string]func(r *testutil.RawClient, id uint32){
		"the stream":     func(r *testutil.RawClient, id uint32) { require.NoError(r.T, r.Framer.WriteRSTStream(id, 8)) },
		"the connection": func(r *testutil.RawClient, _ uint32) { require.NoError(r.T, r.Conn.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newGatedFixture(t, time.Hour)
			rawClient := fixture.raw()
			id := rawClient.Open(true)
			rawClient.Data(id, append(testutil.MessagePrefix(900_000), make([]byte, 2000)...))
			eventually(t, fixture.full)
			hangUp(rawClient, id)
			eventually(t, fixture.empty)
		})
	}
}

func TestStalledRequest_LosesMemory(t *testing.T) {
	w := newGatedFixture(t, 50*time.Millisecond)
	w.set(testType, "a")
	rawClient := w.raw()
	rawClient.Data(rawClient.Open(true), append(testutil.MessagePrefix(900_000), make([]byte, 2000)...))
	eventually(t, w.full)
	require.Never(t, w.empty, 3*w.limiter.memory.reservationLimit, quiet) // while no other request waits for the memory, it keeps it
	c := w.delta()
	c.Send(resuming(testType, 900_000))
	require.Len(t, c.Next().Removed, 900)
	<-rawClient.Closed
	require.InDelta(t, 1, w.refused(refusedStalled), 0)
}

// The versions that a client brings along are kept until they were looked at, and their room as well.
func TestInitialVersions_HoldMemoryUntilCompared(t *testing.T) {
	fixture := newGatedFixture(t, time.Hour)
	client := fixture.delta()
	client.Send(resuming(testType, 900_000))
	eventually(t, func() bool { return fixture.asking() == 1 })
	require.Less(t, fixture.free(), int64(1<<20-900_000))
	fixture.set(testType, "a")
	require.Len(t, client.Next().Removed, 900)
	eventually(t, fixture.empty)
}

// compressing is a stream of ADS with compressed requests. The test reads no responses.
func (w *fixture) compressing() discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	conn := w.conn()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, conn.Close())
	})
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, grpc.UseCompressor(gzip.Name))
	require.NoError(w.t, err)
	return s
}

// A compressed request needs no reservation. A large one is refused.
func TestCompressedRequests_Bounded(t *testing.T) {
	fixture := newFixture(t, Limits{RefusalDelay: -1})
	fixture.set(testType, "a")
	stream := fixture.compressing()
	require.NoError(t, stream.Send(resuming(testType, 300_000)))
	response, err := stream.Recv()
	require.NoError(t, err)
	require.Len(t, response.RemovedResources, 300)
	require.True(t, fixture.empty())
	require.NoError(t, stream.Send(resuming(testType, largestDecompressed)))
	_, err = stream.Recv()
	require.ErrorContains(t, err, "send it without compression")
}

// Every request of a connection is freed by itself.
func TestRequestsOfConnection_FreedSeparately(t *testing.T) {
	w := &fixture{t: t, limiter: NewLimiter(noEngine{}, Limits{RequestBytes: 1 << 20, RequestMemory: 3 << 20}, nil)}
	ours, theirs := net.Pipe()
	defer func() { require.NoError(t, theirs.Close()) }()
	go func() { _, _ = io.WriteString(theirs, http2.ClientPreface+strings.Repeat("\x04", frameHeader)) }()
	connection, err := newConnection(ours, w.limiter)
	require.NoError(t, err)
	const large = 600_000
	require.NoError(t, connection.reserve(smallRequests))
	require.True(t, w.empty(), "small requests need none")
	require.NoError(t, connection.reserve(2*large-smallRequests))
	require.EqualValues(t, 2<<20, w.free(), "it has memory for one")
	require.NoError(t, connection.reserve(large))
	require.EqualValues(t, 1<<20, w.free(), "it needs memory for another one")
	connection.noteComplete(large)
	first := connection.finishRequest(large)
	require.EqualValues(t, 1<<20, w.free(), "the others are incomplete")
	connection.noteComplete(large)
	require.Nil(t, connection.finishRequest(0), "the engine does not retain it")
	connection.noteComplete(large)
	last := connection.finishRequest(large)
	require.EqualValues(t, (3<<20-2*large)>>10, w.free()>>10)
	last.release()
	last.release()
	first.release()
	require.True(t, w.empty())
	require.NoError(t, connection.reserve(2*large))
	require.False(t, w.empty())
	require.NoError(t, connection.Close())
	require.True(t, w.empty())
}

func TestSlowUpload_LosesMemory(t *testing.T) {
	fixture := newGatedFixture(t, 50*time.Millisecond)
	fixture.set(testType, "a")
	rawClient := fixture.raw()
	id := rawClient.Open(true)
	rawClient.Data(id, append(testutil.MessagePrefix(900_000), make([]byte, 2000)...))
	eventually(t, fixture.full)
	go func() {
		for rawClient.Framer.WriteData(id, false, make([]byte, 300)) == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	c := fixture.delta()
	c.Send(resuming(testType, 900_000))
	require.Len(t, c.Next().Removed, 900)
	<-rawClient.Closed
}

// A stream keeps the memory of its initial versions for a type that is not synced, until another stream needs it.
func TestUnsyncedType_YieldsMemory(t *testing.T) {
	fixture := newGatedFixture(t, 20*time.Millisecond)
	fixture.set(testType, "a")
	keeps := fixture.delta()
	keeps.Send(resuming("never synced", 900_000))
	eventually(t, func() bool { return fixture.asking() == 1 })
	require.Never(t, fixture.empty, 10*fixture.limiter.memory.reservationLimit, quiet) // while no other request waits for it
	c := fixture.delta()
	c.Send(resuming(testType, 900_000))
	require.Len(t, c.Next().Removed, 900)
	require.Error(t, keeps.Ended())
	require.InDelta(t, 1, fixture.refused(refusedStalled), 0)
}

// A request that is too large is refused when gRPC's header is there, and needs no room.
func TestTooLargeRequest_RefusedByMessagePrefix(t *testing.T) {
	fixture := newGatedFixture(t, time.Hour)
	r := fixture.raw()
	id := r.Open(true)
	r.Data(id, testutil.MessagePrefix(60<<20))
	eventually(t, func() bool {
		return fixture.refused(refusedRequestBytes) == 1
	})
	require.True(t, fixture.empty())
	eventually(t, func() bool { return len(fixture.server.Clients()) == 0 })
}

// The payload of a client does not depend on how the system cuts its bytes.
func TestPayload_Counted(t *testing.T) {
	var sent bytes.Buffer
	framer := http2.NewFramer(&sent, nil)
	require.NoError(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 40), EndHeaders: true}))
	require.NoError(t, framer.WriteData(1, false, make([]byte, 300)))
	require.NoError(t, framer.WriteData(3, false, nil))
	require.NoError(t, framer.WritePing(false, [8]byte{}))
	require.NoError(t, framer.WriteData(3, true, make([]byte, 20)))
	require.NoError(t, framer.WriteWindowUpdate(0, 10))
	for step := 1; step <= sent.Len(); step++ {
		counter, payload := payloadCounter{}, 0
		for part := range slices.Chunk(sent.Bytes(), step) {
			payload += counter.count(part)
		}
		require.Equal(t, 320, payload, "step %d", step)
	}
}
