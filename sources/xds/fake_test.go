package xds

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcpv1alpha1 "istio.io/api/mcp/v1alpha1"

	"tributary/internal/testutil"
)

const (
	entriesV1    = "networking.istio.io/v1/ServiceEntry"
	entriesAlpha = "networking.istio.io/v1alpha3/ServiceEntry"
)

type stream = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer

// scripted serves state-of-the-world streams by a function until the test ends, and returns its address.
func scripted(t *testing.T, script func(stream) error, opts ...grpc.ServerOption) string {
	g := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, &scriptedServer{script: script})
	return serveGRPC(t, g)
}

// serveGRPC serves g until the test ends, and returns its address.
func serveGRPC(t *testing.T, server *grpc.Server) string {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	testutil.ServeGRPC(t, lis, server)
	return lis.Addr().String()
}

type scriptedServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	script func(stream) error
}

func (s *scriptedServer) StreamAggregatedResources(st stream) error { return s.script(st) }

// serveDelta is scripted for delta streams; the script gets to know how many there were before.
func serveDelta(t *testing.T, script func(before int, s deltaStream) error) string {
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, &countingDelta{script: script})
	return serveGRPC(t, g)
}

type deltaStream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer

type countingDelta struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	script  func(int, deltaStream) error
	streams atomic.Int32
}

func (s *countingDelta) DeltaAggregatedResources(st deltaStream) error {
	return s.script(int(s.streams.Add(1))-1, st)
}

// fakeIstiod answers each type in full after each change, as istiod does: without versions, and with an empty response
// for unknown types.
type fakeIstiod struct {
	mu      sync.Mutex
	content map[string][]*anypb.Any
	round   int           // of changes
	changed chan struct{} // closed and replaced
	ending  chan struct{} // the same

	nacks chan string // the reasons
}

func newFakeIstiod() *fakeIstiod {
	return &fakeIstiod{
		content: map[string][]*anypb.Any{}, changed: make(chan struct{}), ending: make(chan struct{}),
		nacks: make(chan string, 1000),
	}
}

func (f *fakeIstiod) set(typeURL string, resources ...*anypb.Any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content[typeURL] = resources
	f.round++
	close(f.changed)
	f.changed = make(chan struct{})
}

// end ends the streams there are.
func (f *fakeIstiod) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.ending)
	f.ending = make(chan struct{})
}

func (f *fakeIstiod) serve(s stream) error {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	requests := make(chan *discoveryv3.DiscoveryRequest)
	go func() {
		defer cancel()
		for {
			discoveryRequest, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- discoveryRequest:
			case <-ctx.Done():
				return
			}
		}
	}()
	f.mu.Lock()
	ending := f.ending
	f.mu.Unlock()
	var types []string
	for pushed := 0; ; {
		f.mu.Lock()
		round, changed := f.round, f.changed
		f.mu.Unlock()
		if pushed != round {
			for _, url := range types {
				if err := f.push(s, url); err != nil {
					return err
				}
			}
			pushed = round
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ending:
			return nil
		case <-changed:
		case discoveryRequest := <-requests:
			if d := discoveryRequest.GetErrorDetail(); d != nil {
				f.nacks <- d.GetMessage()
			}
			if !slices.Contains(types, discoveryRequest.GetTypeUrl()) {
				types = append(types, discoveryRequest.GetTypeUrl())
				if err := f.push(s, discoveryRequest.GetTypeUrl()); err != nil {
					return err
				}
			}
		}
	}
}

func (f *fakeIstiod) push(s stream, url string) error {
	f.mu.Lock()
	r := &discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: "2026", Nonce: "always the same", Resources: f.content[url]}
	f.mu.Unlock()
	return s.Send(r)
}

// wrapped is a ServiceEntry as istiod sends it that has read it from a file: without a version, and of the year 1.
func wrapped(t testing.TB, name, host string, alter ...func(*mcpv1alpha1.Resource)) *anypb.Any {
	body, err := anypb.New(specOf(t, entry(t, "any", host)))
	require.NoError(t, err)
	resource := &mcpv1alpha1.Resource{
		Metadata: &mcpv1alpha1.Metadata{Name: name, CreateTime: &timestamppb.Timestamp{Seconds: -62135596800}}, Body: body,
	}
	for _, a := range alter {
		a(resource)
	}
	a, err := anypb.New(resource)
	require.NoError(t, err)
	return a
}

func specOf(t testing.TB, r interface{ Spec() (proto.Message, error) }) proto.Message {
	spec, err := r.Spec()
	require.NoError(t, err)
	return spec
}
