package envoy

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/envoy/envoytest"
	"tributary/server/xds"
)

// routes are those of all requests to a cluster.
func routes(t *testing.T, cluster string) *routev3.RouteConfiguration {
	return envoytest.Read(t, new(routev3.RouteConfiguration),
		`{name: r, virtual_hosts: [{name: h, domains: [a], routes: [{match: {prefix: ""}, route: {cluster: `+cluster+`}}]}]}`)
}

// TestPreannounceRoutes_Dependencies has the clusters that routes begin to use, after those of the same requests before.
func TestPreannounceRoutes_Dependencies(t *testing.T) {
	envoytest.Goldens(t, *update, "testdata/preannounced.txtar", func(c *envoytest.Case) {
		read := func(file string) *routev3.RouteConfiguration {
			return envoytest.Read(c, new(routev3.RouteConfiguration), c.Text(file))
		}
		from, before, to := read("from.yaml"), read("from.yaml"), read("to.yaml")
		lines, want := "", 0
		for _, dependency := range preannounceClusters(from, to) {
			lines += fmt.Sprintln(dependency.From, "before", dependency.To)
			want += len(dependency.To)
		}
		c.Expect("want", lines)
		require.True(c, proto.Equal(read("to.yaml"), to))
		added := 0
		for i, vh := range from.VirtualHosts {
			routeCount := len(before.VirtualHosts[i].Routes)
			added += len(vh.Routes) - routeCount
			vh.Routes = vh.Routes[:routeCount]
		}
		require.True(c, proto.Equal(before, from), "all other fields are equal")
		require.Equal(c, want, added)
		require.Empty(c, preannounceClusters(before, proto.CloneOf(before)))
	})
}

func TestInterimRoutes(t *testing.T) {
	entry := func(m proto.Message) *xds.Entry {
		e, err := xds.NewEntry(m)
		require.NoError(t, err)
		return e
	}
	current, next := entry(routes(t, "x")), entry(routes(t, `"y"`))
	interim, dependencies := preannounceRoutes(current, next)
	require.Equal(t, []xds.Dependency{{From: []string{"x"}, To: []string{"y"}}}, dependencies)
	require.Equal(t, "r", interim.Name)
	require.NotContains(t, []string{current.Version, next.Version}, interim.Version)
	var routeConfiguration routev3.RouteConfiguration
	require.True(t, decode(interim, &routeConfiguration))
	require.NoError(t, routeConfiguration.ValidateAll(), "as Envoy does")
	added := routeConfiguration.VirtualHosts[0].Routes[1]
	require.Equal(t, "y", added.GetRoute().GetCluster())
	require.Equal(t, added.Match.Headers[0].Name, added.Match.Headers[1].Name)
	require.NotEqual(t, added.Match.Headers[0].GetPresentMatch(), added.Match.Headers[1].GetPresentMatch())
	repeated, _ := preannounceRoutes(current, next)
	require.Equal(t, interim, repeated, "whoever computes it")
	skipped, _ := preannounceRoutes(interim, next)
	require.Nil(t, skipped, "a client with the interim version needs no other")
	skipped, _ = preannounceRoutes(entry(&listenerv3.Listener{Name: "r"}), next)
	require.Nil(t, skipped)

	listener := func(c *routev3.RouteConfiguration) *xds.Entry {
		var http anypb.Any
		require.NoError(t, http.MarshalFrom(&hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: c},
		}))
		return entry(&listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: &http}})
	}
	interim, dependencies = preannounceListener(listener(routes(t, "x")), listener(routes(t, `"y"`)))
	require.Equal(t, []xds.Dependency{{From: []string{"x"}, To: []string{"y"}}}, dependencies)
	_, http := apiListener(interim)
	require.True(t, proto.Equal(&routeConfiguration, http.GetRouteConfig()))
	for _, message := range []proto.Message{&listenerv3.Listener{Name: "l"}, routes(t, `"y"`)} {
		skipped, _ = preannounceListener(entry(message), listener(routes(t, `"y"`)))
		require.Nil(t, skipped)
		skipped, _ = preannounceListener(listener(routes(t, "x")), entry(message))
		require.Nil(t, skipped)
	}
}

func TestAggregatedClusters(t *testing.T) {
	entry := func(c string) *xds.Entry {
		e, err := xds.NewEntry(envoytest.Read(t, new(clusterv3.Cluster), c))
		require.NoError(t, err)
		return e
	}
	const clusterType = `"typed_config":{"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig",` +
		`"clusters":["x","y"]}`
	aggregate := entry(`{"name":"c","cluster_type":{"name":"envoy.clusters.aggregate",` + clusterType + `}}`)
	require.Equal(t, []string{"x", "y"}, aggregatedClusters(aggregate))
	require.Empty(t, aggregatedClusters(entry(`{"name":"c","type":"EDS"}`)))
	require.Empty(t, aggregatedClusters(entry(`{"name":"c","type":"STATIC"}`)))
	listener, err := xds.NewEntry(&listenerv3.Listener{Name: "c"})
	require.NoError(t, err)
	require.Empty(t, aggregatedClusters(listener))
}
