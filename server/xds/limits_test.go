package xds

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"tributary/internal/testutil"
	"tributary/internal/xdstest"
	"tributary/server/xds/wire"
)

func TestLimits(t *testing.T) {
	for reason, tt := range map[string]struct {
		limits Limits
		exceed func(w *fixture, c *xdstest.Client) (refused *xdstest.Client)
	}{
		refusedTypes: {Limits{TypesPerStream: 2}, func(_ *fixture, c *xdstest.Client) *xdstest.Client {
			c.Ask("second")
			c.Ask("third")
			return c
		}},
		refusedNamesPerStream: {Limits{NamesPerStream: 3}, func(_ *fixture, c *xdstest.Client) *xdstest.Client {
			c.Ask("second", "a", "b")
			c.Ask("third", "c", "d")
			return c
		}},
		refusedNames: {Limits{Names: 3}, func(w *fixture, c *xdstest.Client) *xdstest.Client {
			c.Ask("second", "a", "b")
			eventually(w.t, func() bool { return w.namesCost() == 2 })
			w.server.names.add("another host", 1)
			d := w.delta()
			d.Ask("third", "c")
			return d
		}},
		refusedNamesPerPeer: {Limits{Names: 7, NamesPerStream: 2}, func(w *fixture, c *xdstest.Client) *xdstest.Client {
			c.Ask("second", "a", "b")
			eventually(w.t, func() bool { return w.namesCost() == 2 })
			d := w.delta()
			d.Ask("third", "c", "d")
			return d
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			metrics := prometheus.NewPedanticRegistry()
			w := newFixture(t, Options{Limits: tt.limits, Registerer: metrics})
			w.set(testType, "a")
			c := w.sotw()
			c.Subscribe(testType, nil, "a@1")
			err := tt.exceed(w, c).Ended()
			require.Equal(t, codes.ResourceExhausted, grpcstatus.Code(err))
			require.Regexp(t, "the limit is", err.Error())
			eventually(t, func() bool { return promtest.ToFloat64(w.server.metrics.refusals.WithLabelValues(reason)) == 1 })
			count, err := promtest.GatherAndCount(metrics, "xds_refusals_total")
			require.NoError(t, err)
			require.Equal(t, 1, count, "only this reason")
		})
	}
}

func TestNackReason_Truncated(t *testing.T) {
	var buffer testutil.Buffer
	w := newFixture(t, Options{Log: buffer.Logger()})
	w.set(testType, "a")
	c := w.delta()
	c.Ask(testType)
	c.Nack(c.Expect(testType, "a@1"), strings.Repeat("no ", 1<<20))
	eventually(t, func() bool { return len(w.server.Clients()[0].Types) == 1 && w.server.Clients()[0].Types[0].Nacks == 1 })
	reason := w.server.Clients()[0].Types[0].NackError
	require.Less(t, len(reason), 2*wire.MaxReason)
	require.Regexp(t, "^no no .*…", reason)
	eventually(t, func() bool { return strings.Contains(buffer.String(), "rejected") })
	require.Less(t, len(buffer.String()), 3*wire.MaxReason)
}

func TestTypeLimit_CheckedBeforeCatalog(t *testing.T) {
	fixture := newFixture(t, Options{Limits: Limits{TypesPerStream: 2}})
	client := fixture.sotw()
	for _, typeURL := range []string{"first", "second", "third"} {
		client.Ask(typeURL)
	}
	require.Equal(t, codes.ResourceExhausted, grpcstatus.Code(client.Ended()))
	fixture.mu.Lock()
	defer fixture.mu.Unlock()
	require.NotContains(t, fixture.colls, "third")
}

func TestNames_ReleasedOnUnsubscribe(t *testing.T) {
	fixture := newFixture(t)
	names := func(n int) {
		t.Helper()
		eventually(t, func() bool { return fixture.namesCost() == n })
	}
	delta, sotw := fixture.delta(), fixture.sotw()
	delta.Ask(testType, "a", "b", "b", strings.Repeat("n", 128))
	names(4)
	delta.Ask(testType, "-a", "-b", "-c", "d")
	names(3)
	sotw.Ask(testType, "a", "b", "c")
	names(6)
	sotw.Ask(testType, "a")
	names(4)
	fixture.coll(testType).MarkSynced() // a stream ends when its requests are answered
	delta.Close()
	sotw.Close()
	names(0)
}

