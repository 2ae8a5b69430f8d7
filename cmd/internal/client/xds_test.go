package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	mcp "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/cmd/internal/client"
	"tributary/internal/testutil"
	"tributary/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	v1       = "networking.istio.io/v1/ServiceEntry"
	v1beta1  = "networking.istio.io/v1beta1/ServiceEntry"
	v1alpha3 = "networking.istio.io/v1alpha3/ServiceEntry"
)

// server is a fake ADS server. It answers each type in types, and again after each change.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address string

	mu      sync.Mutex
	types   map[string][]*anypb.Any
	changed chan struct{} // closed by the next change
	cut     chan struct{} // closed to end the open streams
}

func newServer(t *testing.T, types map[string][]*anypb.Any) *server {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{address: listener.Addr().String(), types: types, changed: make(chan struct{}), cut: make(chan struct{})}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	testutil.ServeGRPC(t, listener, g)
	return s
}

func (s *server) client() *client.XDS {
	return &client.XDS{Server: s.address, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}
}

func (s *server) set(typeURL string, resources ...*anypb.Any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.types[typeURL] = resources
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) cutStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

func (s *server) StreamAggregatedResources(st discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	asks := make(chan string)
	go func() {
		for {
			discoveryRequest, err := st.Recv()
			if err != nil {
				return
			}
			if discoveryRequest.GetResponseNonce() != "" {
				continue // an acknowledgement
			}
			select {
			case asks <- discoveryRequest.GetTypeUrl():
			case <-st.Context().Done():
			}
		}
	}()
	var requested []string
	for {
		s.mu.Lock()
		changed, cut := s.changed, s.cut
		var due []*discoveryv3.DiscoveryResponse
		for _, typeURL := range requested {
			if rs, ok := s.types[typeURL]; ok {
				due = append(due, &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: "v", Nonce: "n", Resources: rs})
			}
		}
		s.mu.Unlock()
		for _, r := range due {
			if err := st.Send(r); err != nil {
				return err
			}
		}
		select {
		case typeURL := <-asks:
			requested = append(requested, typeURL)
		case <-changed:
		case <-cut:
			return errors.New("cut")
		case <-st.Context().Done():
			return st.Context().Err()
		}
	}
}

// entry is a ServiceEntry as a server sends it.
func entry(t *testing.T, name, host string) *anypb.Any {
	t.Helper()
	body, err := anypb.New(&networking.ServiceEntry{Hosts: []string{host}})
	require.NoError(t, err)
	a, err := anypb.New(&mcp.Resource{Metadata: &mcp.Metadata{Name: name}, Body: body})
	require.NoError(t, err)
	return a
}

func schema(t *testing.T) *resource.Schema {
	t.Helper()
	s, ok := resource.SchemaOf(resource.ServiceEntry)
	require.True(t, ok)
	return s
}

func names(rs []*resource.Resource) (objects []string) {
	for _, r := range rs {
		objects = append(objects, r.Key().FullName())
	}
	return objects
}

func TestGet(t *testing.T) {
	s := newServer(t, map[string][]*anypb.Any{v1: {entry(t, "b/x", "b"), entry(t, "a/y", "a"), entry(t, "nameless", "n")}})
	answer, err := s.client().Get(t.Context(), schema(t))
	require.NoError(t, err)
	assert.Equal(t, []string{"a/y", "b/x"}, names(answer.Resources), "in order")
	require.Len(t, answer.Rejects, 1)
	assert.ErrorContains(t, answer.Rejects[0], `"nameless"`)
	assert.ErrorContains(t, answer.Rejects[0], s.address)
}

// TestGetFromIstiod reads a kind that istiod serves under one old version only, and objects of files without a namespace.
func TestGetFromIstiod(t *testing.T) {
	s := newServer(t, map[string][]*anypb.Any{v1: nil, v1beta1: nil, v1alpha3: {entry(t, "/reviews", "r")}})
	answer, err := s.client().Get(t.Context(), schema(t))
	require.NoError(t, err)
	assert.Empty(t, answer.Rejects)
	assert.Equal(t, []string{"default/reviews"}, names(answer.Resources))
}

func TestGetNothing(t *testing.T) {
	s := newServer(t, map[string][]*anypb.Any{v1: nil, v1beta1: nil, v1alpha3: nil})
	answer, err := s.client().Get(t.Context(), schema(t))
	require.NoError(t, err)
	assert.Empty(t, answer.Resources)
}

