package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/internal/testutil"
	"tributary/server/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a gRPC server until the test ends.
func serve(t *testing.T, register func(grpc.ServiceRegistrar), opts ...grpc.ServerOption) (address string) {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer(opts...)
	register(g)
	testutil.ServeGRPC(t, lis, g)
	return lis.Addr().String()
}

const typeA, typeB = "example.org/v1/A", "example.org/v1/B"

// catalog has a collection for each of some types.
type catalog map[string]*xds.Collection

func (c catalog) Collection(_ context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	if node.GetMetadata().GetFields()["GENERATOR"].GetStringValue() != "api" || c[typeURL] == nil {
		return nil, nil, status.Error(codes.Unimplemented, "not for you")
	}
	return c[typeURL], nil, nil
}

func entries(n int, version string, size int) (list []*xds.Entry) {
	for i := range n {
		list = append(list, entry(i, version, size))
	}
	return list
}

func entry(i int, version string, size int) *xds.Entry {
	return &xds.Entry{
		Name: fmt.Sprintf("shop/%d", i), Version: version,
		Any: protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), make([]byte, size)),
	}
}

// server serves two types of 100 resources each.
func server(t *testing.T) (address string, types catalog) {
	t.Helper()
	types = catalog{}
	for _, url := range []string{typeA, typeB} {
		c := xds.NewCollection(xds.Type{URL: url}, xds.Debounce{})
		c.Apply(xds.Commit{Put: entries(100, "1", 50)})
		c.MarkSynced()
		types[url] = c
	}
	engine := xds.NewServer(types, xds.Options{})
	address = serve(t, engine.Register, engine.ServerOptions()...)
	t.Cleanup(engine.Close)
	return address, types
}

func config(address string) Config {
	return Config{
		Server: address, Clients: 6, PerConnection: 4, Types: []string{typeA, typeB},
		Metadata: map[string]string{"GENERATOR": "api"}, SyncWithin: 10 * time.Second, Duration: time.Minute,
	}
}

// TestLoad changes one resource there and back while clients look on, until the load has seen it all.
func TestLoad(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(fmt.Sprintf("delta=%v", delta), func(t *testing.T) {
			address, types := server(t)
			cfg := config(address)
			cfg.Delta = delta
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			const rounds = 4
			changes := 0
			cfg.Progress = func(r Report) {
				switch {
				case r.Synced < cfg.Clients || r.Later.Messages < changes*cfg.Clients: // each client is to see each change
				case changes == rounds:
					cancel()
				default:
					changes++
					types[typeA].Apply(xds.Commit{Put: []*xds.Entry{entry(7, fmt.Sprint(1+changes%2), 50)}})
				}
			}
			cfg.Every = 5 * time.Millisecond
			r, err := Run(ctx, cfg)
			require.NoError(t, err)
			assert.Equal(t, 6, r.Synced)
			assert.Zero(t, r.Failed)
			assert.Equal(t, 12, r.Initial.Messages)
			assert.EqualValues(t, 12*100, r.Initial.Resources)
			assert.Greater(t, r.Initial.Bytes, int64(12*100*50))
			assert.Equal(t, 6, r.Sync.Count)
			assert.Equal(t, rounds, r.Changes, "also those that undo another")
			assert.Equal(t, rounds*6, r.Later.Messages)
			assert.Equal(t, rounds*5, r.Lag.Count, "of all clients but the first")
			if delta {
				assert.EqualValues(t, rounds*6, r.Later.Resources)
			} else {
				assert.EqualValues(t, rounds*6*100, r.Later.Resources)
			}
		})
	}
}

func TestRun_EndsAfterItsDuration(t *testing.T) {
	address, _ := server(t)
	cfg := config(address)
	cfg.Duration = time.Millisecond
	r, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, 6, r.Synced)
	assert.Positive(t, r.SyncedIn)
}

// TestAnswersInPieces: a first answer of a delta stream may be cut into several responses.
func TestAnswersInPieces(t *testing.T) {
	address, types := server(t)
	types[typeB].Apply(xds.Commit{Put: entries(5, "2", 1<<20)})
	cfg := config(address)
	cfg.Delta, cfg.Duration = true, time.Millisecond
	r, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	assert.Greater(t, r.Initial.Messages, 2*cfg.Clients)
	assert.EqualValues(t, 200*cfg.Clients, r.Initial.Resources)
	assert.Zero(t, r.Later)
	assert.Zero(t, r.Changes)
}

func TestRun_ReportsFailures(t *testing.T) {
	t.Run("nobody there", func(t *testing.T) {
		r, err := Run(t.Context(), config("127.0.0.1:1"))
		require.ErrorContains(t, err, "6 of 6 streams to 127.0.0.1:1 failed; the first: ")
		require.ErrorContains(t, err, "nobody listens there")
		assert.Equal(t, 6, r.Failed)
	})
	t.Run("refused", func(t *testing.T) {
		address, _ := server(t)
		cfg := config(address)
		cfg.Types = append(cfg.Types, "example.org/v1/C")
		r, err := Run(t.Context(), cfg)
		require.ErrorContains(t, err, "not for you")
		assert.Zero(t, r.Synced)
	})
	t.Run("no answer", func(t *testing.T) {
		address, types := server(t)
		types[typeB] = xds.NewCollection(xds.Type{URL: typeB}, xds.Debounce{}) // never synced
		cfg := config(address)
		cfg.SyncWithin = 50 * time.Millisecond
		_, err := Run(t.Context(), cfg)
		require.EqualError(t, err, address+" had answered all types to 0 of 6 clients within 50ms")
	})
	t.Run("cut off", func(t *testing.T) {
		address := serve(t, func(g grpc.ServiceRegistrar) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, closer{}) })
		_, err := Run(t.Context(), config(address))
		require.ErrorContains(t, err, "6 of 6 streams to "+address+" failed")
	})
	t.Run("not an address", func(t *testing.T) {
		_, err := Run(t.Context(), config("dns:///\x00"))
		require.Error(t, err)
	})
}

// closer ends every stream at once.
type closer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

func (closer) StreamAggregatedResources(discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return errors.New("go away")
}
