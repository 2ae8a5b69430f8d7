package envoy

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/memstore"
	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// stream is the one of a client as gRPC tells of it.
type stream struct {
	grpc.ServerTransportStream
	method string
}

func (s stream) Method() string { return s.method }

func onStream(t *testing.T, method string) context.Context {
	return grpc.NewContextWithServerTransportStream(t.Context(), stream{method: method})
}

const deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

func demandingNode(namespace string) *corev3.Node {
	n := node(namespace, "NONE", "")
	n.Metadata.Fields[model.MetadataOnDemand] = structpb.NewStringValue("true")
	return n
}

// After any history, a client on demand gets for each domain the virtual hosts that other clients get with the complete
// routes of the port, and no others. Exception: if a host of the port stands or stood for several domains, for any
// client, the client gets the complete routes. Clusters and endpoints are equal.
func TestOnDemandHistory(t *testing.T) {
	ports, singles, nowhere, seeds := 0, 0, 0, uint64(20)
	if testing.Short() { // all steps run one after the other
		seeds = 5
	}
	for seed := range seeds {
		mesh := envoytest.New(seed)
		catalog := catalogOfTable(&mesh.Table)
		var revision memstore.Revision
		complete := make(map[string]bool)
		for step := range 30 {
			mesh.Change()
			keys, snap, ok := mesh.Table.Changes(revision)
			catalog.update(keys, snap, ok, true)
			revision = snap.Revision()
			fullClient, asking := node("shop", "NONE", ""), demandingNode("shop")
			require.Equal(t, entries(t, catalog, fullClient, xds.ClusterURL), entries(t, catalog, asking, xds.ClusterURL))
			require.Equal(t, entries(t, catalog, fullClient, xds.EndpointURL), entries(t, catalog, asking, xds.EndpointURL))

			clusters := entries(t, catalog, fullClient, xds.ClusterURL)
			want := make(map[string]*routev3.VirtualHost)
			routes, demanded := entries(t, catalog, fullClient, xds.RouteURL), entries(t, catalog, asking, xds.RouteURL)
			require.Equal(t, slices.Sorted(maps.Keys(routes)), slices.Sorted(maps.Keys(demanded)))
			for name, encoded := range demanded {
				full := message(t, routes[name]).(*routev3.RouteConfiguration)
				wild := slices.ContainsFunc(full.GetVirtualHosts(), func(v *routev3.VirtualHost) bool {
					return slices.ContainsFunc(v.GetDomains(), func(d string) bool { return model.IsWildcard(d) && d != "*" })
				})
				config := message(t, encoded).(*routev3.RouteConfiguration)
				require.True(t, config.GetVhds() == nil || !complete[name] && !wild, "%s: the routes are complete, and stay complete: %v", name, config)
				if complete[name] = config.GetVhds() == nil; complete[name] {
					require.True(t, catalog.fullRoutes.contains(name))
					for _, v := range full.GetVirtualHosts() {
						nowhere += leadNowhere(v, clusters)
					}
					for _, v := range config.GetVirtualHosts() {
						require.Zero(t, leadNowhere(v, clusters))
					}
					require.True(t, proto.Equal(full, config), "%s: %v\n%v", name, full, config)
					continue
				}
				require.Empty(t, config.GetVirtualHosts())
				ports++
				for _, v := range full.GetVirtualHosts() {
					for _, d := range v.GetDomains() {
						for _, domain := range []string{d, d + ":" + name} {
							single := proto.CloneOf(v)
							single.Name, single.Domains = name+"/"+domain, []string{domain}
							nowhere += leadNowhere(single, clusters)
							want[single.GetName()] = single
						}
					}
				}
				delete(want, name+"/*")
				delete(want, name+"/*:"+name)
			}
			for name := range complete {
				if routes[name] == "" {
					delete(complete, name)
				}
			}
			got := entries(t, catalog, asking, xds.VHostURL)
			require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), "seed %d, step %d", seed, step)
			for name, v := range want {
				single := message(t, got[name]).(*routev3.VirtualHost)
				require.Zero(t, leadNowhere(single, clusters))
				require.True(t, proto.Equal(v, single), "seed %d, step %d: %v\n%v", seed, step, v, single)
				singles++
			}
		}
	}
	require.NotZero(t, ports)
	require.NotZero(t, singles)
	require.NotZero(t, nowhere)
}

