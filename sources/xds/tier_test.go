package xds

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/mcp"
	"tributary/server/xds"
	"tributary/sources"
	"tributary/sources/lastgood"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each wait of a test.
const patience = 30 * time.Second

// server serves a view as tributary does, on a port that it keeps when it is stopped and started.
type server struct {
	t       testing.TB
	engine  *xds.Server
	tell    grpc.StreamServerInterceptor
	address string
	noDelta bool // like a server that has state of the world only

	mu      sync.Mutex
	refusal error // of every stream; nil for none
	streams map[*breakable]struct{}

	grpc   *grpc.Server
	result chan error
}

// breakable is a stream with a context that the server can end.
type breakable struct {
	grpc.ServerStream
	ctx    context.Context
	cancel context.CancelFunc
}

func (b *breakable) Context() context.Context { return b.ctx }

// serveView serves view until the test ends.
func serveView(t testing.TB, view memstore.Reader, hops *mcp.Hops) *server {
	s := newServer(t, view, hops)
	s.start()
	return s
}

func newServer(t testing.TB, view memstore.Reader, hops *mcp.Hops) *server {
	catalog := mcp.New(view, mcp.Options{Hops: hops, Log: slog.New(slog.DiscardHandler)})
	s := &server{t: t, address: "127.0.0.1:0", streams: make(map[*breakable]struct{}), engine: xds.NewServer(catalog, xds.Options{
		Identifier: `{"Component":"tributary"}`, Log: slog.New(slog.DiscardHandler),
	})}
	s.tell = func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return handler(srv, ss)
	}
	if hops != nil {
		s.tell = hops.Intercept
	}
	goUntilEnd(t, catalog.Run)
	t.Cleanup(func() {
		s.stop()
		s.engine.Close()
	})
	return s
}

func (s *server) start() {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.address)
	require.NoError(s.t, err)
	s.address = listener.Addr().String()
	s.grpc = grpc.NewServer(append(s.engine.ServerOptions(), grpc.ChainStreamInterceptor(s.intercept, s.tell))...)
	s.engine.Register(s.grpc)
	s.result = make(chan error, 1)
	go func(g *grpc.Server, result chan<- error) { result <- g.Serve(listener) }(s.grpc, s.result)
}

func (s *server) stop() {
	if s.grpc == nil {
		return
	}
	s.grpc.Stop()
	if err := <-s.result; err != nil {
		require.ErrorIs(s.t, err, grpc.ErrServerStopped) // before it had begun
	}
	s.grpc = nil
}

// refuse ends all streams and has all others end like this; nil ends that.
func (s *server) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = err
	for b := range s.streams {
		b.cancel()
	}
}

func (s *server) intercept(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s.noDelta && info.FullMethod == discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName {
		return status.Error(codes.Unimplemented, "no delta")
	}
	b := &breakable{ServerStream: ss}
	b.ctx, b.cancel = context.WithCancel(ss.Context())
	defer b.cancel()
	s.mu.Lock()
	refusal := s.refusal
	s.streams[b] = struct{}{}
	s.mu.Unlock()
	if refusal == nil {
		refusal = handler(srv, b)
	}
	s.mu.Lock()
	delete(s.streams, b)
	s.mu.Unlock()
	return refusal
}

// reader is an xDS source in a supervisor, with its table.
type reader struct {
	table      *memstore.Table
	supervisor *sources.Supervisor
	source     *Source
	traffic    traffic
	stop       func()
}

// read reads from servers until the test ends.
func read(t testing.TB, settings Settings, servers ...string) *reader {
	return readWith(t, settings, func(*Source) {}, servers...)
}

// readWith is read with a source that is altered before it runs.
func readWith(t testing.TB, settings Settings, alter func(*Source), servers ...string) *reader {
	return readRemembering(t, nil, settings, alter, servers...)
}

// readRemembering is readWith for a source that is kept on disk.
func readRemembering(t testing.TB, memory *lastgood.Store, settings Settings, alter func(*Source), servers ...string) *reader {
	r := &reader{table: &memstore.Table{}}
	address := Scheme + "://" + servers[0]
	for _, s := range servers[1:] {
		address += "," + s
	}
	source, err := New(address, settings)
	require.NoError(t, err)
	source.withBackoff(often)
	source.config.DialOptions = []grpc.DialOption{grpc.WithStatsHandler(&r.traffic)}
	alter(source)
	r.source = source
	r.supervisor = sources.NewSupervisor(sources.Options{})
	require.NoError(t, r.supervisor.Reconfigure([]sources.Spec{{
		Name: "up", Source: source, Table: r.table, LastGood: memory, LenientMetadata: true,
	}}))
	r.stop = goUntilEnd(t, r.supervisor.Run)
	return r
}

func (r *reader) status() sources.Status { return r.supervisor.Status()[0] }

// goUntilEnd runs something until the test ends or stop is called.
func goUntilEnd(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-result; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
	})
	t.Cleanup(stop)
	return stop
}

// often is a backoff for tests, which have no time.
func often() backoff.BackOff { return backoff.NewConstantBackOff(5 * time.Millisecond) }

// traffic counts the messages that a client receives and their bytes on the wire.
type traffic struct{ messages, bytes atomic.Int64 }

func (t *traffic) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (t *traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (t *traffic) HandleConn(context.Context, stats.ConnStats)                       {}
func (t *traffic) HandleRPC(_ context.Context, s stats.RPCStats) {
	if p, ok := s.(*stats.InPayload); ok {
		t.messages.Add(1)
		t.bytes.Add(int64(p.WireLength))
	}
}

func (t *traffic) reset() { t.messages.Store(0); t.bytes.Store(0) }

func key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}
}

// entry is a ServiceEntry with a host.
func entry(t testing.TB, name, host string) *resource.Resource {
	r, err := resource.New(resource.Meta{Key: key(name)}, &networking.ServiceEntry{
		Hosts: []string{host}, Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		Resolution: networking.ServiceEntry_NONE,
	})
	require.NoError(t, err)
	return r
}

func entries(t testing.TB, n int) []*resource.Resource {
	resources := make([]*resource.Resource, n)
	for i := range resources {
		name := fmt.Sprintf("svc-%06d", i)
		resources[i] = entry(t, name, name+".example.com")
	}
	return resources
}

// store returns a synced store with resources.
func store(rs ...*resource.Resource) *memstore.Table {
	s := &memstore.Table{}
	s.Apply(rs, nil)
	s.MarkSynced()
	return s
}

// await waits until ok holds.
func await(t testing.TB, condition string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "not in time: "+condition)
		}
	}
}

// equal reports whether two stores have the same objects in the same versions.
func equal(a, b memstore.Reader) bool {
	_, snapshot, _ := a.Changes(0)
	_, y, _ := b.Changes(0)
	if snapshot.Len() != y.Len() {
		return false
	}
	for r := range snapshot.All() {
		if !resource.Equal(r, y.Get(r.Key())) {
			return false
		}
	}
	return true
}
