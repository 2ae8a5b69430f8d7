package xds

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"tributary/internal/testutil"
	"tributary/internal/xdstest"
	"tributary/server/xds/wire"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testType = "example.com/v1/Thing" // full state, no order, as the kinds of MCP
	deadline = 30 * time.Second
	// quiet is how long a test checks that no response arrives. A short time can only let a wrong server pass.
	quiet = 50 * time.Millisecond
)

// fixture is a server under test and its collections.
type fixture struct {
	t      *testing.T
	server *Server
	group  *Group
	addr   string

	mu    sync.Mutex
	colls map[string]*Collection
}

func newFixture(t *testing.T, options ...Options) *fixture {
	opts := append(options, Options{})[0]
	w := &fixture{t: t, group: NewGroup(Debounce{}), colls: make(map[string]*Collection)}
	if opts.Pacing.Least == 0 {
		opts.Pacing.Least = -1 // tests of it say so
	}
	w.server = NewServer(w, opts)
	g := grpc.NewServer(append(w.server.ServerOptions(), grpc.WaitForHandlers(true))...)
	w.server.Register(g)
	t.Cleanup(w.server.Close)
	w.addr, _ = xdstest.Serve(t, g)
	return w
}

// Collection implements Catalog: every type URL has a collection.
func (w *fixture) Collection(_ context.Context, _ *corev3.Node, typeURL string) (*Collection, func(), error) {
	if typeURL == "refused" {
		return nil, nil, grpcstatus.Error(codes.PermissionDenied, "not for you")
	}
	return w.coll(typeURL), nil, nil
}

func (w *fixture) coll(typeURL string) *Collection {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.colls[typeURL] == nil {
		w.colls[typeURL] = w.group.Collection(TypeOf(typeURL))
	}
	return w.colls[typeURL]
}

// set commits "name" or "name@version" puts and "-name" removals, and marks the type synced.
func (w *fixture) set(typeURL string, items ...string) {
	w.put(typeURL, items...)
	w.coll(typeURL).MarkSynced()
}

// put is set without the mark.
func (w *fixture) put(typeURL string, items ...string) {
	var commit Commit
	w.fill(&commit, items...)
	w.coll(typeURL).Apply(commit)
}

// broughtVersions are the versions, "name@version" each, that a client sends when it resumes.
func broughtVersions(t testing.TB, items ...string) *wire.Versions {
	var encoded []byte
	for _, item := range items {
		name, version, _ := strings.Cut(item, "@")
		b, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{name: version}})
		require.NoError(t, err)
		encoded = append(encoded, b...)
	}
	request := wire.Request{Delta: true}
	require.NoError(t, request.Decode(encoded))
	return request.Initial
}

// fill adds "name" or "name@version" puts and "-name" removals to a commit.
func (w *fixture) fill(commit *Commit, items ...string) {
	for _, item := range items {
		if name, ok := strings.CutPrefix(item, "-"); ok {
			commit.Remove = append(commit.Remove, name)
			continue
		}
		name, version, _ := strings.Cut(item, "@")
		commit.Put = append(commit.Put, padded(w.t, name, cmp.Or(version, "1"), ""))
	}
}

// thing makes an entry of "name@version". Its body contains them.
func thing(t testing.TB, item string) *Entry {
	name, version, _ := strings.Cut(item, "@")
	return padded(t, name, version, "")
}

// padded makes an entry with a body of some size.
func padded(t testing.TB, name, version, pad string) *Entry {
	body, err := anypb.New(wrapperspb.String(name + "@" + version + pad))
	require.NoError(t, err)
	b, err := proto.Marshal(body)
	require.NoError(t, err)
	return &Entry{Name: name, Version: version, Any: b, Child: name}
}

// sotw and delta open streams of ADS.
func (w *fixture) sotw() *xdstest.Client { return xdstest.Dial(w.t, w.addr, false) }

func (w *fixture) delta() *xdstest.Client { return xdstest.Dial(w.t, w.addr, true) }

// dialService opens a stream of the service of clusters or endpoints, or of ADS.
func (w *fixture) dialService(delta bool, typeURL string) *xdstest.Client {
	if typeURL == "" {
		return xdstest.Dial(w.t, w.addr, delta)
	}
	open := func(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
		clusters := clusterservice.NewClusterDiscoveryServiceClient(conn)
		endpoints := endpointservice.NewEndpointDiscoveryServiceClient(conn)
		switch {
		case typeURL == ClusterURL && delta:
			return clusters.DeltaClusters(ctx)
		case typeURL == ClusterURL:
			return clusters.StreamClusters(ctx)
		case delta:
			return endpoints.DeltaEndpoints(ctx)
		}
		return endpoints.StreamEndpoints(ctx)
	}
	return xdstest.DialMethod(w.t, w.addr, delta, open)
}

func (w *fixture) conn() *grpc.ClientConn {
	conn, err := grpc.NewClient(w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// awaitSubscription waits until the newest stream's only type is subscribed to so many names, with or without a wildcard.
func (w *fixture) awaitSubscription(wildcard bool, names int) {
	w.t.Helper()
	eventually(w.t, func() bool {
		clients := w.server.Clients()
		if len(clients) == 0 || len(clients[len(clients)-1].Types) == 0 {
			return false
		}
		st := clients[len(clients)-1].Types[0]
		return st.Wildcard == wildcard && st.Names == names
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, deadline, time.Millisecond)
}

// namesCost returns the cost of the names of all streams.
func (w *fixture) namesCost() int {
	totalCost, _ := w.server.names.add("", 0)
	return totalCost
}

// deaf opens a stream that subscribes to all resources of a type, and hardly reads. It returns a function that hangs
// up.
func (w *fixture) deaf(typeURL string) (hangUp func()) {
	r := testutil.DialRaw(w.t, "127.0.0.1", w.addr)
	r.Data(r.Open(true), r.Message(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL}))
	return func() { _ = r.Conn.Close() }
}

// large makes a type whose responses exceed gRPC's buffers if the client does not read.
func (w *fixture) large(typeURL string) {
	pad := strings.Repeat("x", maxChunk-1000)
	for _, name := range []string{"a", "b", "c"} {
		w.coll(typeURL).Apply(Commit{Put: []*Entry{padded(w.t, name, "1", pad)}})
	}
	w.coll(typeURL).MarkSynced()
}
