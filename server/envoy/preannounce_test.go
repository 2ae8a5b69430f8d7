package envoy

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/xds"
)

// routes makes a RouteConfiguration of virtual hosts in JSON.
func routes(t *testing.T, hosts string) *routev3.RouteConfiguration {
	var c routev3.RouteConfiguration
	require.NoError(t, protojson.Unmarshal([]byte(`{"name":"r","virtual_hosts":[`+hosts+`]}`), &c))
	return &c
}

// host is a virtual host with routes to clusters.
func host(domains string, clusters ...string) string {
	s := `{"name":"h","domains":[` + domains + `],"routes":[`
	for i, c := range clusters {
		if i > 0 {
			s += ","
		}
		s += `{"match":{"prefix":""},"route":{"cluster":"` + c + `"}}`
	}
	return s + `]}`
}

func TestPreannounceRoutes_Dependencies(t *testing.T) {
	const weighted = `{"name":"h","domains":["a"],"routes":[
		{"match":{"prefix":""},"route":{"weighted_clusters":{"clusters":[{"name":"x","weight":1},{"name":"off","weight":0}]}}},
		{"match":{"prefix":"","query_parameters":[{"name":"q"}]},"route":{"cluster":"q"}},
		{"match":{"prefix":""},"route":{"cluster":"y","request_mirror_policies":[{"cluster":"mirror"}]}},
		{"match":{"prefix":""},"redirect":{}}]}`
	for _, c := range []struct {
		name         string
		from, to     string
		dependencies []xds.Dependency
	}{
		{"another cluster", host(`"a"`, "x"), host(`"a"`, "y"), []xds.Dependency{{From: []string{"x"}, To: []string{"y"}}}},
		{
			"one more, and one less", host(`"a"`, "x", "y"), host(`"a"`, "y", "z", "z"),
			[]xds.Dependency{{From: []string{"x", "y"}, To: []string{"z"}}},
		},
		{"fewer", host(`"a"`, "x", "y"), host(`"a"`, "y"), nil},
		{"the targets of requests", host(`"a"`, "x"), weighted, []xds.Dependency{{From: []string{"x"}, To: []string{"y"}}}},
		{"the former targets of requests", weighted, host(`"a"`, "z"), []xds.Dependency{{From: []string{"x", "y"}, To: []string{"z"}}}},
		{
			"one virtual host of two", host(`"a"`, "x") + "," + host(`"b"`, "z"), host(`"a"`, "x") + "," + host(`"b"`, "y"),
			[]xds.Dependency{{From: []string{"z"}, To: []string{"y"}}},
		},
		{"no route before", host(`"a"`), host(`"a"`, "y"), nil},
		{
			"a host of its own", host(`"*"`, "x"), host(`"*"`, "x") + "," + host(`"a"`, "y"),
			[]xds.Dependency{{From: []string{"x"}, To: []string{"y"}}},
		},
		{"one that was", host(`"*"`, "x") + "," + host(`"a"`, "y"), host(`"*"`, "x"), []xds.Dependency{{From: []string{"y"}, To: []string{"x"}}}},
		{"a host without requests", host(`"a"`, "x"), host(`"a"`, "x") + "," + host(`"b"`, "y"), nil},
		{
			"the better of two", host(`"*.com"`, "x") + "," + host(`"*.b.com"`, "y"),
			host(`"*.com"`, "x") + "," + host(`"*.b.com"`, "y") + "," + host(`"a.b.com"`, "z"),
			[]xds.Dependency{{From: []string{"y"}, To: []string{"z"}}},
		},
		{
			"endings before beginnings", host(`"a.*"`, "x") + "," + host(`"*"`, "w") + "," + host(`"*.com"`, "y"),
			host(`"a.com"`, "z") + "," + host(`"a.*"`, "x") + "," + host(`"*.com"`, "y") + "," + host(`"*"`, "w"),
			[]xds.Dependency{{From: []string{"y"}, To: []string{"z"}}},
		},
		{"several for one", host(`"*.com"`, "x"), host(`"*.b.com"`, "y"), []xds.Dependency{{From: []string{"x"}, To: []string{"y"}}}},
		{
			"one that is several", host(`"www.*"`, "x") + "," + host(`"*"`, "w"), host(`"*"`, "z"),
			[]xds.Dependency{{From: []string{"x"}, To: []string{"z"}}, {From: []string{"w"}, To: []string{"z"}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := routes(t, c.from), routes(t, c.to)
			before := proto.CloneOf(from)
			require.Equal(t, c.dependencies, preannounceClusters(from, to))
			require.True(t, proto.Equal(routes(t, c.to), to))
			added := 0
			for i, vh := range from.VirtualHosts {
				routeCount := len(before.VirtualHosts[i].Routes)
				added += len(vh.Routes) - routeCount
				vh.Routes = vh.Routes[:routeCount]
			}
			require.True(t, proto.Equal(before, from), "all other fields are equal")
			want := 0
			for _, l := range c.dependencies {
				want += len(l.To)
			}
			require.Equal(t, want, added)
			require.Empty(t, preannounceClusters(before, proto.CloneOf(before)))
		})
	}
}

func TestInterimRoutes(t *testing.T) {
	entry := func(m proto.Message) *xds.Entry {
		e, err := xds.NewEntry(m)
		require.NoError(t, err)
		return e
	}
	current, next := entry(routes(t, host(`"a"`, "x"))), entry(routes(t, host(`"a"`, "y")))
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
	interim, dependencies = preannounceListener(listener(routes(t, host(`"a"`, "x"))), listener(routes(t, host(`"a"`, "y"))))
	require.Equal(t, []xds.Dependency{{From: []string{"x"}, To: []string{"y"}}}, dependencies)
	_, http := apiListener(interim)
	require.True(t, proto.Equal(&routeConfiguration, http.GetRouteConfig()))
	for _, message := range []proto.Message{&listenerv3.Listener{Name: "l"}, routes(t, host(`"a"`, "y"))} {
		skipped, _ = preannounceListener(entry(message), listener(routes(t, host(`"a"`, "y"))))
		require.Nil(t, skipped)
		skipped, _ = preannounceListener(listener(routes(t, host(`"a"`, "x"))), entry(message))
		require.Nil(t, skipped)
	}
}

func TestAggregatedClusters(t *testing.T) {
	entry := func(c string) *xds.Entry {
		var m clusterv3.Cluster
		require.NoError(t, protojson.Unmarshal([]byte(c), &m))
		e, err := xds.NewEntry(&m)
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
