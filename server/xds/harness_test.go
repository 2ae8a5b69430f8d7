package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tributary/internal/testutil"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
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

func newFixture(t *testing.T, opts Options) *fixture {
	w := &fixture{t: t, group: NewGroup(Debounce{}), colls: make(map[string]*Collection)}
	if opts.Pacing.Least == 0 {
		opts.Pacing.Least = -1 // tests of it say so
	}
	w.server = NewServer(w, opts)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.addr = listener.Addr().String()
	g := grpc.NewServer(append(w.server.ServerOptions(), grpc.WaitForHandlers(true))...)
	w.server.Register(g)
	t.Cleanup(w.server.Close)
	testutil.ServeGRPC(t, listener, g)
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
	var commit Commit
	for _, item := range items {
		if name, ok := strings.CutPrefix(item, "-"); ok {
			commit.Remove = append(commit.Remove, name)
			continue
		}
		name, version, ok := strings.Cut(item, "@")
		if !ok {
			version = "1"
		}
		commit.Put = append(commit.Put, thing(w.t, name, version, ""))
	}
	w.coll(typeURL).Apply(commit)
	w.coll(typeURL).MarkSynced()
}

// thing makes an entry. Its body contains its name and version.
func thing(t testing.TB, name, version, pad string) *Entry {
	body, err := anypb.New(wrapperspb.String(name + "@" + version + pad))
	require.NoError(t, err)
	b, err := proto.Marshal(body)
	require.NoError(t, err)
	return &Entry{Name: name, Version: version, Any: b, Child: name}
}

// answer is a response of either variant: its resources as "name@version", and its removals.
type answer struct {
	typeURL, version, nonce string
	puts, removed, unknown  []string
	bodies                  []*anypb.Any
	size                    int
}

func bodyText(t testing.TB, a *anypb.Any) string {
	var s wrapperspb.StringValue
	require.NoError(t, a.UnmarshalTo(&s))
	return s.Value
}

// client is one stream of either variant.
type client struct {
	t       *testing.T
	delta   bool
	send    func(proto.Message) error
	close   func() error
	answers chan answer
	err     chan error
}

type dialOption func(*dialOptions)

type dialOptions struct{ single bool }

// single opens a stream of the service of the type asked for, not ADS.
func single(o *dialOptions) { o.single = true }

func (w *fixture) sotw(typeURL string, opts ...dialOption) *client {
	return w.dial(false, typeURL, opts...)
}

func (w *fixture) delta(typeURL string, opts ...dialOption) *client {
	return w.dial(true, typeURL, opts...)
}

