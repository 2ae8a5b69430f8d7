package main

import (
	"context"
	"encoding/json"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/internal/testutil"
	"tributary/internal/xdstest"
	"tributary/server/xds"
)

// envoys is a control plane of Envoy's types.
type envoys map[string]*xds.Collection

func (e envoys) Collection(_ context.Context, _ *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	return e[typeURL], nil, nil
}

func (e envoys) put(t *testing.T, name string, m proto.Message) {
	t.Helper()
	a := xdstest.Packed(t, m)
	b, err := proto.Marshal(a)
	require.NoError(t, err)
	e[a.GetTypeUrl()].Apply(xds.Commit{Put: []*xds.Entry{{Name: name, Version: string(b), Any: b}}})
}

// newEnvoys serves a cluster and its endpoints.
func newEnvoys(t *testing.T) (e envoys, address string) {
	t.Helper()
	e = envoys{}
	for _, url := range []string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL} {
		e[url] = xds.NewCollection(xds.TypeOf(url), xds.Debounce{})
		e[url].MarkSynced()
	}
	e.put(t, "reviews", xdstest.EDSCluster("reviews", ""))
	e.put(t, "reviews", &endpointv3.ClusterLoadAssignment{ClusterName: "reviews"})
	return e, xdstest.ServeEngine(t, xds.NewServer(e, xds.Options{}))
}

func TestGetAndWatchEnvoy(t *testing.T) {
	e, address := newEnvoys(t)
	assert.Equal(t, result{0, "NAME      TYPE   LB\nreviews   EDS    ROUND_ROBIN\n", ""}, command(t, "get", "clusters", "--server", address))
	assert.Equal(t, result{0, "NAME      HEALTHY   ENDPOINTS\nreviews   0/0       -\n", ""},
		command(t, "get", "endpoints", "--server", address))
	assert.Equal(t, result{0, "", "no listeners\n"}, command(t, "get", "listeners", "--server", address))
	assert.Equal(t, result{0, "cluster_name: reviews\n", ""}, command(t, "get", "endpoints", "reviews", "-o", "yaml", "--server", address))
	assert.Equal(t, result{1, "", "error: " + address + " has no clusters ratings\n"},
		command(t, "get", "clusters", "ratings", "--server", address))
	var list []any
	require.NoError(t, json.Unmarshal([]byte(command(t, "get", "endpoints", "-o", "json", "--server", address).stdout), &list))
	assert.Len(t, list, 1)

	var events testutil.Buffer
	stop := commandUntil(t, &events, "watch", "endpoints", "--server", address)
	eventually(t, func() error { return contains(events.String(), "added    endpoints reviews\n") })
	e.put(t, "reviews", &endpointv3.ClusterLoadAssignment{ClusterName: "reviews", Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: 1}}})
	eventually(t, func() error { return contains(events.String(), "updated  endpoints reviews\n") })
	stop()
}
