package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/internal/testutil"
	"tributary/server/xds"
)

const (
	testType = "example.com/v1/Thing"
	deadline = 30 * time.Second
	// quiet is how long a test checks that no response arrives. A short time can only let a wrong server pass.
	quiet = 50 * time.Millisecond
)

// fixture is an engine with limits, and its collections.
type fixture struct {
	t       *testing.T
	server  *xds.Server
	limiter *Limiter
	metrics *prometheus.Registry
	addr    string

	catalogCalls atomic.Int64 // how often the catalog was asked

	mu    sync.Mutex
	colls map[string]*xds.Collection
}

func newFixture(t *testing.T, limits Limits) *fixture {
	return newLoggedWorld(t, limits, slog.New(slog.DiscardHandler))
}

func newLoggedWorld(t *testing.T, limits Limits, log *slog.Logger) *fixture {
	w := &fixture{t: t, metrics: prometheus.NewRegistry(), colls: make(map[string]*xds.Collection)}
	w.server = xds.NewServer(w, xds.Options{Log: log, Registerer: w.metrics, Pacing: xds.Pacing{Least: -1}})
	w.limiter = NewLimiter(w.server, limits, log)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.addr = listener.Addr().String()
	opts := slices.Concat(w.server.ServerOptions(), w.limiter.ServerOptions(insecure.NewCredentials()))
	server := grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)
	w.server.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		w.limiter.Close()
		server.Stop()
		w.server.Close()
		if err := <-served; !errors.Is(err, grpc.ErrServerStopped) { // before it began
			require.NoError(t, err)
		}
	})
	return w
}

// Collection implements xds.Catalog: every type URL has a collection.
func (w *fixture) Collection(_ context.Context, _ *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	w.catalogCalls.Add(1)
	return w.coll(typeURL), nil, nil
}

func (w *fixture) coll(typeURL string) *xds.Collection {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.colls[typeURL] == nil {
		w.colls[typeURL] = xds.NewCollection(xds.TypeOf(typeURL), xds.Debounce{})
	}
	return w.colls[typeURL]
}

// set commits "name" or "name@version", and marks the type synced.
func (w *fixture) set(typeURL string, items ...string) {
	var commit xds.Commit
	for _, item := range items {
		name, version, ok := strings.Cut(item, "@")
		if !ok {
			version = "1"
		}
		commit.Put = append(commit.Put, thing(w.t, name, version, ""))
	}
	w.coll(typeURL).Apply(commit)
	w.coll(typeURL).MarkSynced()
}

func thing(t testing.TB, name, version, pad string) *xds.Entry {
	body, err := anypb.New(wrapperspb.String(pad))
	require.NoError(t, err)
	b, err := proto.Marshal(body)
	require.NoError(t, err)
	return &xds.Entry{Name: name, Version: version, Any: b}
}

// refused is how often the engine has counted a refusal.
func (w *fixture) refused(reason string) float64 { return w.refusals()[reason] }

// refusals counts the refusals, by reason.
func (w *fixture) refusals() map[string]float64 {
	byReason := make(map[string]float64)
	families, err := w.metrics.Gather()
	assert.NoError(w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); f.GetName() == "xds_refusals_total" && n > 0 {
				byReason[m.GetLabel()[0].GetValue()] += n
			}
		}
	}
	return byReason
}

// refusedFor waits until the server has refused n times for a reason.
func (w *fixture) refusedFor(reason string, n float64) {
	w.t.Helper()
	eventually(w.t, func() bool { return w.refused(reason) == n })
}

// asking is the number of streams that asked for something.
func (w *fixture) asking() (n int) {
	for _, c := range w.server.Clients() {
		if len(c.Types) > 0 {
			n++
		}
	}
	return n
}

// served is the number of streams that were sent something.
func (w *fixture) served() (n int) {
	for _, c := range w.server.Clients() {
		if slices.ContainsFunc(c.Types, func(t xds.TypeStatus) bool { return t.Responses > 0 }) {
			n++
		}
	}
	return n
}

// client is a delta stream.
type client struct {
	t       *testing.T
	stream  discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	answers chan answer
	err     chan error
}

// answer is a response: its resources as "name@version", and its removals.
type answer struct {
	nonce         string
	puts, removed []string
}

func (w *fixture) conn() *grpc.ClientConn {
	conn, err := grpc.NewClient(w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(w.t, err)
	return conn
}

func (w *fixture) delta() *client {
	conn := w.conn()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(w.t, err)
	c := &client{t: w.t, stream: stream, answers: make(chan answer, 1000), err: make(chan error, 1)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				c.err <- err
				return
			}
			a := answer{nonce: m.Nonce, removed: m.RemovedResources}
			for _, r := range m.Resources {
				a.puts = append(a.puts, r.Name+"@"+r.Version)
			}
			c.answers <- a
		}
	})
	w.t.Cleanup(func() {
		cancel()
		wg.Wait()
		require.NoError(w.t, conn.Close())
	})
	return c
}

func (c *client) send(m *discoveryv3.DeltaDiscoveryRequest) error { return c.stream.Send(m) }

func (c *client) ask(typeURL string, names ...string) {
	c.t.Helper()
	require.NoError(c.t, c.send(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "test-node"}, TypeUrl: typeURL, ResourceNamesSubscribe: names,
	}))
}

// next returns the next answer.
func (c *client) next() answer {
	c.t.Helper()
	select {
	case a := <-c.answers:
		return a
	case err := <-c.err:
		c.err <- err
		if len(c.answers) > 0 { // it came before the end
			return <-c.answers
		}
		require.NoError(c.t, err, "stream ended")
	case <-time.After(deadline):
		require.FailNow(c.t, "no response")
	}
	panic("unreachable")
}

// expect takes the next answer, which must put want, and acknowledges it.
func (c *client) expect(typeURL string, want ...string) {
	c.t.Helper()
	a := c.next()
	slices.Sort(a.puts)
	require.Equal(c.t, want, a.puts)
	c.ack(typeURL, a)
}

func (c *client) ack(typeURL string, a answer) {
	c.t.Helper()
	require.NoError(c.t, c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: a.nonce}))
}

// silence checks that no response arrives.
func (c *client) silence() {
	c.t.Helper()
	select {
	case a := <-c.answers:
		require.Fail(c.t, "unexpected response", "%+v", a)
	case err := <-c.err:
		require.NoError(c.t, err, "stream ended")
	case <-time.After(quiet):
	}
}

// ended returns the error that ended the stream.
func (c *client) ended() error {
	c.t.Helper()
	select {
	case err := <-c.err:
		return err
	case <-time.After(deadline):
		require.FailNow(c.t, "stream goes on")
	}
	panic("unreachable")
}

// eventually waits for a condition.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, deadline, time.Millisecond)
}

func (w *fixture) raw() *testutil.RawClient { return testutil.DialRaw(w.t, "127.0.0.1", w.addr) }