func (w *fixture) conn() *grpc.ClientConn {
	conn, err := grpc.NewClient(w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(w.t, err)
	return conn
}

func (w *fixture) dial(delta bool, typeURL string, opts ...dialOption) *client {
	var o dialOptions
	for _, f := range opts {
		f(&o)
	}
	conn := w.conn()
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{t: w.t, delta: delta, answers: make(chan answer, 1000), err: make(chan error, 1)}
	stream := open(ctx, w.t, conn, delta, typeURL, o)
	c.send = func(m proto.Message) error { return stream.SendMsg(m) }
	c.close = stream.CloseSend
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			a, err := receive(w.t, stream, delta)
			if err != nil {
				c.err <- err
				return
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

func open(ctx context.Context, t testing.TB, conn *grpc.ClientConn, delta bool, typeURL string, o dialOptions) grpc.ClientStream {
	var stream grpc.ClientStream
	var err error
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	switch {
	case o.single && delta && typeURL == ClusterURL:
		stream, err = clusterservice.NewClusterDiscoveryServiceClient(conn).DeltaClusters(ctx)
	case o.single && typeURL == ClusterURL:
		stream, err = clusterservice.NewClusterDiscoveryServiceClient(conn).StreamClusters(ctx)
	case o.single && delta && typeURL == EndpointURL:
		stream, err = endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(ctx)
	case o.single && typeURL == EndpointURL:
		stream, err = endpointservice.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx)
	case delta:
		stream, err = ads.DeltaAggregatedResources(ctx)
	default:
		stream, err = ads.StreamAggregatedResources(ctx)
	}
	require.NoError(t, err)
	return stream
}

func receive(t testing.TB, stream grpc.ClientStream, delta bool) (answer, error) {
	if !delta {
		var m discoveryv3.DiscoveryResponse
		if err := stream.RecvMsg(&m); err != nil {
			return answer{}, err
		}
		a := answer{typeURL: m.TypeUrl, version: m.VersionInfo, nonce: m.Nonce, size: proto.Size(&m)}
		for _, r := range m.Resources {
			a.bodies = append(a.bodies, r)
			if r.MessageIs(&wrapperspb.StringValue{}) {
				a.puts = append(a.puts, bodyText(t, r))
			}
		}
		return a, nil
	}
	var m discoveryv3.DeltaDiscoveryResponse
	if err := stream.RecvMsg(&m); err != nil {
		return answer{}, err
	}
	a := answer{typeURL: m.TypeUrl, version: m.SystemVersionInfo, nonce: m.Nonce, removed: m.RemovedResources, size: proto.Size(&m)}
	for _, resource := range m.Resources {
		if resource.Resource == nil && slices.Equal(resource.Aliases, []string{resource.Name}) {
			a.unknown = append(a.unknown, resource.Name)
			continue
		}
		a.bodies = append(a.bodies, resource.Resource)
		if !resource.Resource.MessageIs(&wrapperspb.StringValue{}) {
			continue
		}
		if got := bodyText(t, resource.Resource); !strings.HasPrefix(got, resource.Name+"@"+resource.Version) {
			return a, fmt.Errorf("resource %s@%s says %q", resource.Name, resource.Version, got)
		}
		a.puts = append(a.puts, resource.Name+"@"+resource.Version)
	}
	return a, nil
}

// ask sends a request. For delta, names are those to subscribe to, and those with a minus to unsubscribe from.
func (c *client) ask(typeURL string, names ...string) { c.request(typeURL, "", nil, names...) }

// ack acknowledges a, repeating in SotW the names subscribed to.
func (c *client) ack(a answer, names ...string) {
	if c.delta {
		names = nil
	}
	c.request(a.typeURL, a.nonce, nil, names...)
}

// nack rejects a.
func (c *client) nack(a answer, reason string, names ...string) {
	c.request(a.typeURL, a.nonce, &status.Status{Code: int32(codes.InvalidArgument), Message: reason}, names...)
}

func (c *client) request(typeURL, nonce string, detail *status.Status, names ...string) {
	c.t.Helper()
	node := &corev3.Node{Id: "test-node"}
	if !c.delta {
		require.NoError(c.t, c.send(&discoveryv3.DiscoveryRequest{
			Node: node, TypeUrl: typeURL, ResponseNonce: nonce, ErrorDetail: detail, ResourceNames: names,
		}))
		return
	}
	m := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURL, ResponseNonce: nonce, ErrorDetail: detail}
	for _, name := range names {
		if name, ok := strings.CutPrefix(name, "-"); ok {
			m.ResourceNamesUnsubscribe = append(m.ResourceNamesUnsubscribe, name)
		} else {
			m.ResourceNamesSubscribe = append(m.ResourceNamesSubscribe, name)
		}
	}
	require.NoError(c.t, c.send(m))
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

// expect takes the next answer, which must have the items of want ("name@version", "-name") in any order, and returns it.
func (c *client) expect(typeURL string, want ...string) answer {
	c.t.Helper()
	a := c.next()
	got := slices.Clone(a.puts)
	for _, name := range a.removed {
		got = append(got, "-"+name)
	}
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(c.t, typeURL, a.typeURL)
	require.Equal(c.t, want, slices.Clip(got), "content of the response of %s", typeURL)
	return a
}

// expectAck is expect, then ack with names.
func (c *client) expectAck(typeURL string, names []string, want ...string) answer {
	c.t.Helper()
	a := c.expect(typeURL, want...)
	c.ack(a, names...)
	return a
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
	return errors.New("unreachable")
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
	w.coll(typeURL).Apply(Commit{Put: []*Entry{thing(w.t, "a", "1", pad), thing(w.t, "b", "1", pad), thing(w.t, "c", "1", pad)}})
	w.coll(typeURL).MarkSynced()
}

// serveOn runs a gRPC server on a port of its own.
func serveOn(t *testing.T, g *grpc.Server) (addr string, stop func()) {
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return lis.Addr().String(), testutil.ServeGRPC(t, lis, g)
}
