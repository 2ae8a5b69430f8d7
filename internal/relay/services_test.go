package relay

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// callAll calls each method of each service that clients can reach, and returns the codes.
func callAll(t *testing.T, r *rig) map[string]codes.Code {
	t.Helper()
	conn := dial(t, r.XDS())
	codesByMethod := map[string]codes.Code{}
	for service, info := range r.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			method := "/" + service + "/" + m.Name
			if !m.IsClientStream && !m.IsServerStream {
				codesByMethod[method] = status.Code(conn.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{}))
				continue
			}
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: m.IsClientStream, ServerStreams: m.IsServerStream}, method)
			require.NoError(t, err)
			_ = stream.SendMsg(&emptypb.Empty{}) // it may have ended
			_ = stream.CloseSend()
			codesByMethod[method] = status.Code(stream.RecvMsg(&emptypb.Empty{}))
		}
	}
	return codesByMethod
}

// Every service that is registered is bounded by the limits of streams and by the rules, also one that is added later.
func TestServices_LimitConcurrentCalls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, "rules/all.yaml: prod/p*1")
	write(t, dir+"/tokens", "")
	restricted(t, dir, "limits: {streamsPerPeer: 1, refusalDelay: 1ms}\n")
	r := startReady(t, dir)
	subscribe(t, r, "", "a").gets(t, 1) // the only stream that this address may have
	for method, code := range callAll(t, r) {
		require.Equal(t, codes.ResourceExhausted, code, method)
	}

	restricted(t, dir, "access: []\n")
	secondDir := startReady(t, dir)
	called := callAll(t, secondDir)
	for _, open := range []string{"Check", "List"} {
		method := "/grpc.health.v1.Health/" + open
		require.Equal(t, codes.OK, called[method], method)
		delete(called, method)
	}
	for method, code := range called {
		require.Equal(t, codes.PermissionDenied, code, method)
	}
	require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(called)), func(m string) bool {
		return strings.HasSuffix(m, "Health/Watch")
	}))
}

func TestHealth_UnknownServiceIsNotWatched(t *testing.T) {
	t.Parallel()
	r := serve(t, []string{"rules/all.yaml: prod/p*1"}, "address: 'fs://./rules'")
	r.awaitReady(t)
	conn := dial(t, r.XDS())
	watch := func(service string) healthpb.Health_WatchClient {
		stream, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		return stream
	}
	server := watch("")
	for state := healthpb.HealthCheckResponse_UNKNOWN; state != healthpb.HealthCheckResponse_SERVING; { // a moment after it is ready
		got, err := server.Recv()
		require.NoError(t, err)
		state = got.GetStatus()
	}
	_, err := watch(strings.Repeat("x", 1<<20)).Recv()
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestAdminPort_RefusesLargeRequests(t *testing.T) {
	t.Parallel()
	r := serve(t, []string{"rules/all.yaml: prod/p*1"}, "address: 'fs://./rules'")
	r.awaitReady(t)
	conn := dial(t, r.Admin())
	ask := func(size int) codes.Code {
		_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: strings.Repeat("x", size)})
		return status.Code(err)
	}
	require.Equal(t, codes.NotFound, ask(60<<10))
	require.Equal(t, codes.ResourceExhausted, ask(65<<10))
}
