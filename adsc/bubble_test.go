package adsc_test

import (
	"context"
	"net"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"tributary/adsc"
	"tributary/internal/testutil"
)

// bubbled runs a server in memory, for tests in a bubble of synctest, where time is not that of the clock, and has cfg
// connect to it.
func bubbled(t *testing.T, cfg adsc.Config, run script, delta deltaScript, opts ...grpc.ServerOption) adsc.Config {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	s := &scriptedServer{run: run, delta: delta, streams: make(chan int, 1)}
	s.streams <- 0
	g := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	testutil.ServeGRPC(t, listener, g)
	cfg.Addresses = []string{"127.0.0.1:1"}
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	}))
	return cfg
}

// allowPings is the option of a server that takes pings as often as our clients send them.
var allowPings = grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second})

// chunked is the header of a server that marks the last response of several.
var chunked = metadata.Pairs("xds-delta-chunks", "version-at-end")

// pause is how a server waits in a bubble.
func pause(s interface{ Context() context.Context }, d time.Duration) {
	select {
	case <-s.Context().Done():
	case <-time.After(d):
	}
}
