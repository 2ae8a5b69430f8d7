package transport

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
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
	g := w.limiter.memory
	for n < g.size && g.rooms.TryAcquire(1<<10) {
		n += 1 << 10
	}
	g.rooms.Release(n)
	return n
}

func (w *fixture) full() bool  { return w.free() < 1<<20 }
func (w *fixture) empty() bool { return w.free() > w.limiter.memory.size-1<<10 }

// waiting says how many requests wait for room.
func (w *fixture) waiting() int64 {
	g := w.limiter.memory
	n := g.waiting.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.hosts {
		n += s.waiting.Load()
	}
	return n
}

func gated() Limits { return Limits{RequestBytes: 1 << 20, RequestMemory: 1 << 20, RefusalDelay: -1} }

func TestALargeRequestWaitsForRoom(t *testing.T) {
	w := newFixture(t, gated())
	w.limiter.memory.patience = time.Hour
	w.set(testType, "a")
	first := w.raw()
	upload := first.Message(resuming(testType, 900_000))
	id := first.Open(true)
	first.Data(id, upload[:60<<10]) // and no more
	eventually(t, w.full)

	second := w.delta()
	require.NoError(t, second.send(resuming(testType, 900_000)))
	eventually(t, func() bool { return w.waiting() == 1 })
	small := w.delta()
	small.ask(testType)
	small.expect(testType, "a@1") // who sends little does not wait
	second.silence()

	go first.Data(id, upload[60<<10:])
	require.Len(t, second.next().removed, 900) // who went first is done
	eventually(t, w.empty)
}

func TestRoomIsGivenBackByWhoHangsUp(t *testing.T) {
	for name, hangUp := range map[string]func(r *testutil.RawClient, id uint32){
		"the stream":     func(r *testutil.RawClient, id uint32) { require.NoError(r.T, r.Framer.WriteRSTStream(id, 8)) },
		"the connection": func(r *testutil.RawClient, _ uint32) { require.NoError(r.T, r.Conn.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, gated())
			w.limiter.memory.patience = time.Hour
			r := w.raw()
			id := r.Open(true)
			r.Data(id, append(testutil.MessagePrefix(900_000), make([]byte, 10)...))
			eventually(t, w.full)
			hangUp(r, id)
			eventually(t, w.empty)
		})
	}
}

func TestWhoStallsLosesItsRoom(t *testing.T) {
	w := newFixture(t, gated())
	w.limiter.memory.patience = 50 * time.Millisecond
	w.set(testType, "a")
	r := w.raw()
	r.Data(r.Open(true), append(testutil.MessagePrefix(900_000), make([]byte, 10)...))
	eventually(t, w.full)
	require.Never(t, w.empty, 3*w.limiter.memory.patience, quiet) // while nobody waits for it, it can stay
	c := w.delta()
	require.NoError(t, c.send(resuming(testType, 900_000)))
	require.Len(t, c.next().removed, 900)
	<-r.Closed
	require.InDelta(t, 1, w.refused(refusedStalled), 0)
}

// The versions that a client brings along are kept until they were looked at, and their room as well.
func TestRoomIsKeptUntilTheVersionsWereLookedAt(t *testing.T) {
	w := newFixture(t, gated())
	c := w.delta()
	require.NoError(t, c.send(resuming(testType, 900_000)))
	eventually(t, func() bool { return w.asking() == 1 })
	require.True(t, w.full())
	w.set(testType, "a")
	require.Len(t, c.next().removed, 900)
	eventually(t, w.empty)
}

func TestACompressedRequestNeedsRoomForAllThatItMayBecome(t *testing.T) {
	w := newFixture(t, gated())
	w.limiter.memory.patience = time.Hour
	r := w.raw()
	prefix := testutil.MessagePrefix(100)
	prefix[0] = 1
	r.Data(r.Open(true), prefix)
	eventually(t, w.full)
}

// compressing is a stream of ADS whose requests are compressed. Nobody reads it.
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

