package adsc_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/adsc"
	"tributary/internal/testutil"
)

// patience bounds each wait of a test.
const patience = 30 * time.Second

// stream is one stream of a scripted server.
type stream = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer

// script is the server's side of its n-th stream, counted from 0.
type script func(n int, s stream) error

// deltaStream is one delta stream of a scripted server, and deltaScript the server's side of the n-th one.
type (
	deltaStream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	deltaScript func(n int, s deltaStream) error
)

type scriptedServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	run     script      // nil if the server has no such streams
	delta   deltaScript // the same
	streams chan int
}

func (s *scriptedServer) StreamAggregatedResources(st stream) error {
	if s.run == nil {
		return s.UnimplementedAggregatedDiscoveryServiceServer.StreamAggregatedResources(st)
	}
	n := <-s.streams
	s.streams <- n + 1
	return s.run(n, st)
}

func (s *scriptedServer) DeltaAggregatedResources(st deltaStream) error {
	if s.delta == nil {
		return s.UnimplementedAggregatedDiscoveryServiceServer.DeltaAggregatedResources(st)
	}
	n := <-s.streams
	s.streams <- n + 1
	return s.delta(n, st)
}

// serve runs a server until the test ends, and returns its address.
func serve(t *testing.T, run script, opts ...grpc.ServerOption) string {
	t.Helper()
	return serveBoth(t, run, nil, opts...)
}

// serveDelta is serve for a server of delta only.
func serveDelta(t *testing.T, delta deltaScript, opts ...grpc.ServerOption) string {
	t.Helper()
	return serveBoth(t, nil, delta, opts...)
}

// serveBoth is serve for a server of both.
func serveBoth(t *testing.T, run script, delta deltaScript, opts ...grpc.ServerOption) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &scriptedServer{run: run, delta: delta, streams: make(chan int, 1)}
	s.streams <- 0
	g := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	testutil.ServeGRPC(t, listener, g)
	return listener.Addr().String()
}

// response makes a response of strings.
func response(t *testing.T, typeURL, version, nonce string, values ...string) *discoveryv3.DiscoveryResponse {
	t.Helper()
	discoveryResponse := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: version, Nonce: nonce}
	for _, v := range values {
		a, err := anypb.New(wrapperspb.String(v))
		require.NoError(t, err)
		discoveryResponse.Resources = append(discoveryResponse.Resources, a)
	}
	return discoveryResponse
}

// values is the inverse of response.
func values(t *testing.T, r *adsc.Response) []string {
	t.Helper()
	var out []string
	for _, a := range r.Bodies() {
		var v wrapperspb.StringValue
		require.NoError(t, a.UnmarshalTo(&v))
		out = append(out, v.GetValue())
	}
	return out
}

// run runs a client until stop is called or the test ends, and hands out Run's error.
func run(t *testing.T, cfg adsc.Config) (stop func(), result <-chan error) {
	t.Helper()
	c, err := adsc.New(cfg)
	require.NoError(t, err)
	return start(t, c)
}

// start is run for a client that was made.
func start(t *testing.T, client *adsc.Client) (stop func(), result <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		ended <- client.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		receive(t, joined)
	})
	return cancel, ended
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		require.FailNow(t, "no message came")
		panic("unreachable")
	}
}

// retries is a backoff that allows n retries without delay.
func retries(n int) func() backoff.BackOff {
	return func() backoff.BackOff {
		if n == 0 {
			return &backoff.StopBackOff{}
		}
		return backoff.WithMaxRetries(&backoff.ZeroBackOff{}, uint64(n))
	}
}

var errRefused = errors.New("resource b: refused")

// finished waits for the end of a Run, which has to return an error.
func finished(t *testing.T, ended <-chan error) {
	t.Helper()
	require.Error(t, receive(t, ended))
}
