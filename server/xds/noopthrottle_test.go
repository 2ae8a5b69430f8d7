package xds

import (
	"testing"
	"time"

	"tributary/internal/xdstest"
	"tributary/server/xds/wire"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
)

func TestNoops_ReadSlowly(t *testing.T) {
	noopThrottle, now := newNoopThrottle(), time.Now()
	for range 50 {
		require.Zero(t, noopThrottle.delay(50, now), "each response may be answered")
	}
	for range noopsBurst {
		require.Zero(t, noopThrottle.delay(50, now), "some more may come")
	}
	require.Equal(t, time.Second/noopsPerSecond, noopThrottle.delay(50, now))
	require.Equal(t, 2*time.Second/noopsPerSecond, noopThrottle.delay(50, now))
	require.Zero(t, noopThrottle.delay(51, now), "another response may be answered")
	require.Equal(t, 3*time.Second/noopsPerSecond, noopThrottle.delay(51, now))
}

// A client that rejects the same response over and over is still served, and its stream goes on.
func TestNoisyClient_ReadSlowlyAndServed(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func() *xdstest.Client) {
		w.set(testType, "a")
		c := dial()
		c.Ask(testType, "a")
		answer := c.Expect(testType, "a@1")
		for range noopsBurst + 3 {
			c.Request(testType, answer.Nonce, &status.Status{Message: "no"}, map[bool][]string{false: {"a"}}[c.Delta]...)
		}
		w.set(testType, "b")
		c.Ask(testType, "a", "b")
		require.Contains(t, c.Next().Puts, "b@1")
		require.InDelta(t, 1, testutil.ToFloat64(w.server.metrics.refusals.WithLabelValues(refusedNoops)), 0)
	})
}

// A change of names before the client has the last response, as when it finds one name after another, is no no-op; its
// repetition is.
func TestNameChangeBeforeAck_IsNoNoop(t *testing.T) {
	s := &subscription{
		coll: NewCollection(Type{URL: testType}, Debounce{}), firstNonce: 2, lastNonce: 2,
		client: clientState{state: initialState},
	}
	names := []string{"a"}
	asks := func(nonce string) bool {
		r := &wire.Request{Nonce: nonce, Names: names}
		s.apply(r, false, time.Now())
		return r.ChangesSubscription
	}
	require.True(t, asks("2"))
	require.False(t, asks("2"), "that is an acknowledgement")
	s.firstNonce, s.lastNonce = 3, 3 // which is on its way
	require.False(t, asks("2"))
	for _, name := range []string{"b", "c", "d"} {
		names = append(names, name)
		require.True(t, asks("2"), name)
		require.False(t, asks("2"), name)
	}
	names = names[:1]
	require.True(t, asks("2"), "it needs less")
	require.False(t, asks("2"))
	names = []string{"e"}
	require.True(t, asks("2"), "it needs another one")
	require.False(t, asks("2"))
}
