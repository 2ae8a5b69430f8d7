package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
)

// entry is a ServiceEntry in namespace shop.
func entry(name string, port int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec: {hosts: [%s.example], ports: [{number: %d, name: http, protocol: HTTP}], resolution: NONE}
`, name, name, port)
}

// freely has the flags for free ports.
var freely = []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}

func served(dir string) []string { return append(freely, "--config-source", "fs://"+dir) }

// TestServe_OtherGRPCServices checks the services that grpcurl, grpcdebug and load balancers use.
func TestServe_OtherGRPCServices(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	server := serving(t, served(dir)...)
	server.awaitReady(t)
	conn, err := grpc.NewClient(server.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()

	eventually(t, func() error {
		health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err == nil && health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			err = errors.New(health.GetStatus().String())
		}
		return err
	})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v1, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	require.NoError(t, err)
	require.NoError(t, v1.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}))
	resp, err := v1.Recv()
	require.NoError(t, err)
	var services []string
	for _, service := range resp.GetListServicesResponse().GetService() {
		services = append(services, service.GetName())
	}
	for _, want := range []string{
		"envoy.service.discovery.v3.AggregatedDiscoveryService", "grpc.health.v1.Health", "grpc.channelz.v1.Channelz",
	} {
		assert.Contains(t, services, want)
	}
	v1alpha, err := reflectionv1alpha.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	require.NoError(t, err)
	require.NoError(t, v1alpha.CloseSend())
	_, err = v1alpha.Recv()
	require.ErrorContains(t, err, "EOF")

	_, metrics := server.page(t, "/metrics")
	for _, want := range []string{"tributary_build_info", "tributary_source_up", "tributary_xds_streams", "process_cpu_seconds_total"} {
		assert.Contains(t, metrics, want)
	}
}

// TestShutdown holds the program to a clean end after SIGTERM, with clients connected that do not let go.
func TestShutdown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	child := program(t, dir, append([]string{"serve", "--log-format", "json"}, served(dir)...)...)
	server := listening(t, &child.stderr)
	server.awaitReady(t)

	watch := program(t, dir, "watch", "se", "--server", server.xds)
	eventually(t, func() error {
		if !strings.Contains(watch.stdout.String(), "added") {
			return errors.New("nothing watched yet")
		}
		return nil
	})
	conn, err := grpc.NewClient(server.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	held := watchHealth(t, conn)

	child.signal(t, syscall.SIGTERM)
	change, err := held.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, change.GetStatus())
	status, body := server.page(t, "/-/ready")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "shutting down\n", body)
	assert.Zero(t, child.await(t, patience))
	assert.Contains(t, child.stderr.String(), `"msg":"stopped"`)

	watch.signal(t, syscall.SIGINT)
	assert.Zero(t, watch.await(t, patience))
}

// watchHealth watches the health of a server, and returns once that is SERVING, which may be a moment after it is ready.
func watchHealth(t *testing.T, conn *grpc.ClientConn) grpc.ServerStreamingClient[healthpb.HealthCheckResponse] {
	t.Helper()
	held, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	for {
		answer, err := held.Recv()
		require.NoError(t, err)
		if answer.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return held
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	dir := t.TempDir()
	child := program(t, dir, append([]string{"serve", "--log-format", "json"}, served(dir)...)...)
	s := listening(t, &child.stderr)
	s.awaitReady(t)
	conn, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	held := watchHealth(t, conn)

	child.signal(t, syscall.SIGTERM)
	_, err = held.Recv() // NOT_SERVING: the first signal has been taken
	require.NoError(t, err)
	child.signal(t, syscall.SIGTERM)
	assert.Equal(t, -1, child.await(t, patience), "by the signal, and not because it has come to an end")
}

func TestQuickstart(t *testing.T) {
	dir, err := filepath.Abs("../../testdata/quickstart")
	require.NoError(t, err)
	got := command(t, "validate", dir)
	assert.Zero(t, got.code, got.stdout)
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	_, body := s.page(t, "/debug/quarantine")
	assert.JSONEq(t, "[]", body)
}
