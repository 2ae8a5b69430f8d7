package client_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/cmd/internal/client"
	"tributary/internal/xdstest"
	"tributary/server/xds"
)

// control is a control plane of Envoy's types.
type control map[string]*xds.Collection

func newControl(t *testing.T) (c control, requested *client.XDS) {
	t.Helper()
	c = control{}
	for _, typ := range client.EnvoyTypes() {
		c[typ.URL] = xds.NewCollection(xds.TypeOf(typ.URL), xds.Debounce{})
		c[typ.URL].MarkSynced()
	}
	engine := xds.NewServer(c, xds.Options{Log: slog.New(slog.DiscardHandler)})
	return c, &client.XDS{
		Server: xdstest.ServeEngine(t, engine), Timeout: 5 * time.Second, NodeID: "me", Metadata: map[string]string{"k": "v"},
		Log: slog.New(slog.DiscardHandler),
	}
}

func (c control) Collection(_ context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	if node.GetId() != "me" || node.GetMetadata().GetFields()["k"].GetStringValue() != "v" || c[typeURL] == nil {
		return nil, nil, status.Errorf(codes.PermissionDenied, "not for %s", node.GetId())
	}
	return c[typeURL], nil, nil
}

// put adds resources, each under a version of its own content.
func (c control) put(t *testing.T, name string, m proto.Message) {
	t.Helper()
	c.putRaw(t, name, xdstest.Packed(t, m))
}

func (c control) putRaw(t *testing.T, name string, a *anypb.Any) {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	require.NoError(t, err)
	c[a.GetTypeUrl()].Apply(xds.Commit{Put: []*xds.Entry{{Name: name, Version: string(b), Any: b}}})
}

func typeNamed(t *testing.T, name string) client.EnvoyType {
	t.Helper()
	for _, typ := range client.EnvoyTypes() {
		if typ.Name == name {
			return typ
		}
	}
	require.FailNow(t, "no type", name)
	return client.EnvoyType{}
}

func envoyNames(a *client.EnvoyAnswer) (resources []string) {
	for _, r := range a.Resources {
		resources = append(resources, xds.NameOf(r))
	}
	return resources
}

// getEnvoy reads the resources of a type.
func getEnvoy(t *testing.T, server *client.XDS, name string) *client.EnvoyAnswer {
	t.Helper()
	answer, err := server.GetEnvoy(t.Context(), typeNamed(t, name))
	require.NoError(t, err)
	return answer
}

func TestGetEnvoy(t *testing.T) {
	control, requested := newControl(t)
	get := func(name string) *client.EnvoyAnswer {
		t.Helper()
		return getEnvoy(t, requested, name)
	}
	for _, typ := range client.EnvoyTypes() {
		assert.Empty(t, get(typ.Name), typ.Name)
	}

	control.put(t, "b", xdstest.Listener(t, "b", "r1", "r2"))
	control.put(t, "a", xdstest.Listener(t, "a"))
	for _, route := range []string{"r2", "r1", "r9"} {
		control.put(t, route, &routev3.RouteConfiguration{Name: route})
	}
	control.put(t, "x", xdstest.EDSCluster("x", ""))
	control.put(t, "y", xdstest.EDSCluster("y", "service"))
	control.put(t, "z", &clusterv3.Cluster{Name: "z"})
	for _, name := range []string{"x", "service", "nobody's"} {
		control.put(t, name, &endpointv3.ClusterLoadAssignment{ClusterName: name})
	}
	assert.Equal(t, []string{"a", "b"}, envoyNames(get("listeners")))
	assert.Equal(t, []string{"r1", "r2"}, envoyNames(get("routes")), "those that listeners refer to")
	assert.Equal(t, []string{"x", "y", "z"}, envoyNames(get("clusters")))
	assert.Equal(t, []string{"service", "x"}, envoyNames(get("endpoints")), "those that clusters refer to")

	control.putRaw(t, "w", &anypb.Any{TypeUrl: xds.ClusterURL, Value: []byte{0xff}})
	answer := get("clusters")
	assert.Equal(t, []string{"x", "y", "z"}, envoyNames(answer))
	require.Len(t, answer.Rejects, 1)
	require.ErrorContains(t, answer.Rejects[0], requested.Server+" sent something invalid: resource 0 of ")
}

func TestGetEnvoyNamesMissingResources(t *testing.T) {
	c, requested := newControl(t)
	c.put(t, "a", xdstest.Listener(t, "a", "here", "nowhere"))
	c.put(t, "here", &routev3.RouteConfiguration{Name: "here"})
	requested.Timeout = time.Second
	assert.Equal(t, []string{"nowhere"}, getEnvoy(t, requested, "routes").Missing)
}

func TestGetEnvoyFails(t *testing.T) {
	_, requested := newControl(t)
	requested.NodeID = "somebody"
	_, err := requested.GetEnvoy(t.Context(), typeNamed(t, "routes"))
	require.ErrorContains(t, err, "not for somebody")
	requested.Server = "127.0.0.1:1"
	_, err = requested.GetEnvoy(t.Context(), typeNamed(t, "routes"))
	require.ErrorContains(t, err, "127.0.0.1:1 is unavailable: ")
	waitForServer(t, requested, func(ctx context.Context) error {
		return requested.WatchEnvoy(ctx, typeNamed(t, "routes"), func(client.Event[proto.Message]) error { return nil })
	})
}

func TestGetEnvoy_NamelessCluster(t *testing.T) {
	c, requested := newControl(t)
	c.put(t, "broken", xdstest.EDSCluster("", ""))
	c.put(t, "a", xdstest.EDSCluster("a", ""))
	c.put(t, "a", &endpointv3.ClusterLoadAssignment{ClusterName: "a"})
	assert.Equal(t, []string{"a"}, envoyNames(getEnvoy(t, requested, "endpoints")))
}

func TestWatchEnvoy(t *testing.T) {
	control, requested := newControl(t)
	control.put(t, "a", xdstest.Listener(t, "a", "r1"))
	control.put(t, "r1", &routev3.RouteConfiguration{Name: "r1"})
	routes := typeNamed(t, "routes")

	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan client.Event[proto.Message], 100), make(chan error, 1)
	go func() {
		ended <- requested.WatchEnvoy(ctx, routes, func(e client.Event[proto.Message]) error {
			events <- e
			return nil
		})
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case e := <-events:
			assert.Equal(t, want, string(e.Change)+" "+xds.NameOf(e.Resource))
		case <-time.After(10 * time.Second):
			require.FailNow(t, "no event", want)
		}
	}
	expect("added r1")
	control.put(t, "r1", &routev3.RouteConfiguration{
		Name:         "r1",
		VirtualHosts: []*routev3.VirtualHost{{Name: "v", Domains: []string{"*"}}},
	})
	expect("updated r1")
	control.put(t, "r2", &routev3.RouteConfiguration{Name: "r2"}) // without a reference yet
	control.put(t, "a", xdstest.Listener(t, "a", "r2"))
	expect("deleted r1")
	expect("added r2")
	control.put(t, "a", xdstest.Listener(t, "a"))
	expect("deleted r2")
	control.put(t, "a", xdstest.Listener(t, "a", "r2"))
	expect("added r2")
	control.put(t, "a", xdstest.Listener(t, "a"))
	expect("deleted r2")
	control.put(t, "a", xdstest.Listener(t, "a", "r1"))
	expect("added r1")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)

	full := errors.New("disk full")
	err := requested.WatchEnvoy(t.Context(), routes, func(client.Event[proto.Message]) error { return full })
	require.ErrorIs(t, err, full)
}
