package transport

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/testutil"
	"tributary/server/xds"

	"tributary/internal/xdstest"
)

func TestLimits(t *testing.T) {
	for reason, tt := range map[string]struct {
		limits Limits
		exceed func(w *fixture, c *xdstest.Client) (refused *xdstest.Client)
	}{
		refusedStreams: {Limits{Streams: 1}, func(w *fixture, _ *xdstest.Client) *xdstest.Client { return w.delta() }},
		refusedStreamsOfPeer: {Limits{StreamsPerPeer: 1}, func(w *fixture, _ *xdstest.Client) *xdstest.Client {
			return w.delta()
		}},
		refusedRequestBytes: {Limits{RequestBytes: 1000}, func(_ *fixture, c *xdstest.Client) *xdstest.Client {
			c.Ask("second", fmt.Sprintf("%01000d", 0))
			return c
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			tt.limits.RefusalDelay = -1
			w := newFixture(t, tt.limits)
			w.set(testType, "a")
			c := w.delta()
			c.Ask(testType)
			c.ExpectAck(testType, nil, "a@1")
			err := tt.exceed(w, c).Ended()
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			require.Regexp(t, "the limit is|larger than max", err.Error())
			w.refusedFor(reason, 1)
			require.Equal(t, map[string]float64{reason: 1}, w.refusals(), "only this reason")
		})
	}
}

func TestRefusedStream_KeptOpenForDelay(t *testing.T) {
	fixture := newFixture(t, Limits{Streams: 1, RefusalDelay: time.Hour})
	fixture.set(testType, "a")
	first := fixture.delta()
	first.Ask(testType)
	first.ExpectAck(testType, nil, "a@1")
	fixture.delta().Silence() // and is let go when the server closes: the test ends
}

func TestStreamEnd_FreesSlot(t *testing.T) {
	fixture := newFixture(t, Limits{Streams: 1, StreamsPerPeer: 1})
	fixture.set(testType, "a")
	for range 3 {
		client := fixture.delta()
		client.Ask(testType)
		client.ExpectAck(testType, nil, "a@1")
		client.Close()
		require.Error(t, client.Ended())
	}
	require.Empty(t, fixture.limiter.perPeer)
}

func TestRefusals_Logged(t *testing.T) {
	var buffer testutil.Buffer
	w := newLoggedWorld(t, Limits{Streams: 1, RefusalDelay: -1}, buffer.Logger())
	w.delta()
	eventually(t, func() bool { return w.server.Streams() == 1 })
	require.Error(t, w.delta().Ended())
	require.Contains(t, buffer.String(), "too many streams: the limit is 1")
}

// A header costs more memory than its bytes on the wire: HPACK sends a repeated header as one byte.
func TestHeaders_Bounded(t *testing.T) {
	fixture := newFixture(t, Limits{})
	fixture.set(testType, "a")
	rawClient := fixture.raw()
	var long [][2]string
	for range 20 {
		long = append(long, [2]string{"x-token", strings.Repeat("t", 2000)})
	}
	rawClient.Data(rawClient.OpenWith(long), rawClient.Message(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType}))
	eventually(t, func() bool { return fixture.served() == 1 })
	var short [][2]string
	for range fixture.limiter.limits.HeaderBytes / 32 {
		short = append(short, [2]string{"x", ""})
	}
	refused := rawClient.OpenWith(short)
	require.Equal(t, refused, <-rawClient.Resets)
	require.Len(t, fixture.server.Clients(), 1)
}

func TestLimitDefaults_Positive(t *testing.T) {
	var l Limits
	l.setDefaults()
	for field, v := range reflect.ValueOf(l).Fields() {
		require.Positive(t, v.Convert(reflect.TypeFor[float64]()).Float(), field.Name)
	}
}

func TestResumeWithRemovals_ReleasesMemory(t *testing.T) {
	fixture := newFixture(t, Limits{})
	fixture.set(xds.ClusterURL, "c")
	fixture.set(xds.EndpointURL, "c")
	client := fixture.delta()
	m := &discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: xds.ClusterURL, InitialResourceVersions: map[string]string{"c": "1", "gone": "1"},
		ResourceNamesSubscribe: []string{"c", "gone"},
	}
	for i := range 4000 { // of things that are not wanted by name: size only
		m.InitialResourceVersions[fmt.Sprintf("some-quite-long-name-%d", i)] = "1"
	}
	client.Send(m)
	eventually(t, func() bool { return fixture.asking() == 1 })
	eventually(t, fixture.empty)
}

// TestDelay_Bounded: beyond a number of refused streams, the next ones do not wait for their refusal.
func TestDelay_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewLimiter(noEngine{}, Limits{RefusalDelay: time.Hour}, nil)
		limiter.delayed.Store(maxDelayed)
		started := time.Now()
		limiter.delay(t.Context())
		require.Zero(t, time.Since(started))
		require.EqualValues(t, maxDelayed, limiter.delayed.Load())
	})
}
