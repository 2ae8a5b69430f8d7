package e2e

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"tributary/e2e/fixture"
)

// A program of another language, on gRPC's C core, resolves a service from tributary by host and port, or by host
// alone, with the bootstrap that tributary prints; it balances its calls by weight, follows the endpoints, and routes
// to subsets, and has service back after a restart.
func TestGRPCIOOnTributary(t *testing.T) {
	t.Parallel()
	serverOne, serverTwo := healthServer(t, healthpb.HealthCheckResponse_SERVING), healthServer(t, healthpb.HealthCheckResponse_SERVING)
	mesh := startMesh(t, "greeter.yaml", greeter(serverOne, 1))
	text := bootstrap(t, "grpc", "--server", mesh.XDS)
	for _, target := range []string{"xds:///greeter.mesh.internal:50051", "xds:///greeter.mesh.internal"} {
		mesh.write(t, "greeter.yaml", greeter(serverOne, 1))
		client := fixture.StartGRPCIO(t, text, target)
		answeredOnlyBy(t, client, serverOne)
		mesh.write(t, "greeter.yaml", greeter(serverTwo, 1))
		answeredOnlyBy(t, client, serverTwo)

		mesh.write(t, "greeter.yaml", greeter(serverOne, 3)+endpointOf(serverTwo, 1))
		client.Await(t, func() error {
			if answers := client.Ask(t, 20); answers[strconv.Itoa(serverOne)] == 0 {
				return fmt.Errorf("%v", answers)
			}
			return nil
		})
		answers := client.Ask(t, 1000)
		require.InDelta(t, 750, answers[strconv.Itoa(serverOne)], 100, "%v", answers)
		require.Equal(t, 1000, answers[strconv.Itoa(serverOne)]+answers[strconv.Itoa(serverTwo)], "%v", answers)
	}
	mesh.rejectedNothing(t)
}

// A route moves to a new subset, and the old one is removed in the same commit: the C core, too, is introduced to the
// cluster first, and no call fails.
func TestGRPCIOSubsetMovesOnTributary(t *testing.T) {
	t.Parallel()
	ports := []int{healthServer(t, healthpb.HealthCheckResponse_SERVING), healthServer(t, healthpb.HealthCheckResponse_SERVING)}
	mesh := startMesh(t, "echo.yaml", moved(50051, 0, ports[0]))
	client := fixture.StartGRPCIO(t, bootstrap(t, "grpc", "--server", mesh.XDS), "xds:///echo.mesh.internal:50051")
	answeredOnlyBy(t, client, ports[0])
	failed := map[string]int{}
	for n := 1; n <= 20; n++ {
		to := strconv.Itoa(ports[n%2])
		mesh.write(t, "echo.yaml", moved(50051, n, ports[n%2]))
		client.Await(t, func() error {
			answers := client.Ask(t, 200)
			for serverPort, calls := range answers {
				if serverPort != strconv.Itoa(ports[0]) && serverPort != strconv.Itoa(ports[1]) {
					failed[serverPort] += calls
				}
			}
			if answers[to] != 200 {
				return fmt.Errorf("%v", answers)
			}
			return nil
		})
	}
	require.Empty(t, failed, "calls that failed")
	mesh.Kill()
	require.Equal(t, map[string]int{strconv.Itoa(ports[0]): 200}, client.Ask(t, 200), "without tributary")
	mesh.Restart(t)
	mesh.write(t, "echo.yaml", moved(50051, 21, ports[1]))
	answeredOnlyBy(t, client, ports[1])
	mesh.rejectedNothing(t)
}

// answeredOnlyBy waits until all calls are answered by the server on a port.
func answeredOnlyBy(t *testing.T, client *fixture.GRPCIO, port int) {
	t.Helper()
	client.Await(t, func() error {
		if answers := client.Ask(t, 10); answers[strconv.Itoa(port)] != 10 {
			return fmt.Errorf("%v, not by %d", answers, port)
		}
		return nil
	})
}
