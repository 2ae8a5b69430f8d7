package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcpeer "google.golang.org/grpc/peer"
	xdsclient "google.golang.org/grpc/xds"

	"tributary/e2e/fixture"
)

// A real Envoy gets everything from tributary, without an istiod: requests go to a service by its host, and follow its
// listed and its selected endpoints; a deleted service has no listener.
func TestEnvoyOnTributary(t *testing.T) {
	t.Parallel()
	backendOne, backendTwo := backend(t, "one"), backend(t, "two")
	port, tcp := fixture.FreePort(t), fixture.FreePort(t)
	quickstart := fixture.Testdata("quickstart")
	mesh := startMesh(t, "echo.yaml", listing(port, backendOne), fixture.Files("quickstart", quickstart))
	envoy := fixture.StartEnvoy(t, mesh.XDS)

	envoy.Await(t, holds(t, envoy, fixture.ReadObjects(t, mesh.dir, quickstart)))
	envoy.Await(t, answeredBy(t, port, "one"))
	mesh.write(t, "echo.yaml", listing(port, backendTwo))
	envoy.Await(t, answeredBy(t, port, "two"))

	mesh.write(t, "echo.yaml", selecting(port))
	mesh.write(t, "workloads.yaml", workload("one", backendOne, "echo"))
	envoy.Await(t, answeredBy(t, port, "one"))
	mesh.write(t, "workloads.yaml", workload("one", backendOne, "other")+"---\n"+workload("two", backendTwo, "echo"))
	envoy.Await(t, answeredBy(t, port, "two"))

	mesh.write(t, "tcp.yaml", plain(tcp, backendOne))
	envoy.Await(t, answeredBy(t, tcp, "one"))
	require.NoError(t, os.Remove(filepath.Join(mesh.dir, "tcp.yaml")))
	envoy.Await(t, func() error { return checkClosed(t, tcp) })

	mesh.write(t, "proxy.yaml", "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: echo, namespace: "+
		"default}\nspec: {host: echo.mesh.internal, trafficPolicy: {tunnel: {targetHost: a.example, targetPort: 80}}}\n")
	envoy.Await(t, func() error {
		_, explanation, err := fixture.Get(t.Context(), mesh.URL("/debug/explain?kind=dr&namespace=default&name=echo"))
		if err == nil && !strings.Contains(explanation, "spec.trafficPolicy.tunnel has no effect on Envoys") {
			err = fmt.Errorf("explain: %s", explanation)
		}
		return err
	})
	mesh.rejectedNothing(t)
}

// A gRPC client resolves a service from tributary by host and port, or by host alone, balances its calls by weight, and follows its
// endpoints.
func TestGRPCOnTributary(t *testing.T) {
	t.Parallel()
	serverOne, serverTwo := healthServer(t, healthpb.HealthCheckResponse_SERVING), healthServer(t, healthpb.HealthCheckResponse_SERVING)
	mesh := startMesh(t, "greeter.yaml", greeter(serverOne, 1))
	for _, target := range []string{"xds:///greeter.mesh.internal:50051", "xds:///greeter.mesh.internal"} {
		mesh.write(t, "greeter.yaml", greeter(serverOne, 1))
		ask := grpcClient(t, mesh.XDS, target)
		// The earlier endpoints may still be in use, and every fourth of them is the other server.
		only := func(port int) func() bool {
			return func() bool {
				for range 50 {
					if ask() != port {
						return false
					}
				}
				return true
			}
		}
		require.Eventually(t, only(serverOne), 10*time.Second, 20*time.Millisecond)
		mesh.write(t, "greeter.yaml", greeter(serverTwo, 1))
		require.Eventually(t, only(serverTwo), 10*time.Second, 20*time.Millisecond)

		mesh.write(t, "greeter.yaml", greeter(serverOne, 3)+endpointOf(serverTwo, 1))
		// A new connection has no share of the calls yet.
		require.Eventually(t, func() bool { return ask() == serverOne }, 10*time.Second, 20*time.Millisecond)
		require.Eventually(t, func() bool { return ask() == serverTwo }, 10*time.Second, 20*time.Millisecond)
		counts := map[int]int{}
		for range 1000 {
			counts[ask()]++
		}
		require.InDelta(t, 750, counts[serverOne], 100, "%v", counts)
		require.Equal(t, 1000, counts[serverOne]+counts[serverTwo], "%v", counts)
	}
	mesh.write(t, "named.yaml", strings.Replace(service("named",
		fmt.Sprintf("  ports: [{number: 50051, name: grpc, protocol: GRPC}]\n  endpoints: [{address: localhost, ports: {grpc: %d}}, {address: "+
			"nowhere.invalid}]\n", serverOne)),
		"resolution: STATIC", "resolution: DNS", 1))
	ask := grpcClient(t, mesh.XDS, "xds:///named.mesh.internal")
	require.Eventually(t, func() bool { return ask() == serverOne }, 10*time.Second, 20*time.Millisecond)
	mesh.rejectedNothing(t)
}

// xdsConnection dials a service through grpc-go's xDS client.
func xdsConnection(t *testing.T, server, target string) *grpc.ClientConn {
	t.Helper()
	resolver, err := xdsclient.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil,
		`{"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}],"server_features":["xds_v3"]}],"node":{"id":"n1"}}`, server))
	require.NoError(t, err)
	conn, err := grpc.NewClient(target, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// checkHealth makes a call and returns the address that answered.
func checkHealth(conn *grpc.ClientConn) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var server grpcpeer.Peer
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&server)); err != nil {
		return "", err
	}
	return server.Addr.String(), nil
}

// grpcClient returns a function that makes a call and returns the port of the server, or 0 if the call failed.
func grpcClient(t *testing.T, server, target string) func() int {
	t.Helper()
	conn := xdsConnection(t, server, target)
	return func() int {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var p grpcpeer.Peer
		if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p)); err != nil {
			return 0
		}
		return p.Addr.(*net.TCPAddr).Port
	}
}

func service(name, spec string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: default}\nspec:\n  hosts: "+
		"[%[1]s.mesh.internal]\n  location: MESH_INTERNAL\n  resolution: STATIC\n%s", name, spec)
}

// listing is a service that lists its endpoint.
func listing(port, backend int) string {
	return service("echo", fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: "+
		"{http: %d}}]\n", port, backend))
}

// selecting is one that selects workloads.
func selecting(port int) string {
	return service("echo", fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  workloadSelector: {labels: {app: echo}}\n",
		port))
}

func workload(name string, port int, app string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: %s, namespace: default}\nspec: {address: "+
		"127.0.0.1, ports: {http: %d}, labels: {app: %s}}\n", name, port, app)
}

// plain is a service without HTTP.
func plain(port, backend int) string {
	return service("plain", fmt.Sprintf("  ports: [{number: %d, name: tcp, protocol: TCP}]\n  endpoints: [{address: 127.0.0.1, ports: {tcp: "+
		"%d}}]\n", port, backend))
}

func greeter(backend, weight int) string {
	return service("greeter", "  ports: [{number: 50051, name: grpc, protocol: GRPC}]\n  endpoints:\n"+endpointOf(backend, weight))
}

func endpointOf(backend, weight int) string {
	return fmt.Sprintf("  - {address: 127.0.0.1, ports: {grpc: %d}, weight: %d}\n", backend, weight)
}
