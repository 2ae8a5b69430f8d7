package client_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/anypb"
	mcp "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/cmd/internal/client"
	"tributary/internal/xdstest"
	"tributary/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	v1       = "networking.istio.io/v1/ServiceEntry"
	v1beta1  = "networking.istio.io/v1beta1/ServiceEntry"
	v1alpha3 = "networking.istio.io/v1alpha3/ServiceEntry"
)

// server is a fake ADS server: types that it does not have get no answer.
type server struct {
	*xdstest.Content
	address string
}

func newServer(t *testing.T, types map[string][]*anypb.Any) *server {
	t.Helper()
	content := xdstest.NewContent()
	content.Silent = true
	for typeURL, resources := range types {
		content.Set(typeURL, resources...)
	}
	return &server{content, (&xdstest.Server{SotW: content.SotW}).Serve(t)}
}

func (s *server) client() *client.XDS {
	return &client.XDS{Server: s.address, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}
}

// get reads the ServiceEntries of the server.
func (s *server) get(t *testing.T) *client.Answer {
	t.Helper()
	answer, err := s.client().Get(t.Context(), schema(t))
	require.NoError(t, err)
	return answer
}

// entry is a ServiceEntry as a server sends it.
func entry(t *testing.T, name, host string) *anypb.Any {
	t.Helper()
	return xdstest.Packed(t, &mcp.Resource{
		Metadata: &mcp.Metadata{Name: name}, Body: xdstest.Packed(t, &networking.ServiceEntry{Hosts: []string{host}}),
	})
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
	answer := s.get(t)
	assert.Equal(t, []string{"a/y", "b/x"}, names(answer.Resources), "in order")
	require.Len(t, answer.Rejects, 1)
	assert.ErrorContains(t, answer.Rejects[0], `"nameless"`)
	assert.ErrorContains(t, answer.Rejects[0], s.address)
}

// TestGetFromIstiod reads a kind that istiod serves under one old version only, and objects of files without a namespace.
func TestGetFromIstiod(t *testing.T) {
	s := newServer(t, map[string][]*anypb.Any{v1: nil, v1beta1: nil, v1alpha3: {entry(t, "/reviews", "r")}})
	answer := s.get(t)
	assert.Empty(t, answer.Rejects)
	assert.Equal(t, []string{"default/reviews"}, names(answer.Resources))
}

func TestGetNothing(t *testing.T) {
	s := newServer(t, map[string][]*anypb.Any{v1: nil, v1beta1: nil, v1alpha3: nil})
	answer := s.get(t)
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
func watcher(t *testing.T, xds *client.XDS) (next func() client.Event[*resource.Resource], stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	kind, events, ended := schema(t), make(chan client.Event[*resource.Resource], 100), make(chan error, 1)
	go func() {
		ended <- xds.Watch(ctx, kind, func(e client.Event[*resource.Resource]) error { events <- e; return nil })
	}()
	next = func() client.Event[*resource.Resource] {
		t.Helper()
		return xdstest.Receive(t, events)
	}
	return next, func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.Empty(t, events, "unexpected events")
	}
}

// expectEvents waits for events in this order.
func expectEvents(t *testing.T, next func() client.Event[*resource.Resource], want ...string) {
	t.Helper()
	for _, event := range want {
		e := next()
		assert.Equal(t, event, string(e.Change)+" "+e.Resource.Key().FullName())
	}
}

func TestWatch(t *testing.T) {
	x, y := entry(t, "shop/x", "x"), entry(t, "shop/y", "y")
	server := newServer(t, map[string][]*anypb.Any{v1: {y, x}})
	next, stop := watcher(t, server.client())
	expectEvents(t, next, "added shop/x", "added shop/y")

	server.Set(v1, x, y) // the same in another order
	server.Set(v1, x, entry(t, "shop/y", "other"), entry(t, "shop/z", "z"))
	expectEvents(t, next, "updated shop/y", "added shop/z")

	server.EndStreams() // a new stream tells everything again
	server.Set(v1, x)
	expectEvents(t, next, "deleted shop/y", "deleted shop/z")
	stop()
}

// TestWatchOfEmptyKind watches a kind without objects, so that the server may use any version later.
func TestWatchOfEmptyKind(t *testing.T) {
	x := entry(t, "shop/x", "x")
	server := newServer(t, map[string][]*anypb.Any{v1: nil, v1beta1: nil, v1alpha3: nil})
	next, stop := watcher(t, server.client())
	server.Set(v1beta1, x)
	expectEvents(t, next, "added shop/x")
	server.Set(v1, x) // as a server does that knows both
	server.Set(v1beta1, x)
	server.Set(v1beta1)
	server.Set(v1)
	expectEvents(t, next, "deleted shop/x")
	stop()
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
	next, stop := watcher(t, xds)
	next()
	assert.Empty(t, reconnects, "the first time is not again")
	s.EndStreams()
	assert.Equal(t, xds.Server, xdstest.Receive(t, reconnects))
	s.Set(v1, entry(t, "shop/x", "other"))
	e := next()
	assert.Equal(t, client.Updated, e.Change)
	assert.NotNil(t, e.Previous)
	stop()
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
	kind := schema(t)
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
	next, stop := watcher(t, xds)
	assert.Equal(t, client.Added, next().Change)
	stop()
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