// A client with a wildcard gets an answer for each name that it unsubscribes from.
func TestUnsubscribedNames_CountAgainstLimit(t *testing.T) {
	w := newFixture(t, Options{Limits: Limits{NamesPerStream: 10}})
	client := w.delta()
	client.Ask(testType)
	for i := range 11 {
		client.Ask(testType, fmt.Sprint("-", i)) // no type is synced, so the server sends no responses
	}
	require.Equal(t, codes.ResourceExhausted, grpcstatus.Code(client.Ended()))
}

// oneRequest is a stream with one request. It records the parts of the request that the server retains.
type oneRequest struct {
	grpc.ServerStream
	ctx      context.Context
	retained wire.Request
	reads    int
}

func (o *oneRequest) Context() context.Context    { return o.ctx }
func (o *oneRequest) SetHeader(metadata.MD) error { return nil }
func (o *oneRequest) SendMsg(any) error           { return nil }

func (o *oneRequest) RecvMsg(m any) error {
	request, _ := m.(*wire.Request)
	if o.reads++; o.reads == 1 {
		request.TypeURL, request.Names, request.Err = testType, []string{"a"}, &status.Status{Message: "no"}
		request.Initial = &wire.Versions{}
		return nil
	}
	o.retained = *request
	return io.EOF
}

func TestRequest_ReleasedBeforeNextRead(t *testing.T) {
	w := &fixture{t: t, group: NewGroup(Debounce{}), colls: make(map[string]*Collection)}
	w.set(testType, "a")
	s := NewServer(w, Options{})
	defer s.Close()
	o := &oneRequest{ctx: t.Context()}
	require.NoError(t, s.serve(o, false, ""))
	require.Equal(t, 2, o.reads)
	require.Nil(t, o.retained.Names)
	require.Nil(t, o.retained.Err)
	require.Nil(t, o.retained.Initial)
}

func TestRequest_RetainsLimitedText(t *testing.T) {
	fixture := newFixture(t)
	fixture.set(testType, "a")
	c := fixture.sotw()
	c.Ask(testType)
	a := c.Next()
	c.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, ResponseNonce: strings.Repeat("0", 8<<20) + a.Nonce})
	c.Silence()
	require.Empty(t, fixture.server.Clients()[0].Types[0].AckedNonce, "a nonce counts as it was sent")
	for _, discoveryRequest := range []*discoveryv3.DiscoveryRequest{
		{TypeUrl: testType, Node: &corev3.Node{Id: strings.Repeat("x", 1<<20)}},
		{TypeUrl: strings.Repeat("t", 1<<20)},
	} {
		d := fixture.sotw()
		d.Send(discoveryRequest)
		require.ErrorContains(t, d.Ended(), "the limit is")
	}
}

func TestLargeNode_CountsAgainstNameLimit(t *testing.T) {
	fixture := newFixture(t, Options{Limits: Limits{NamesPerStream: 1000}})
	fixture.set(testType, "a")
	envoy := &corev3.Node{Id: "n"} // with a list of extensions
	for i := range 1000 {
		envoy.Extensions = append(envoy.Extensions, &corev3.Extension{Name: fmt.Sprintf("envoy.filters.http.an-extension-%d", i)})
	}
	client := fixture.sotw()
	client.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, Node: envoy})
	require.Equal(t, []string{"a@1"}, client.Next().Puts)
	node := fixture.server.Clients()[0].Node
	require.Equal(t, "n", node.Id)
	require.Empty(t, node.Extensions, "extensions are dropped")
	client.Close()

	d := fixture.sotw()
	d.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, Node: &corev3.Node{Id: strings.Repeat("x", 100<<10)}})
	require.ErrorContains(t, d.Ended(), "the limit is 1000")
	eventually(t, func() bool { return fixture.namesCost() == 0 })
}

// A type URL is printed everywhere: one that is not printable UTF-8 ends the stream, and is not seen in the status of clients.
func TestUnprintableTypeURL_Refused(t *testing.T) {
	for _, delta := range []bool{false, true} {
		for _, url := range []string{"a.b/v1/K\u202eEVIL", "a.b/v1/\x1b[31mK", "a.b/v1/K\n"} {
			w := newFixture(t)
			c := xdstest.Dial(t, w.addr, delta)
			c.Ask(url)
			err := c.Ended()
			require.Equal(t, codes.InvalidArgument, grpcstatus.Code(err))
			require.ErrorContains(t, err, fmt.Sprintf("type_url %q is not printable UTF-8", url))
		}
	}
}
