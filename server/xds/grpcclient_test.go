package xds

import (
	"context"
	"fmt"
	"net"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // named by Any
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	xdsclient "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoregistry"

	"tributary/internal/xdstest"
)

// service is what gRPC clients need of a service; its endpoints are endpointsOf.
var service = map[string]string{
	ListenerURL: `{"name": "echo", "apiListener": {"apiListener": {
		"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"rds": {"routeConfigName": "route", "configSource": {"ads": {}}},
		"httpFilters": [{"name": "router", "typedConfig": {
			"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}}`,
	RouteURL: `{"name": "route", "virtualHosts": [{"name": "all", "domains": ["*"], "routes": [
		{"match": {"prefix": ""}, "route": {"cluster": "cluster"}}]}]}`,
	ClusterURL: `{"name": "cluster", "type": "EDS", "edsClusterConfig": {"edsConfig": {"ads": {}}}}`,
}

func endpointsOf(backend *net.TCPAddr) string {
	return fmt.Sprintf(`{"clusterName": "cluster", "endpoints": [{"locality": {"region": "r"}, "loadBalancingWeight": 1,
		"lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": %q, "portValue": %d}}}}]}]}`, backend.IP, backend.Port)
}

// putJSON commits a resource that is written in JSON.
func (f *fixture) putJSON(typeURL, text string) {
	f.t.Helper()
	message, err := protoregistry.GlobalTypes.FindMessageByURL(typeURL)
	require.NoError(f.t, err)
	resource := message.New().Interface()
	require.NoError(f.t, protojson.Unmarshal([]byte(text), resource))
	entry, err := NewEntry(resource)
	require.NoError(f.t, err)
	f.coll(typeURL).Apply(Commit{Put: []*Entry{entry}})
	f.coll(typeURL).MarkSynced()
}

// grpc-go's own xDS client resolves a service that was fed by hand, and an EDS change moves its traffic from one backend
// to another.
func TestGRPCClient(t *testing.T) {
	firstBackend, tcpAddr := backend(t), backend(t)
	fixture := newFixture(t)
	for typeURL, text := range service {
		fixture.putJSON(typeURL, text)
	}
	fixture.putJSON(EndpointURL, endpointsOf(firstBackend))

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
	fixture.putJSON(EndpointURL, endpointsOf(tcpAddr))
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
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	address, _ := xdstest.Serve(t, s)
	backend, err := net.ResolveTCPAddr("tcp", address)
	require.NoError(t, err)
	return backend
}
