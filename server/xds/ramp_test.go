package xds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// begun is the number of streams that have been read a request.
func (w *world) begun() (n int) {
	for _, c := range w.server.Clients() {
		if c.Node != nil {
			n++
		}
	}
	return n
}

func TestStreamsBeginInTurns(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *world, dial func(string, ...dialOption) *client) {
		w.server.ramp = newRamp(2)
		w.server.ramp.patience = time.Hour
		var clients []*client
		for range 5 {
			c := dial(testType)
			c.ask(testType)
			clients = append(clients, c)
		}
		eventually(t, func() bool { return len(w.server.Clients()) == 5 && w.begun() == 2 })
		require.Never(t, func() bool { return w.begun() != 2 }, 50*time.Millisecond, 5*time.Millisecond)
		w.set(testType, "a") // and synced: who was sent all makes room
		for _, c := range clients {
			c.expect(testType, "a@1")
		}
		require.Empty(t, w.server.ramp.turns)
	})
}

func TestATurnEndsIfTheClientIsSlow(t *testing.T) {
	w := newWorld(t, Options{Limits: Limits{StartingStreams: 1}})
	w.set(testType, "a")
	silent := w.delta(testType) // never asks
	c := w.delta(testType)
	c.ask(testType)
	c.expect(testType, "a@1") // when the turn is over
	require.NoError(t, silent.close())
}

func TestATurnEndsWithItsStream(t *testing.T) {
	w := newWorld(t, Options{Limits: Limits{StartingStreams: 1}})
	w.server.ramp.patience = time.Hour
	w.set(testType, "a")
	gone := w.delta(testType)
	eventually(t, func() bool { return len(w.server.ramp.turns) == 1 })
	require.NoError(t, gone.close())
	c := w.delta(testType)
	c.ask(testType)
	c.expect(testType, "a@1")
}

func TestWhoWaitsForATurnIsToldOfTheEnd(t *testing.T) {
	w := newWorld(t, Options{Limits: Limits{StartingStreams: 1}})
	w.server.ramp.patience = time.Hour
	w.delta(testType)
	eventually(t, func() bool { return len(w.server.Clients()) == 1 && len(w.server.ramp.turns) == 1 })
	waits := w.delta(testType)
	eventually(t, func() bool { return len(w.server.Clients()) == 2 })
	w.server.Drain(t.Context(), 0)
	require.Equal(t, codes.Unavailable, grpcstatus.Code(waits.ended()))
}
