package e2e

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/xds"

	"tributary/e2e/fixture"
)

// nodeOfVM is the id of a sidecar in the namespace "default", in the form that istiod wants.
const nodeOfVM = "sidecar~127.0.0.1~vm1.default~default.svc.cluster.local"

// bootstrap is the output of `tributary bootstrap`.
func bootstrap(t *testing.T, args ...string) string {
	t.Helper()
	out, code := fixture.Run(t, append([]string{fixture.TributaryBinary(t), "bootstrap"}, args...)...)
	require.Zero(t, code)
	return out
}

// TestBootstrapIstiod shows that an istiod starts with the printed configuration and gets the objects of the server.
func TestBootstrapIstiod(t *testing.T) {
	t.Parallel()
	dir := fixture.Testdata("quickstart")
	tributary := fixture.StartTributary(t, fixture.Files("quickstart", dir))
	text := bootstrap(t, "istiod", "--server", tributary.XDS, "--kubernetes=false")
	istiod := fixture.NewIstiodWith(t, text)
	istiod.AwaitSynced(t)
	istiod.AwaitFolders(t, dir)

	text = bootstrap(t, "istiod", "--server", tributary.XDS)
	assert.Contains(t, text, "\n- address: k8s://\n", "a configuration for Kubernetes, the default, keeps its CRDs")
}

// TestBootstrapTributary shows that a tributary starts with the printed configuration and gets the objects of the
// server.
func TestBootstrapTributary(t *testing.T) {
	t.Parallel()
	dir := fixture.Testdata("quickstart")
	upper := fixture.StartTributary(t, fixture.Files("quickstart", dir))
	lower := fixture.StartTributaryWith(t, bootstrap(t, "tributary", "--server", upper.XDS))
	lower.AwaitReady(t)
	out, code := fixture.Run(t, fixture.TributaryBinary(t), "diff", dir, "--server", lower.XDS)
	assert.Zero(t, code, out)
}

// TestBootstrapEnvoy shows that Envoy accepts the printed bootstrap and gets its clusters from istiod.
func TestBootstrapEnvoy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "echo.yaml", echoService(fixture.FreePort(t), 1, 2))
	_, istiod := serve(t, dir)
	istiod.AwaitFolders(t, dir)
	text := bootstrap(t, "envoy", "--server", istiod.GRPC, "--node-id", nodeOfVM,
		"--metadata", "NAMESPACE=default,INTERCEPTION_MODE=NONE,ISTIO_VERSION=1.27.9")
	fixture.ValidateEnvoy(t, text)
	envoy := fixture.StartEnvoyWith(t, text)
	envoy.Await(t, holds(t, envoy, fixture.ReadObjects(t, dir)))
}

// TestBootstrapGRPC shows that a gRPC program with the printed bootstrap resolves, by way of istiod, a service from a
// file, and follows changes of the file.
func TestBootstrapGRPC(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serverOne, serverTwo := healthServer(t, healthpb.HealthCheckResponse_SERVING), healthServer(t, healthpb.HealthCheckResponse_NOT_SERVING)
	write(t, dir, "health.yaml", healthService(serverOne))
	_, istiod := serve(t, dir)
	istiod.AwaitFolders(t, dir)

	resolver, err := xds.NewXDSResolverWithConfigForTesting([]byte(bootstrap(t, "grpc", "--server", istiod.GRPC,
		"--node-id", nodeOfVM, "--metadata", "GENERATOR=grpc,NAMESPACE=default")))
	require.NoError(t, err)
	conn, err := grpc.NewClient("xds:///health.mesh.internal:7070",
		grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	answer := func(want healthpb.HealthCheckResponse_ServingStatus) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		res, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		if err == nil && res.GetStatus() != want {
			err = fmt.Errorf("%v answers, want %v", res.GetStatus(), want)
		}
		return err
	}
	istiod.Await(t, func() error { return answer(healthpb.HealthCheckResponse_SERVING) })
	write(t, dir, "health.yaml", healthService(serverTwo))
	istiod.Await(t, func() error { return answer(healthpb.HealthCheckResponse_NOT_SERVING) })
}

// healthServer is a gRPC server that says it has the status, and its port in the header served-by.
func healthServer(t *testing.T, status healthpb.HealthCheckResponse_ServingStatus) (port int) {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port = lis.Addr().(*net.TCPAddr).Port
	sign := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := grpc.SetHeader(ctx, metadata.Pairs("served-by", strconv.Itoa(port))); err != nil {
			return nil, err
		}
		return handle(ctx, req)
	}
	server, answers := grpc.NewServer(grpc.UnaryInterceptor(sign)), health.NewServer()
	answers.SetServingStatus("", status)
	healthpb.RegisterHealthServer(server, answers)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-ended)
	})
	return port
}

func healthService(port int) string {
	return strings.TrimSpace(fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: health, namespace: default}
spec:
  hosts: [health.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 7070, name: grpc, protocol: GRPC}]
  endpoints: [{address: 127.0.0.1, ports: {grpc: %d}}]
`, port))
}
