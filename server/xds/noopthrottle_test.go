package xds

import (
	"testing"
	"time"

	"tributary/server/xds/wire"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
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
	for _, delta := range []bool{true, false} {
		fixture := newFixture(t, Options{})
		fixture.set(testType, "a")
		say := fixture.talker(delta)
		nonce := say("", "a")
		for range noopsBurst + 3 {
			say(nonce, "")
		}
		fixture.set(testType, "b")
		require.NotEqual(t, nonce, say("", "b"))
		require.InDelta(t, 1, testutil.ToFloat64(fixture.server.metrics.refusals.WithLabelValues(refusedNoops)), 0)
	}
}

// talker is a client that subscribes to a name, and returns the nonce of the response; or rejects the response of a
// nonce.
func (w *fixture) talker(delta bool) func(nonce, name string) string {
	conn, rejected := w.conn(), &status.Status{Message: "no"}
	w.t.Cleanup(func() { _ = conn.Close() })
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if delta {
		s, err := client.DeltaAggregatedResources(w.t.Context())
		require.NoError(w.t, err)
		return func(nonce, name string) string {
			if nonce != "" {
				require.NoError(w.t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType, ResponseNonce: nonce, ErrorDetail: rejected}))
				return ""
			}
			require.NoError(w.t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType, ResourceNamesSubscribe: []string{name}}))
			r, err := s.Recv()
			require.NoError(w.t, err)
			return r.GetNonce()
		}
	}
	s, err := client.StreamAggregatedResources(w.t.Context())
	require.NoError(w.t, err)
	var names []string
	return func(nonce, name string) string {
		if nonce != "" {
			require.NoError(w.t, s.Send(&discoveryv3.DiscoveryRequest{
				TypeUrl: testType, ResponseNonce: nonce, ErrorDetail: rejected,
				ResourceNames: names,
			}))
			return ""
		}
		names = append(names, name)
		require.NoError(w.t, s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, ResourceNames: names}))
		r, err := s.Recv()
		require.NoError(w.t, err)
		return r.GetNonce()
	}
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
