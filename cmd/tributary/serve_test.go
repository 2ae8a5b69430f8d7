package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
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

	"tributary/internal/testutil"
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

// TestFilesIn tells the whole story in one process: files are served, change, turn bad, and are watched.
func TestFilesIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/reviews.yaml", entry("reviews", 80))
	server := serving(t, served(dir)...)
	server.awaitReady(t)

	result := command(t, "get", "se", "-A", "--server", server.xds, "--admin", server.admin)
	assert.Zero(t, result.code)
	assert.Regexp(t, `NAMESPACE +NAME +HOSTS +LOCATION +RESOLUTION +AGE
shop +reviews +reviews.example +MESH_EXTERNAL +NONE +\d+s
$`, result.stdout)

	ctx, cancel := context.WithCancel(t.Context())
	var events testutil.Buffer
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"watch", "se", "--server", server.xds}, &events, &events) }()
	await := func(line string) {
		t.Helper()
		eventually(t, func() error {
			if !strings.Contains(events.String(), line+"\n") {
				return errors.New(events.String())
			}
			return nil
		})
	}
	await("added    ServiceEntry shop/reviews")
	write(t, dir+"/ratings.yaml", entry("ratings", 80))
	await("added    ServiceEntry shop/ratings")
	write(t, dir+"/ratings.yaml", entry("ratings", 81))
	await("updated  ServiceEntry shop/ratings  spec.ports")
	write(t, dir+"/ratings.yaml", entry("ratings", 81000)) // stays as it is
	eventually(t, func() error {
		if _, body := server.page(t, "/debug/quarantine"); !strings.Contains(body, "81000") {
			return errors.New(body)
		}
		return nil
	})
	write(t, dir+"/ratings.yaml", "")
	await("deleted  ServiceEntry shop/ratings")
	cancel()
	require.Zero(t, <-ended)
	assert.Equal(t, 4, strings.Count(events.String(), "\n"), events.String())
}

func TestGet_YAMLCanBeApplied(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80)+"---\n"+entry("ratings", 80))
	server := serving(t, served(dir)...)
	server.awaitReady(t)

	result := command(t, "get", "serviceentry", "-n", "shop", "-o", "yaml", "--server", server.xds)
	require.Zero(t, result.code)
	path := t.TempDir() + "/again.yaml"
	write(t, path, result.stdout)
	assert.Zero(t, command(t, "validate", path).code, result.stdout)

	result = command(t, "get", "se", "reviews", "-n", "shop", "-o", "json", "--server", server.xds)
	require.Zero(t, result.code)
	var object struct{ Metadata struct{ Name string } }
	require.NoError(t, json.Unmarshal([]byte(result.stdout), &object))
	assert.Equal(t, "reviews", object.Metadata.Name)

	result = command(t, "get", "se", "-A", "-o", "json", "--server", server.xds)
	var list struct{ Items []any }
	require.NoError(t, json.Unmarshal([]byte(result.stdout), &list))
	assert.Len(t, list.Items, 2)
}

func TestGet_NoObjects(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	for _, c := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"se"}, 0, "no serviceentries in namespace default; there is 1 in other namespaces (-A)\n"},
		{[]string{"vs", "-A"}, 0, "no virtualservices at all\n"},
		{[]string{"se", "nope", "-n", "shop"}, 1, "error: " + s.xds + " has no ServiceEntry nope in namespace shop\n"},
		{[]string{"se", "reviews"}, 1, "error: " + s.xds + " has no ServiceEntry reviews in namespace default; there is one in namespace shop\n"},
	} {
		got := command(t, append([]string{"get", "--server", s.xds}, c.args...)...)
		assert.Equal(t, result{c.code, "", c.stderr}, got, c.args)
	}
}

func TestServe_NotReadyWithoutASource(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/here/a.yaml", entry("reviews", 80))
	server := serving(t, append(served(dir+"/here"), "--config-source", "fs://"+dir+"/late")...)
	eventually(t, func() error {
		status, body := server.page(t, "/-/ready")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "source late (fs://"+dir+"/late) is not synced: unreachable: ") {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	got := command(t, "get", "se", "-A", "--server", server.xds, "--timeout", "100ms")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "did not answer within 100ms")

	write(t, dir+"/late/b.yaml", entry("ratings", 80))
	server.awaitReady(t)
	assert.Contains(t, command(t, "get", "se", "-A", "--server", server.xds).stdout, "ratings")
}

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

func TestConfigurationFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nconfigSources:\n- address: fs://./rules\n")
	p := program(t, dir, "serve", "--log-format", "json") // finds ./tributary.yaml
	listening(t, &p.stderr).awaitReady(t)
	p.signal(t, syscall.SIGTERM)
	assert.Zero(t, p.await(t, patience))

	write(t, dir+"/tributary.yaml", "listen: {xsd: 1}\n")
	p = program(t, dir, "serve")
	assert.Equal(t, 78, p.await(t, patience))
	assert.Contains(t, p.stderr.String(), dir+"/tributary.yaml:1:10: listen.xsd: unknown key (did you mean xds?); known here: admin, "+
		"adminTLS, xds, xdsTLS\n")

	p = program(t, t.TempDir(), "serve")
	assert.Equal(t, 78, p.await(t, patience))
	assert.Contains(t, p.stderr.String(), "tried ./tributary.yaml, /etc/tributary/tributary.yaml")
}

func TestPortInUse(t *testing.T) {
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, lis.Close()) }()
	taken, dir := lis.Addr().String(), t.TempDir()

	got := command(t, "serve", "--config-source", "fs://"+dir, "--listen", taken, "--admin", "127.0.0.1:0")
	assert.Equal(t, result{1, "", "error: listen.xds: " + taken + " is in use by another program\n"}, got)
	got = command(t, "serve", "--config-source", "fs://"+dir, "--listen", "127.0.0.1:0", "--admin", taken)
	assert.Equal(t, result{1, "", "error: listen.admin: " + taken + " is in use by another program\n"}, got)

	file := dir + "/t.yaml"
	write(t, file, "stateDir: off\nlisten:\n  xds: '"+taken+"'\n  admin: 127.0.0.1:0\nconfigSources: [{address: 'fs://./rules'}]\n")
	got = command(t, "serve", "-c", file)
	assert.Equal(t, result{1, "", "error: " + file + ":3:8: listen.xds: " + taken + " is in use by another program\n"}, got)
	got = command(t, "serve", "-c", file, "--listen", taken)
	assert.Equal(t, result{1, "", "error: listen.xds: " + taken + " is in use by another program\n"}, got)
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
