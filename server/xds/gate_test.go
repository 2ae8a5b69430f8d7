package xds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// resuming is a request that brings along versions of about size bytes.
func resuming(typeURL string, size int) *discoveryv3.DeltaDiscoveryRequest {
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, InitialResourceVersions: map[string]string{"a": "1"}}
	for i := range size / 1000 {
		m.InitialResourceVersions[fmt.Sprintf("gone-%d", i)] = strings.Repeat("v", 1000)
	}
	return m
}

// free says how many bytes of requests the gate has room for.
func (w *world) free() (n int64) {
	g := w.server.gate
	for n < g.size && g.rooms.TryAcquire(1<<10) {
		n += 1 << 10
	}
	g.rooms.Release(n)
	return n
}

func (w *world) full() bool  { return w.free() < 1<<20 }
func (w *world) empty() bool { return w.free() > w.server.gate.size-1<<10 }

func gated() Options {
	return Options{Limits: Limits{RequestBytes: 1 << 20, RequestMemory: 1 << 20, RefusalDelay: -1}}
}

func TestALargeRequestWaitsForRoom(t *testing.T) {
	w := newWorld(t, gated())
	w.server.gate.patience = time.Hour
	w.set(testType, "a")
	first := w.raw()
	upload := first.message(resuming(testType, 900_000))
	id := first.open(true)
	first.data(id, upload[:60<<10]) // and no more
	eventually(t, w.full)

	second := w.delta(testType)
	require.NoError(t, second.send(resuming(testType, 900_000)))
	eventually(t, func() bool { return w.server.gate.waiting.Load() == 1 })
	small := w.delta(testType)
	small.ask(testType)
	small.expect(testType, "a@1") // who sends little does not wait
	second.silence()

	go first.data(id, upload[60<<10:])
	require.Len(t, second.next().removed, 900) // who went first is done
	eventually(t, w.empty)
}

func TestRoomIsGivenBackByWhoHangsUp(t *testing.T) {
	for name, hangUp := range map[string]func(r *raw, id uint32){
		"the stream":     func(r *raw, id uint32) { require.NoError(r.w.t, r.framer.WriteRSTStream(id, 8)) },
		"the connection": func(r *raw, _ uint32) { require.NoError(r.w.t, r.conn.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gated())
			w.server.gate.patience = time.Hour
			r := w.raw()
			id := r.open(true)
			r.data(id, append(prefixOf(900_000), make([]byte, 10)...))
			eventually(t, w.full)
			hangUp(r, id)
			eventually(t, w.empty)
		})
	}
}

func TestWhoStallsLosesItsRoom(t *testing.T) {
	w := newWorld(t, gated())
	w.server.gate.patience = 50 * time.Millisecond
	w.set(testType, "a")
	r := w.raw()
	r.data(r.open(true), append(prefixOf(900_000), make([]byte, 10)...))
	eventually(t, w.full)
	require.Never(t, w.empty, 3*w.server.gate.patience, quiet) // while nobody waits for it, it can stay
	c := w.delta(testType)
	require.NoError(t, c.send(resuming(testType, 900_000)))
	require.Len(t, c.next().removed, 900)
	<-r.closed
	require.InDelta(t, 1, testutil.ToFloat64(w.server.metrics.refusals.WithLabelValues(refusedStalled)), 0)
}

// The versions that a client brings along are kept until they were looked at, and their room as well.
func TestRoomIsKeptUntilTheVersionsWereLookedAt(t *testing.T) {
	w := newWorld(t, gated())
	c := w.delta(testType)
	require.NoError(t, c.send(resuming(testType, 900_000)))
	eventually(t, func() bool { return w.asking() == 1 })
	require.True(t, w.full())
	w.set(testType, "a")
	require.Len(t, c.next().removed, 900)
	eventually(t, w.empty)
}

func TestACompressedRequestNeedsRoomForAllThatItMayBecome(t *testing.T) {
	w := newWorld(t, gated())
	w.server.gate.patience = time.Hour
	r := w.raw()
	prefix := prefixOf(100)
	prefix[0] = 1
	r.data(r.open(true), prefix)
	eventually(t, w.full)
}

// A request that is too large is refused when gRPC's header is there, and needs no room.
func TestATooLargeRequestIsRefusedByItsHeader(t *testing.T) {
	w := newWorld(t, gated())
	r := w.raw()
	id := r.open(true)
	r.data(id, prefixOf(60<<20))
	eventually(t, func() bool {
		return testutil.ToFloat64(w.server.metrics.refusals.WithLabelValues(refusedRequestBytes)) == 1
	})
	require.True(t, w.empty())
	eventually(t, func() bool { return len(w.server.Clients()) == 0 })
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
		)
		for b := sent; len(b) > 0; {
			n := min(cut, len(b))
			f.read(b[:n])
			b = b[n:]
		}
		require.Equal(t, []string{
			"began 2 false", "ended 2 false 0", "began 1 false", "ended 1 false 0", "began 256 true", "ended 256 true 256",
			"began 9 false", "ended 9 false 8",
		}, got, "cut every %d bytes", cut)
		require.Len(t, f.messages, 1, "the prefix that is not whole")
	}
}
