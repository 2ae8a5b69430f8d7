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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/internal/testutil"
	"tributary/internal/xdstest"
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
	body, err := anypb.New(wrapperspb.String(name + "@" + version + pad))
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

func (w *fixture) conn() *grpc.ClientConn {
	conn, err := grpc.NewClient(w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(w.t, err)
	return conn
}

func (w *fixture) delta() *xdstest.Client { return xdstest.Dial(w.t, w.addr, true) }

// eventually waits for a condition.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, deadline, time.Millisecond)
}

func (w *fixture) raw() *testutil.RawClient { return testutil.DialRaw(w.t, "127.0.0.1", w.addr) }