func TestGetFails(t *testing.T) {
	t.Run("no answer", func(t *testing.T) {
		c := newServer(t, nil).client()
		c.Timeout = 50 * time.Millisecond
		_, err := c.Get(t.Context(), schema(t))
		require.ErrorContains(t, err, c.Server+" did not answer within 50ms")
	})
	t.Run("nobody there", func(t *testing.T) {
		c := &client.XDS{Server: "127.0.0.1:1", Timeout: 5 * time.Second}
		_, err := c.Get(t.Context(), schema(t))
		require.ErrorContains(t, err, "127.0.0.1:1 is unavailable: ")
		require.ErrorContains(t, err, "nobody listens there")
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := newServer(t, nil).client().Get(ctx, schema(t))
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("not an address", func(t *testing.T) {
		_, err := (&client.XDS{Server: "somewhere", Timeout: time.Second}).Get(t.Context(), schema(t))
		require.ErrorContains(t, err, `"somewhere"`)
	})
}

// watcher collects events of a Watch.
func watcher(t *testing.T, s *server) (next func() string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	kind := schema(t)
	events := make(chan client.Event[*resource.Resource], 100)
	ended := make(chan error, 1)
	go func() {
		ended <- s.client().Watch(ctx, kind, func(e client.Event[*resource.Resource]) error {
			events <- e
			return nil
		})
	}()
	next = func() string {
		t.Helper()
		select {
		case e := <-events:
			return string(e.Change) + " " + e.Resource.Key().FullName()
		case <-time.After(10 * time.Second):
			require.FailNow(t, "no event")
			return ""
		}
	}
	stop = func() error {
		cancel()
		err := <-ended
		assert.Empty(t, events, "unexpected events")
		return err
	}
	return next, stop
}

func TestWatch(t *testing.T) {
	x, y := entry(t, "shop/x", "x"), entry(t, "shop/y", "y")
	server := newServer(t, map[string][]*anypb.Any{v1: {y, x}})
	next, stop := watcher(t, server)
	assert.Equal(t, "added shop/x", next())
	assert.Equal(t, "added shop/y", next())

	server.set(v1, x, y) // the same in another order
	server.set(v1, x, entry(t, "shop/y", "other"), entry(t, "shop/z", "z"))
	assert.Equal(t, "updated shop/y", next())
	assert.Equal(t, "added shop/z", next())

	server.cutStreams() // a new stream tells everything again
	server.set(v1, x)
	assert.Equal(t, "deleted shop/y", next())
	assert.Equal(t, "deleted shop/z", next())
	require.ErrorIs(t, stop(), context.Canceled)
}

// TestWatchOfEmptyKind watches a kind without objects, so that the server may use any version later.
func TestWatchOfEmptyKind(t *testing.T) {
	x := entry(t, "shop/x", "x")
	server := newServer(t, map[string][]*anypb.Any{v1: nil, v1beta1: nil, v1alpha3: nil})
	next, stop := watcher(t, server)
	server.set(v1beta1, x)
	assert.Equal(t, "added shop/x", next())
	server.set(v1, x) // as a server does that knows both
	server.set(v1beta1, x)
	server.set(v1beta1)
	server.set(v1)
	assert.Equal(t, "deleted shop/x", next())
	require.ErrorIs(t, stop(), context.Canceled)
}

func TestWatchEndsIfItsHandlerFails(t *testing.T) {
	s := newServer(t, map[string][]*anypb.Any{v1: {entry(t, "shop/x", "x")}})
	full := errors.New("disk full")
	err := s.client().Watch(t.Context(), schema(t), func(client.Event[*resource.Resource]) error { return full })
	require.ErrorIs(t, err, full)
}

func TestWatchReportsReconnect(t *testing.T) {
	s := newServer(t, map[string][]*anypb.Any{v1: {entry(t, "shop/x", "x")}})
	xds := s.client()
	reconnects := make(chan string, 8)
	xds.Reconnected = func(server string) { reconnects <- server }
	events := make(chan client.Event[*resource.Resource], 8)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	kind := schema(t)
	go func() {
		ended <- xds.Watch(ctx, kind, func(e client.Event[*resource.Resource]) error { events <- e; return nil })
	}()
	<-events
	assert.Empty(t, reconnects, "the first time is not again")
	s.cutStreams()
	assert.Equal(t, xds.Server, <-reconnects)
	s.set(v1, entry(t, "shop/x", "other"))
	e := <-events
	assert.Equal(t, client.Updated, e.Change)
	assert.NotNil(t, e.Previous)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// waitForServer runs a watch of a server that never starts, and cancels it.
func waitForServer(t *testing.T, xds *client.XDS, watch func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	xds.Waiting = func(err error) {
		assert.ErrorContains(t, err, xds.Server+" is unavailable: ")
		cancel()
	}
	require.ErrorIs(t, watch(ctx), context.Canceled)
}

func TestWatchWaitsForAServer(t *testing.T) {
	kind, events := schema(t), make(chan client.Event[*resource.Resource], 1)
	nobody := &client.XDS{Server: "127.0.0.1:1", Timeout: time.Second}
	waitForServer(t, nobody, func(ctx context.Context) error {
		return nobody.Watch(ctx, kind, func(client.Event[*resource.Resource]) error { return nil })
	})
	s := newServer(t, map[string][]*anypb.Any{v1: {entry(t, "shop/x", "x")}})
	xds := s.client()
	up := xds.Server
	xds.Server = "127.0.0.1:1"
	waiting := 0
	xds.Waiting = func(error) { waiting++; xds.Server = up } // which is when it comes up
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- xds.Watch(ctx, kind, func(e client.Event[*resource.Resource]) error { events <- e; return nil })
	}()
	assert.Equal(t, client.Added, (<-events).Change)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	assert.Equal(t, 1, waiting)
}

// TestWatch_RetriesSoon checks that a watch retries within three seconds, also after an outage of minutes.
func TestWatch_RetriesSoon(t *testing.T) {
	retry := (&client.XDS{Server: "127.0.0.1:1"}).RetryPolicy()
	for range 100 {
		wait := retry.NextBackOff()
		require.Positive(t, wait, "it does not give up")
		require.LessOrEqual(t, wait, 3*time.Second)
	}
}

func TestXDS_Debug(t *testing.T) {
	s := newServer(t, map[string][]*anypb.Any{"istio.io/debug": {{TypeUrl: "istio.io/debug", Value: []byte("[]")}}})
	page, err := s.client().Debug(t.Context(), "configz")
	require.NoError(t, err)
	require.Equal(t, "[]", string(page))
	silent := newServer(t, nil).client()
	silent.Timeout = time.Millisecond
	_, err = silent.Debug(t.Context(), "configz")
	require.ErrorContains(t, err, "did not answer")
}
