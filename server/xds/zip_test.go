package xds

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"tributary/internal/xdstest"
)

func TestStored_IsGzip(t *testing.T) {
	for _, n := range []int{0, 1, 100, 1<<16 - 1, 1 << 16, 200_000} {
		want := []byte(strings.Repeat("x", n))
		r, err := gzip.NewReader(bytes.NewReader(stored(want)))
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// byteCounts counts the bytes that a client receives, compressed and decompressed.
type byteCounts struct{ compressed, length int }

func (b *byteCounts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (b *byteCounts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (b *byteCounts) HandleConn(context.Context, stats.ConnStats)                       {}
func (b *byteCounts) HandleRPC(_ context.Context, s stats.RPCStats) {
	if payload, ok := s.(*stats.InPayload); ok {
		b.compressed += payload.CompressedLength
		b.length += payload.Length
	}
}

// A client that accepts gzip gets the same responses in fewer bytes, however they are made.
func TestGzip(t *testing.T) {
	w := newFixture(t, Options{Gzip: true, AckTimeout: time.Millisecond})
	reported := func() int { return int(promtest.ToFloat64(w.server.metrics.bytes.WithLabelValues(testType))) }
	var items []string
	for i := range 500 {
		items = append(items, fmt.Sprintf("name-%04d", i))
	}
	w.set(testType, items...)
	for _, variant := range []string{"sotw", "delta"} {
		t.Run(variant, func(t *testing.T) {
			var counted byteCounts
			before := reported()
			conn, err := grpc.NewClient(w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&counted))
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
			var stream grpc.ClientStream
			if variant == "delta" {
				stream, err = client.DeltaAggregatedResources(t.Context())
			} else {
				stream, err = client.StreamAggregatedResources(t.Context())
			}
			require.NoError(t, err)
			next := func() xdstest.Answer {
				a, err := xdstest.ReadAnswer(t, stream, variant == "delta")
				require.NoError(t, err)
				return a
			}
			if variant == "delta" {
				require.NoError(t, stream.SendMsg(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType}))
			} else {
				require.NoError(t, stream.SendMsg(&discoveryv3.DiscoveryRequest{TypeUrl: testType}))
			}
			require.Len(t, next().Puts, len(items))
			require.Less(t, counted.compressed*3, counted.length)
			if variant == "delta" { // a list of its own
				require.NoError(t, stream.SendMsg(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType, ResourceNamesSubscribe: items[:3]}))
				require.Len(t, next().Puts, 3)
			}
			require.Equal(t, counted.compressed, reported()-before)
		})
	}
}
