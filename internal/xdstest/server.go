package xdstest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"tributary/internal/testutil"
)

// Patience bounds each wait of a test.
const Patience = 30 * time.Second

type (
	// SotWStream is the server's side of a stream in state of the world.
	SotWStream = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	// DeltaStream is the server's side of a stream by delta.
	DeltaStream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
)

// Server runs a script on each stream, with the number of earlier streams. A variant without a script is not
// implemented.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	SotW  func(earlier int, s SotWStream) error
	Delta func(earlier int, s DeltaStream) error

	streams atomic.Int64
}

// StreamAggregatedResources implements the service.
func (s *Server) StreamAggregatedResources(stream SotWStream) error {
	if s.SotW == nil {
		return s.UnimplementedAggregatedDiscoveryServiceServer.StreamAggregatedResources(stream)
	}
	return s.SotW(int(s.streams.Add(1))-1, stream)
}

// DeltaAggregatedResources implements the service.
func (s *Server) DeltaAggregatedResources(stream DeltaStream) error {
	if s.Delta == nil {
		return s.UnimplementedAggregatedDiscoveryServiceServer.DeltaAggregatedResources(stream)
	}
	return s.Delta(int(s.streams.Add(1))-1, stream)
}

// Serve serves until the test ends, and returns the address.
func (s *Server) Serve(t testing.TB, opts ...grpc.ServerOption) (address string) {
	t.Helper()
	server := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	address, _ = Serve(t, server)
	return address
}

// ServeInMemory serves without a network until the test ends, as tests in a bubble of synctest need it. Clients with
// the returned option reach the server under any address.
func (s *Server) ServeInMemory(t testing.TB, opts ...grpc.ServerOption) grpc.DialOption {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	testutil.ServeGRPC(t, listener, server)
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	})
}

// Serve serves on a free port of this machine until the test ends or stop is called.
func Serve(t testing.TB, server *grpc.Server) (address string, stop func()) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener.Addr().String(), testutil.ServeGRPC(t, listener, server)
}

// Engine is an xds.Server.
type Engine interface {
	ServerOptions() []grpc.ServerOption
	Register(registrar grpc.ServiceRegistrar)
	Close()
}

// ServeEngine serves an engine until the test ends, and returns the address.
func ServeEngine(t testing.TB, engine Engine) (address string) {
	t.Helper()
	t.Cleanup(engine.Close)
	server := grpc.NewServer(append(engine.ServerOptions(), grpc.WaitForHandlers(true))...)
	engine.Register(server)
	address, _ = Serve(t, server)
	return address
}

// serverStream is a stream of either variant.
type serverStream[Q, R any] interface {
	Context() context.Context
	SetHeader(md metadata.MD) error
	Send(response R) error
	Recv() (Q, error)
}

// Stream is the server's side of a stream that the test drives.
type Stream[Q, R any] struct {
	serverStream[Q, R]

	t        testing.TB
	patience time.Duration
	requests chan Q
	end      chan error
}

type (
	// SotW is a driven stream in state of the world.
	SotW = Stream[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]
	// Delta is a driven stream by delta.
	Delta = Stream[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse]
)

// Driven is a server with streams that the test drives. A stream stays open until the test or the client ends it.
type Driven[Q, R any] struct {
	Address string            // of ListenSotW and ListenDelta
	Dial    []grpc.DialOption // of SotWInMemory and DeltaInMemory

	t        testing.TB
	patience time.Duration
	streams  chan *Stream[Q, R]
}

type (
	// DrivenSotW is a driven server of state of the world.
	DrivenSotW = Driven[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]
	// DrivenDelta is a driven server of deltas.
	DrivenDelta = Driven[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse]
)

func newDriven[Q, R any](t testing.TB, patience time.Duration) *Driven[Q, R] {
	return &Driven[Q, R]{t: t, patience: patience, streams: make(chan *Stream[Q, R], 1000)}
}

