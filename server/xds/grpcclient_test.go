package xds

import (
	"context"
	"fmt"
	"net"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	xdsclient "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/internal/testutil"
)

// feedService feeds w with a service as gRPC clients take it: a listener with an ApiListener, a route, a cluster and
// endpoints. The function that it returns moves the service to another backend.
func feedService(t *testing.T, w *fixture, backend *net.TCPAddr) (move func(version string, backend *net.TCPAddr)) {
	put := func(typeURL, name, version string, m proto.Message) {
		a, err := anypb.New(m)
		require.NoError(t, err)
		b, err := proto.Marshal(a)
		require.NoError(t, err)
		w.coll(typeURL).Apply(Commit{Put: []*Entry{{Name: name, Version: version, Any: b, Child: name}}})
		w.coll(typeURL).MarkSynced()
	}
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
	router, err := anypb.New(&routerv3.Router{})
	require.NoError(t, err)
	hcm, err := anypb.New(&hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "route", ConfigSource: ads}},
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
	})
	require.NoError(t, err)
	put(ListenerURL, "echo", "1", &listenerv3.Listener{Name: "echo", ApiListener: &listenerv3.ApiListener{ApiListener: hcm}})
	put(RouteURL, "route", "1", &routev3.RouteConfiguration{Name: "route", VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "cluster"}}},
		}},
	}}})
	put(ClusterURL, "cluster", "1", &clusterv3.Cluster{
		Name:                 "cluster",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads},
	})
	move = func(version string, addr *net.TCPAddr) {
		put(EndpointURL, "cluster", version, &endpointv3.ClusterLoadAssignment{
			ClusterName: "cluster",
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				Locality: &corev3.Locality{Region: "r"}, LoadBalancingWeight: wrapperspb.UInt32(1),
				LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address: addr.IP.String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(addr.Port)},
					}}},
				}}}},
			}},
		})
	}
	move("1", backend)
	return move
}

// grpc-go's own xDS client resolves a service that was fed by hand, and an EDS change moves its traffic from one backend
// to another.
func TestGRPCClient(t *testing.T) {
	firstBackend, tcpAddr := backend(t), backend(t)
	fixture := newFixture(t, Options{})
	move := feedService(t, fixture, firstBackend)

	bootstrap := fmt.Sprintf(`{"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}],"server_features":["xds_v3"]}],`+
		`"node":{"id":"n1"}}`, fixture.addr)
	resolver, err := xdsclient.NewXDSResolverWithConfigForTesting([]byte(bootstrap))
	require.NoError(t, err)
	conn, err := grpc.NewClient("xds:///echo", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	call := func() string {
		var p peer.Peer
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true), grpc.Peer(&p))
		require.NoError(t, err)
		return p.Addr.String()
	}
	require.Equal(t, firstBackend.String(), call())
	move("2", tcpAddr)
	eventually(t, func() bool { return call() == tcpAddr.String() })
	eventually(t, func() bool {
		for _, c := range fixture.server.Clients() {
			for _, typ := range c.Types {
				if !typ.Synced || typ.NackError != "" {
					return false
				}
			}
		}
		return true
	})
}

// backend is a gRPC server with a health service.
func backend(t *testing.T) *net.TCPAddr {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	testutil.ServeGRPC(t, listener, s)
	return listener.Addr().(*net.TCPAddr)
}
