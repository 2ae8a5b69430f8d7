package xds

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestArrivalsAreSpacedOutByAddress(t *testing.T) {
	a, now := spacing{perSecond: 100}, time.Now()
	next := func(host string) (time.Duration, bool) { return a.next(host, 100*time.Millisecond, now) }
	for range 10 {
		wait, ok := next("a")
		require.True(t, ok)
		require.Zero(t, wait)
	}
	for i := range 10 {
		wait, ok := next("a")
		require.True(t, ok)
		require.InDelta(t, float64(i+1)/100, wait.Seconds(), 0.001)
	}
	for range 100 {
		_, ok := next("a")
		require.False(t, ok, "it would wait for too long")
	}
	wait, _ := next("b")
	require.Zero(t, wait, "others do not wait")
	now = now.Add(110 * time.Millisecond)
	wait, ok := next("a")
	require.True(t, ok, "those that were cut off are not owed anything")
	require.Zero(t, wait)
	for i := range 2 * manyHosts {
		next(fmt.Sprint(i))
		now = now.Add(time.Second)
	}
	require.Less(t, len(a.hosts), manyHosts+1)
	a.perSecond = -1
	for range 100 {
		wait, ok := next("a")
		require.True(t, ok)
		require.Zero(t, wait)
	}
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
	}
	eventually(t, func() bool {
		return testutil.ToFloat64(w.server.metrics.refusals.WithLabelValues(refusedArrivals)) > 0
	})
}