// run is the script of the server.
func (d *Driven[Q, R]) run(s serverStream[Q, R]) error {
	stream := &Stream[Q, R]{
		serverStream: s, t: d.t, patience: d.patience, requests: make(chan Q, 10_000), end: make(chan error, 1),
	}
	received := make(chan error, 1)
	go func() { // it ends with the stream
		for {
			request, err := s.Recv()
			if err != nil {
				received <- err
				return
			}
			stream.requests <- request
		}
	}()
	d.streams <- stream
	select {
	case err := <-stream.end:
		return err
	case err := <-received:
		return err
	}
}

// ListenSotW serves state-of-the-world streams that the test drives.
func ListenSotW(t testing.TB, opts ...grpc.ServerOption) *DrivenSotW {
	t.Helper()
	driven, server := newDrivenSotW(t, Patience)
	driven.Address = server.Serve(t, opts...)
	return driven
}

func newDrivenSotW(t testing.TB, patience time.Duration) (*DrivenSotW, *Server) {
	driven := newDriven[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse](t, patience)
	return driven, &Server{SotW: func(_ int, s SotWStream) error { return driven.run(s) }}
}

// ListenDelta serves delta streams that the test drives.
func ListenDelta(t testing.TB, opts ...grpc.ServerOption) *DrivenDelta {
	t.Helper()
	driven, server := newDrivenDelta(t, Patience)
	driven.Address = server.Serve(t, opts...)
	return driven
}

func newDrivenDelta(t testing.TB, patience time.Duration) (*DrivenDelta, *Server) {
	driven := newDriven[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse](t, patience)
	return driven, &Server{Delta: func(_ int, s DeltaStream) error { return driven.run(s) }}
}

// aeon is longer than any history of a test in a bubble.
const aeon = 1000 * 24 * time.Hour

// SotWInMemory is ListenSotW without a network, for a test in a bubble of synctest.
func SotWInMemory(t testing.TB, opts ...grpc.ServerOption) *DrivenSotW {
	t.Helper()
	driven, server := newDrivenSotW(t, aeon)
	driven.Dial = []grpc.DialOption{server.ServeInMemory(t, opts...)}
	return driven
}

// DeltaInMemory is ListenDelta without a network, for a test in a bubble of synctest.
func DeltaInMemory(t testing.TB, opts ...grpc.ServerOption) *DrivenDelta {
	t.Helper()
	driven, server := newDrivenDelta(t, aeon)
	driven.Dial = []grpc.DialOption{server.ServeInMemory(t, opts...)}
	return driven
}

// Next waits for the next stream.
func (d *Driven[Q, R]) Next() *Stream[Q, R] {
	d.t.Helper()
	return await(d.t, d.streams, d.patience, "no stream came")
}

// Pending is the number of streams that Next has not returned yet.
func (d *Driven[Q, R]) Pending() int { return len(d.streams) }

// Receive waits for the next request.
func (s *Stream[Q, R]) Receive() Q {
	s.t.Helper()
	return await(s.t, s.requests, s.patience, "no request came")
}

// Pending is the number of requests that Receive has not returned yet.
func (s *Stream[Q, R]) Pending() int { return len(s.requests) }

// Expect waits for the next request, which has to have this Description, and returns it.
func (s *Stream[Q, R]) Expect(description string) Q {
	s.t.Helper()
	request := s.Receive()
	require.Equal(s.t, description, Description(request))
	return request
}

// Send sends responses.
func (s *Stream[Q, R]) Send(responses ...R) {
	s.t.Helper()
	for _, response := range responses {
		require.NoError(s.t, s.serverStream.Send(response))
	}
}

// Exchange sends a response and waits for the next request.
func (s *Stream[Q, R]) Exchange(response R) Q {
	s.t.Helper()
	s.Send(response)
	return s.Receive()
}

// End ends the stream with a status.
func (s *Stream[Q, R]) End(err error) { s.end <- err }

// Receive waits for a value of a channel.
func Receive[T any](t testing.TB, values <-chan T) T {
	t.Helper()
	return await(t, values, Patience, "no message came")
}

func await[T any](t testing.TB, values <-chan T, patience time.Duration, failure string) T {
	t.Helper()
	select {
	case value := <-values:
		return value
	case <-time.After(patience):
		require.FailNow(t, failure)
		panic("unreachable")
	}
}