// leadNowhere replaces missing clusters in routes by the cluster without endpoints, and returns the number of these
// routes. It removes the trace operation, which contains the cluster's name.
func leadNowhere(virtualHost *routev3.VirtualHost, clusters map[string]encoded) (n int) {
	lead := func(name *string) {
		if _, ok := clusters[*name]; !ok {
			*name = model.BlackHole
			n++
		}
	}
	for _, route := range virtualHost.GetRoutes() {
		route.Decorator = nil
		if to, ok := route.GetRoute().GetClusterSpecifier().(*routev3.RouteAction_Cluster); ok {
			lead(&to.Cluster)
		}
		for _, part := range route.GetRoute().GetWeightedClusters().GetClusters() {
			lead(&part.Name)
		}
		for _, m := range route.GetRoute().GetRequestMirrorPolicies() {
			lead(&m.Cluster)
		}
	}
	return n
}

// encoded is an entry, comparable.
type encoded string

func entries(t *testing.T, c *Catalog, n *corev3.Node, typeURL string) map[string]encoded {
	t.Helper()
	coll, release, err := c.Collection(onStream(t, deltaMethod), n, typeURL)
	require.NoError(t, err)
	defer release()
	bodies := make(map[string]encoded)
	for e := range coll.All() {
		bodies[e.Name] = encoded(e.Any)
	}
	return bodies
}

func message(t *testing.T, r encoded) proto.Message {
	t.Helper()
	var a anypb.Any
	require.NoError(t, proto.Unmarshal([]byte(r), &a))
	m, err := a.UnmarshalNew()
	require.NoError(t, err)
	return m
}

// Filters request missing hosts. Clients that cannot subscribe by name (state of the world, other roles than sidecar)
// get complete routes.
func TestOnDemandListeners(t *testing.T) {
	listener := &listenerv3.Listener{
		FilterChains: []*listenerv3.FilterChain{translate.HTTPChain(model.Binding{Address: model.Localhost, Port: 80}, "80",
			translate.ListenerOptions{})},
		DefaultFilterChain: translate.ListenerOptions{}.PassOn(),
	}
	translate.OnDemand(listener)
	http, err := listener.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalNew()
	require.NoError(t, err)
	require.Equal(t, "envoy.filters.http.on_demand", http.(*hcmv3.HttpConnectionManager).GetHttpFilters()[0].GetName())
	tcp, err := listener.GetDefaultFilterChain().GetFilters()[0].GetTypedConfig().UnmarshalNew()
	require.NoError(t, err)
	require.NotNil(t, tcp.(*tcpv3.TcpProxy).GetOnDemand().GetOdcdsConfig())

	catalog := New(&memstore.Table{}, Options{Log: slog.New(slog.DiscardHandler)})
	catalog.reset(memstore.Snapshot{}, false)
	router := demandingNode("shop")
	router.Id = "router~127.0.0.1~gateway.shop~shop.svc.cluster.local"
	for _, tt := range []struct {
		method string
		node   *corev3.Node
		err    error
	}{
		{deltaMethod, demandingNode("shop"), nil},
		{"/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts", demandingNode("shop"), nil},
		{strings.Replace(deltaMethod, "Delta", "Stream", 1), demandingNode("shop"), xds.ErrNoAnswer},
		{deltaMethod, node("shop", "NONE", ""), xds.ErrNoAnswer},
		{deltaMethod, router, xds.ErrNoAnswer},
	} {
		_, release, err := catalog.Collection(onStream(t, tt.method), tt.node, xds.VHostURL)
		require.ErrorIs(t, err, tt.err, tt.method)
		if err == nil {
			release()
		}
	}
}