// Once it was decompressed, it has room for what it is.
func TestACompressedRequestKeepsNoMoreRoomThanItNeeds(t *testing.T) {
	w := newFixture(t, gated())
	require.NoError(t, w.compressing().Send(resuming("never synced", 0)))
	eventually(t, func() bool { return w.asking() == 1 })
	eventually(t, w.empty)
	require.NoError(t, w.compressing().Send(resuming("never synced", 300_000)))
	eventually(t, func() bool { return w.asking() == 2 })
	eventually(t, func() bool { return w.free() > w.limiter.memory.size-320_000 })
	require.Less(t, w.free(), w.limiter.memory.size-300_000)
}

func TestRequestsOfOneConnectionTakeTheirOwnRoom(t *testing.T) {
	w := &fixture{t: t, limiter: NewLimiter(nil, Limits{RequestBytes: 1 << 20, RequestMemory: 8 << 20}, nil)}
	ours, theirs := net.Pipe()
	defer func() { require.NoError(t, theirs.Close()) }()
	c := newConn(ours, w.limiter)
	defer func() { require.NoError(t, c.Close()) }()
	arrives := func(size, wire int, compressed bool) {
		r, err := w.limiter.memory.enter(t.Context(), c.host, size, wire, nil)
		require.NoError(t, err)
		c.whole = append(c.whole, wholeRequest{wire, compressed, r})
	}
	arrives(1<<20, 100, true)
	arrives(1<<20, 4000, true)
	arrives(90_000, 90_000, false)
	arrives(1<<20, 90_000, true)
	claim := func(size, wire int) int64 {
		r := c.claim(call{wire, size}, func() bool { return false })
		if r == nil {
			return 0
		}
		defer r.release()
		return r.size
	}
	require.Zero(t, claim(100, 100), "a small one that was not compressed needs none")
	require.EqualValues(t, 900_000, claim(900_000, 4000))
	require.EqualValues(t, 500_000, claim(500_000, 90_000))
	require.EqualValues(t, 90_000, claim(90_000, 90_000))
	require.Zero(t, claim(90_000, 90_000))
	require.Len(t, c.whole, 1)
	require.Zero(t, claim(200, 100), "it is small after all")
	require.Empty(t, c.whole)
	require.True(t, w.empty())
}

