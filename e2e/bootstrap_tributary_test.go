package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/xds"

	"tributary/e2e/fixture"
)

// The bootstraps of `tributary bootstrap` work unchanged with tributary itself as the server: for an Envoy, for one
// that is a gateway, and for a gRPC program.
func TestBootstrapsOnTributary(t *testing.T) {
	t.Parallel()
	port, front := fixture.FreePort(t), fixture.FreePort(t)
	backendPort := backend(t, "one")
	mesh := startMesh(t, "echo.yaml", listing(port, backendPort))
	mesh.write(t, "health.yaml", healthService(healthServer(t, healthpb.HealthCheckResponse_SERVING)))
	mesh.write(t, "gateway.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: [echo.mesh.internal]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  gateways: [front]
  http: [{route: [{destination: {host: echo.mesh.internal}}]}]
`, front))

	text := bootstrap(t, "envoy", "--server", mesh.XDS)
	fixture.ValidateEnvoy(t, text)
	sidecar := fixture.StartEnvoyWith(t, text)
	sidecar.Await(t, answeredBy(t, port, "one"))
	_, metrics, err := fixture.Get(t.Context(), sidecar.URL("/stats/prometheus"))
	require.NoError(t, err)
	for _, line := range []string{
		fmt.Sprintf(`envoy_cluster_upstream_rq_total{cluster_name="outbound|%d||echo.mesh.internal"} `, port),
		fmt.Sprintf(`envoy_cluster_upstream_rq{response_code="200",cluster_name="outbound|%d||echo.mesh.internal"} `, port),
		`envoy_cluster_upstream_cx_total{cluster_name="xds"} `,
		fmt.Sprintf(`envoy_http_downstream_rq_total{http_conn_manager_prefix="outbound_127.0.0.1_%d"} `, port),
		fmt.Sprintf(`envoy_listener_downstream_cx_total{listener_address="127.0.0.1_%d"} `, port),
	} {
		require.Contains(t, metrics, line)
	}
	require.NotContains(t, metrics, "mesh_internal", "the metric has the name of the measured value")

	gateway := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS,
		"--node-id", "router~127.0.0.1~front.default~default.svc.cluster.local", "--label", "istio=ingressgateway"))
	gateway.Await(t, answeredBy(t, front, "one"))

	resolver, err := xds.NewXDSResolverWithConfigForTesting([]byte(bootstrap(t, "grpc", "--server", mesh.XDS)))
	require.NoError(t, err)
	conn, err := grpc.NewClient("xds:///health.mesh.internal:7070", grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	gateway.Await(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	})
	mesh.rejectedNothing(t)
	status, _, err := fixture.Get(t.Context(), sidecar.URL("/ready"))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}
