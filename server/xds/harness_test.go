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
func (f *fixture) Collection(_ context.Context, _ *corev3.Node, typeURL string) (*Collection, func(), error) {
	if typeURL == "refused" {
		return nil, nil, grpcstatus.Error(codes.PermissionDenied, "not for you")
	}
	return f.coll(typeURL), nil, nil
}

func (f *fixture) coll(typeURL string) *Collection {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.colls[typeURL] == nil {
		f.colls[typeURL] = f.group.Collection(TypeOf(typeURL))
	}
	return f.colls[typeURL]
}

// set commits "name" or "name@version" puts and "-name" removals, and marks the type synced.
func (f *fixture) set(typeURL string, items ...string) {
	f.put(typeURL, items...)
	f.coll(typeURL).MarkSynced()
}

// put is set without the mark.
func (f *fixture) put(typeURL string, items ...string) {
	var commit Commit
	f.fill(&commit, items...)
	f.coll(typeURL).Apply(commit)
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
func (f *fixture) fill(commit *Commit, items ...string) {
	for _, item := range items {
		if name, ok := strings.CutPrefix(item, "-"); ok {
			commit.Remove = append(commit.Remove, name)
			continue
		}
		name, version, _ := strings.Cut(item, "@")
		commit.Put = append(commit.Put, padded(f.t, name, cmp.Or(version, "1"), ""))
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
func (f *fixture) sotw() *xdstest.Client { return xdstest.Dial(f.t, f.addr, false) }

func (f *fixture) delta() *xdstest.Client { return xdstest.Dial(f.t, f.addr, true) }

// dialService opens a stream of the service of clusters or endpoints, or of ADS.
func (f *fixture) dialService(delta bool, typeURL string) *xdstest.Client {
	if typeURL == "" {
		return xdstest.Dial(f.t, f.addr, delta)
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
	return xdstest.DialMethod(f.t, f.addr, delta, open)
}

func (f *fixture) conn() *grpc.ClientConn {
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// awaitSubscription waits until the newest stream's only type is subscribed to so many names, with or without a wildcard.
func (f *fixture) awaitSubscription(wildcard bool, names int) {
	f.t.Helper()
	eventually(f.t, func() bool {
		clients := f.server.Clients()
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
func (f *fixture) namesCost() int {
	totalCost, _ := f.server.names.add("", 0)
	return totalCost
}

// deaf opens a stream that subscribes to all resources of a type, and hardly reads. It returns a function that hangs
// up.
func (f *fixture) deaf(typeURL string) (hangUp func()) {
	r := testutil.DialRaw(f.t, "127.0.0.1", f.addr)
	r.Data(r.Open(true), r.Message(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL}))
	return func() { _ = r.Conn.Close() }
}

// large makes a type whose responses exceed gRPC's buffers if the client does not read.
func (f *fixture) large(typeURL string) {
	pad := strings.Repeat("x", maxChunk-1000)
	for _, name := range []string{"a", "b", "c"} {
		f.coll(typeURL).Apply(Commit{Put: []*Entry{padded(f.t, name, "1", pad)}})
	}
	f.coll(typeURL).MarkSynced()
}
