package xds

import (
	"slices"
	"testing"
	"time"

	"tributary/internal/testutil"
	"tributary/internal/xdstest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// served is the number of streams that were sent something.
func (f *fixture) served() (n int) {
	for _, c := range f.server.Clients() {
		for _, t := range c.Types {
			if t.Responses > 0 {
				n++
				break
			}
		}
	}
	return n
}

// asking is the number of streams that asked for something.
func (f *fixture) asking() (n int) {
	for _, c := range f.server.Clients() {
		if len(c.Types) > 0 {
			n++
		}
	}
	return n
}

// haveTurns says whether all n turns are free.
func (f *fixture) haveTurns(n int) bool {
	turns := f.server.startLimiter.turns
	for range n {
		if turn := turns.Queue("another host"); turn != nil {
			turns.GiveUp("another host", turn)
			return false
		}
		defer turns.Leave()
	}
	return true
}

func TestStartLimiter_StreamsTakeTurns(t *testing.T) {
	fixture := newFixture(t)
	fixture.server.startLimiter = newStartLimiter(2)
	fixture.server.startLimiter.readTime = time.Hour
	fixture.large(testType)
	for range 5 {
		fixture.deaf(testType)
	}
	eventually(t, func() bool { return fixture.asking() == 5 && fixture.served() == 2 })
	require.Never(t, func() bool { return fixture.served() != 2 }, quiet, quiet/10)
}

func TestStartLimiter_ReleasesAfterResponse(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func() *xdstest.Client) {
		w.server.startLimiter = newStartLimiter(2)
		w.server.startLimiter.readTime = time.Hour
		var clients []*xdstest.Client
		for range 5 {
			c := dial()
			c.Ask(testType)
			clients = append(clients, c)
		}
		eventually(t, func() bool { return w.asking() == 5 })
		require.True(t, w.haveTurns(2), "no response is due yet")
		w.set(testType, "a")
		for _, c := range clients {
			c.Expect(testType, "a@1")
		}
		eventually(t, func() bool { return w.haveTurns(2) })
	})
}

func TestStartLimiter_SilentStreamsHoldNoSlot(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func() *xdstest.Client) {
		w.server.startLimiter = newStartLimiter(1)
		w.server.startLimiter.readTime = time.Hour
		w.set(testType, "a")
		for range 3 {
			dial()
		}
		eventually(t, func() bool { return len(w.server.Clients()) == 3 })
		c := dial()
		c.Ask(testType)
		c.Expect(testType, "a@1")
	})
}

func TestStartLimiter_CurrentStreamsHoldNoSlot(t *testing.T) {
	w := newFixture(t, Options{Limits: Limits{StartingStreams: 1}})
	w.server.startLimiter.readTime = time.Hour
	w.set(testType, "a")
	for range 3 {
		resumed := w.sotw()
		resumed.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, VersionInfo: w.coll(testType).Version()})
	}
	eventually(t, func() bool { return w.asking() == 3 })
	c := w.delta()
	c.Ask(testType)
	c.Expect(testType, "a@1")
}

func TestStartLimiter_SlowClientLosesSlot(t *testing.T) {
	fixture := newFixture(t, Options{Limits: Limits{StartingStreams: 1}})
	fixture.large(testType)
	fixture.deaf(testType)
	eventually(t, func() bool { return fixture.served() == 1 })
	c := fixture.delta()
	c.Ask(testType)
	require.NotEmpty(t, c.Next().Puts) // when the slot is free
}

// newBusyFixture has one slot for starting streams. A client that does not read has it until it hangs up.
func newBusyFixture(t *testing.T) (w *fixture, hangUp func()) {
	w = newFixture(t, Options{Limits: Limits{StartingStreams: 1}})
	w.server.startLimiter.readTime = time.Hour
	w.large(testType)
	hangUp = w.deaf(testType)
	eventually(t, func() bool { return w.served() == 1 })
	return w, hangUp
}

func TestStartLimiter_EndOfStreamReleasesSlot(t *testing.T) {
	fixture, hangUp := newBusyFixture(t)
	hangUp()
	c := fixture.delta()
	c.Ask(testType)
	require.NotEmpty(t, c.Next().Puts)
}

func TestStartLimiter_DrainEndsWaitingStream(t *testing.T) {
	fixture, _ := newBusyFixture(t)
	waits := fixture.delta()
	waits.Ask(testType)
	eventually(t, func() bool { return fixture.asking() == 2 })
	fixture.server.Drain(t.Context(), 0)
	require.Equal(t, codes.Unavailable, grpcstatus.Code(waits.Ended()))
}

// TestStartLimiter_AddressesTakeTurns: many slow streams from one address delay another address by one of them.
func TestStartLimiter_AddressesTakeTurns(t *testing.T) {
	fixture := newFixture(t, Options{Limits: Limits{StartingStreams: 1}})
	fixture.server.startLimiter.readTime = time.Hour
	fixture.large(testType)
	crowd := make(map[string]func())
	for range 5 {
		r := testutil.DialRaw(fixture.t, "127.0.0.2", fixture.addr)
		r.Data(r.Open(true), r.Message(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType}))
		crowd[r.Conn.LocalAddr().String()] = func() { _ = r.Conn.Close() }
	}
	waiting := fixture.server.startLimiter.turns.Waiting
	eventually(t, func() bool { return waiting() == 4 && fixture.served() == 1 })
	client := fixture.delta()
	client.Ask(testType)
	eventually(t, func() bool { return waiting() == 5 })
	for range 2 { // the first client, and one of the earlier ones
		eventually(t, func() bool { return fixture.served() == 1 })
		for _, status := range fixture.server.Clients() {
			if slices.ContainsFunc(status.Types, func(t TypeStatus) bool { return t.Responses > 0 }) {
				crowd[status.Peer]()
				delete(crowd, status.Peer)
			}
		}
		eventually(t, func() bool { return fixture.asking() == len(crowd)+1 })
	}
	require.NotEmpty(t, client.Next().Puts)
}
