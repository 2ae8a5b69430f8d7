package xds

import (
	"fmt"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

func TestLimits(t *testing.T) {
	for reason, tt := range map[string]struct {
		limits Limits
		exceed func(w *world, c *client) (refused *client)
	}{
		refusedStreams:        {Limits{Streams: 1}, func(w *world, _ *client) *client { return w.delta(testType) }},
		refusedStreamsPerPeer: {Limits{StreamsPerPeer: 1}, func(w *world, _ *client) *client { return w.sotw(testType) }},
		refusedTypes: {Limits{TypesPerStream: 2}, func(_ *world, c *client) *client {
			c.ask("second")
			c.ask("third")
			return c
		}},
		refusedNames: {Limits{NamesPerStream: 3}, func(_ *world, c *client) *client {
			c.ask("second", "a", "b")
			c.ask("third", "c", "d")
			return c
		}},
		refusedRequestBytes: {Limits{RequestBytes: 1000}, func(_ *world, c *client) *client {
			c.ask("second", fmt.Sprintf("%01000d", 0))
			return c
		}},
		refusedRequestRate: {Limits{RequestsPerSecond: 0.5}, func(_ *world, c *client) *client {
			for c.send(&discoveryv3.DiscoveryRequest{TypeUrl: testType}) == nil {
				// until the server has had enough
			}
			return c
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			tt.limits.RefusalDelay = -1
			metrics := prometheus.NewPedanticRegistry()
			w := newWorld(t, Options{Limits: tt.limits, Registerer: metrics})
			w.set(testType, "a")
			c := w.sotw(testType)
			c.ask(testType)
			c.expectAck(testType, nil, "a@1")
			err := tt.exceed(w, c).ended()
			require.Equal(t, codes.ResourceExhausted, grpcstatus.Code(err))
			require.Contains(t, err.Error(), "the limit is")
			require.InDelta(t, 1, testutil.ToFloat64(w.server.metrics.refusals.WithLabelValues(reason)), 0)
			count, err := testutil.GatherAndCount(metrics, "tributary_xds_refusals_total")
			require.NoError(t, err)
			require.Equal(t, 1, count, "only this reason")
		})
	}
}

func TestARefusedStreamIsKeptAWhile(t *testing.T) {
	w := newWorld(t, Options{Limits: Limits{Streams: 1, RefusalDelay: time.Hour}})
	w.set(testType, "a")
	first := w.sotw(testType)
	first.ask(testType)
	first.expect(testType, "a@1")
	w.sotw(testType).silence() // and is let go when the server closes: the test ends
}

func TestLeavingMakesRoom(t *testing.T) {
	w := newWorld(t, Options{Limits: Limits{Streams: 1, StreamsPerPeer: 1}})
	w.set(testType, "a")
	for range 3 {
		c := w.sotw(testType)
		c.ask(testType)
		c.expect(testType, "a@1")
		require.NoError(t, c.close())
		eventually(t, func() bool { return len(w.server.Clients()) == 0 })
	}
	require.Empty(t, w.server.perPeer)
}