func TestWhoDripsLosesItsRoom(t *testing.T) {
	w := newFixture(t, gated())
	w.limiter.memory.patience = 50 * time.Millisecond
	w.set(testType, "a")
	r := w.raw()
	id := r.Open(true)
	r.Data(id, testutil.MessagePrefix(900_000))
	eventually(t, w.full)
	go func() {
		for r.Framer.WriteData(id, false, make([]byte, 300)) == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	c := w.delta()
	require.NoError(t, c.send(resuming(testType, 900_000)))
	require.Len(t, c.next().removed, 900)
	<-r.Closed
}

// A stream keeps the room of what it brought along for a type that is not synced, but not from others.
func TestRoomIsNotKeptFromOthersForWhatIsNotSynced(t *testing.T) {
	w := newFixture(t, gated())
	w.limiter.memory.patience = 20 * time.Millisecond
	w.set(testType, "a")
	keeps := w.delta()
	require.NoError(t, keeps.send(resuming("never synced", 900_000)))
	eventually(t, func() bool { return w.asking() == 1 })
	require.Never(t, w.empty, 2*dueHeldPatience*w.limiter.memory.patience, quiet) // while nobody waits for it
	c := w.delta()
	require.NoError(t, c.send(resuming(testType, 900_000)))
	require.Len(t, c.next().removed, 900)
	require.Error(t, keeps.ended())
	require.InDelta(t, 1, w.refused(refusedStalled), 0)
}

func TestARequestThatIsWithItsStreamDoesNotStall(t *testing.T) {
	limits := gated()
	limits.setDefaults()
	g := newMemoryLimiter(&limits)
	g.patience = time.Hour
	stalled := make(chan error, 100)
	lose := func(err error) { stalled <- err }
	r, err := g.enter(t.Context(), "host", 900_000, 900_000, lose)
	require.NoError(t, err)
	g.patience = time.Millisecond
	g.waiting.Add(1)
	held := make(chan struct{}, 100)
	r.hold(900_000, func() bool { held <- struct{}{}; return true }, lose)
	r.checkProgress(0, lose) // as if its timer had gone off just before
	<-held
	r.release()
	for len(stalled) > 0 {
		require.ErrorIs(t, <-stalled, errHeld)
	}
}

func TestAHostHasHalfOfTheRoom(t *testing.T) {
	w := &fixture{t: t, limiter: NewLimiter(nil, Limits{RequestBytes: 1 << 20, RequestMemory: 4 << 20}, nil)}
	g := w.limiter.memory
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var rooms []*reservation
	enter := func(host string) error {
		r, err := g.enter(ended, host, 1<<20, 1<<20, nil) // it does not wait
		if err == nil {
			rooms = append(rooms, r)
		}
		return err
	}
	require.NoError(t, enter("a"))
	require.NoError(t, enter("a"))
	require.Error(t, enter("a"))
	require.NoError(t, enter("b"))
	require.NoError(t, enter("b"))
	require.Error(t, enter("c"))
	for _, r := range rooms {
		r.release()
		r.release()
	}
	require.Empty(t, g.hosts)
	require.True(t, w.empty())
}

// A request that is too large is refused when gRPC's header is there, and needs no room.
func TestATooLargeRequestIsRefusedByItsHeader(t *testing.T) {
	w := newFixture(t, gated())
	r := w.raw()
	id := r.Open(true)
	r.Data(id, testutil.MessagePrefix(60<<20))
	eventually(t, func() bool {
		return w.refused(refusedRequestBytes) == 1
	})
	require.True(t, w.empty())
	eventually(t, func() bool { return len(w.server.Clients()) == 0 })
}

func TestWhoSendsFramesOfOneByteIsReadNoFurther(t *testing.T) {
	w := newFixture(t, Limits{})
	r := w.raw()
	id := r.Open(true)
	r.Data(id, testutil.MessagePrefix(64<<10))
	for r.Framer.WriteData(id, false, []byte{0}) == nil {
		// until the server has had enough
	}
	<-r.Closed
	require.InDelta(t, 1, w.refused(refusedFrames), 0)
}

func always() bool { return true }

func TestSmallFrames(t *testing.T) {
	for _, tt := range []struct {
		size, frames int
		err          error
	}{
		{1, freeFrames, nil},
		{1, freeFrames + 2, errSmallFrames},
		{leastFrame, 60_000 / leastFrame, nil},
		{leastFrame / 2, 60_000 / leastFrame, errSmallFrames},
	} {
		f := newFrames(func(*incoming) {}, func(*incoming) {}, always, unlimited)
		f.preface = 0
		send := func(b []byte) {
			f.read(append([]byte{0, byte(len(b) >> 8), byte(len(b)), frameData, 0, 0, 0, 0, 1}, b...)) //nolint:gosec // short
		}
		for range 3 { // each message is counted by itself
			send(testutil.MessagePrefix(tt.size * tt.frames))
			for range tt.frames {
				send(make([]byte, tt.size))
			}
		}
		require.ErrorIs(t, f.err, tt.err, "%d of %d bytes", tt.frames, tt.size)
	}
}

// Messages are found in the frames however these are cut.
func TestFrames(t *testing.T) {
	var sent []byte
	frame := func(kind, flags byte, id byte, payload ...byte) {
		sent = append(sent, 0, 0, byte(len(payload)), kind, flags, 0, 0, 0, id)
		sent = append(sent, payload...)
	}
	sent = append(sent, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"...)
	frame(4, 0, 0)                             // SETTINGS
	frame(1, 4, 1, 1, 2, 3)                    // HEADERS
	frame(0, 0, 1, 0, 0, 0, 0, 2, 'a')         // DATA: a message of two bytes begins
	frame(0, 0, 3, 0, 0, 0)                    // a prefix begins
	frame(0, 8, 1, 2, 'b', 0, 0, 0, 0, 0, 'p') // it is whole, a prefix begins; two bytes of padding
	frame(0, 0, 3, 0, 1, 'c', 1, 0, 0, 1, 0)   // another is whole, a compressed one of 256 bytes begins
	frame(3, 0, 3, 0, 0, 0, 8)                 // RST_STREAM
	frame(0, 1, 5, 0, 0, 0, 0, 9, 'd')         // ended before it is whole
	for cut := 1; cut <= len(sent); cut++ {
		var got []string
		f := newFrames(
			func(m *incoming) { got = append(got, fmt.Sprint("began ", m.size, " ", m.compressed())) },
			func(m *incoming) { got = append(got, fmt.Sprint("ended ", m.size, " ", m.compressed(), " ", m.left)) },
			always, unlimited,
		)
		for b := sent; len(b) > 0; {
			n := min(cut, len(b))
			require.Equal(t, n, f.read(b[:n]))
			b = b[n:]
		}
		require.Equal(t, []string{
			"began 2 false", "ended 2 false 0", "began 1 false", "ended 1 false 0", "began 256 true", "ended 256 true 256",
			"began 9 false", "ended 9 false 8",
		}, got, "cut every %d bytes", cut)
		require.Len(t, f.messages, 1, "the prefix that is not whole")
	}
}

// Reading ends with the header of a frame that opens a stream which has to wait.
func TestFramesOfStreamsThatWait(t *testing.T) {
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	headers := func(id byte) []byte { return []byte{0, 0, 1, frameHeaders, 4, 0, 0, 0, id, 'h'} }
	sent := slices.Concat(headers(1), settings, headers(1), headers(3), headers(3), headers(5))
	f := newFrames(nil, nil, func() bool { return false }, unlimited)
	f.preface = 0
	var ends []int
	for at := 0; at < len(sent); {
		f.waits = false
		at += f.read(sent[at:])
		ends = append(ends, at)
	}
	require.Equal(t, []int{38, 58, 59}, ends, "the first frame is part of the handshake")
}

// FuzzFrames has a client send anything in place of frames. Messages that begin end once, and what is found does not depend on how the
// bytes are cut.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x06\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x02a\x00\x00\x03\x00\x08\x00\x00\x00\x01\x01b\x00"), uint8(3))
	f.Add([]byte("\x00\x00\x03\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x03"), uint8(1))
	f.Add([]byte("\x00\x00\x01\x01\x04\x00\x00\x00\x01a\x00\x00\x01\x09\x04\x00\x00\x00\x01b"), uint8(0))
	f.Fuzz(func(t *testing.T, sent []byte, cut uint8) {
		var found []string
		for _, size := range []int{len(sent), 1 + int(cut)} {
			var got []string
			open, waits := map[*incoming]bool{}, false
			f := newFrames(
				func(m *incoming) { got = append(got, fmt.Sprint("began ", m.size, " ", m.compressed())) },
				func(m *incoming) { got = append(got, fmt.Sprint("ended ", m.size, " ", m.left)) },
				func() bool { waits = !waits; return waits }, unlimited,
			)
			f.preface = 0
			testutil.Cost(t, len(sent), 1000, func() {
				for b := sent; len(b) > 0; {
					f.waits = false
					b = b[f.read(b[:min(size, len(b))]):]
				}
			})
			for _, m := range f.messages {
				require.False(t, open[m], "on two streams")
				open[m] = true
			}
			require.LessOrEqual(t, len(f.messages), 1+len(sent)/frameHeader)
			if size == len(sent) {
				found = got
			}
			require.Equal(t, found, got)
		}
	})
}
