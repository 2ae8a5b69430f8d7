package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"tributary/e2e/fixture"
)

// TestRestartUnderLoad counts requests that fail while tributary is stopped by SIGTERM and started again: four callers
// through Envoy and four of grpc-go see none, and istiod loses no object. Each start delivers a change that was saved
// while no process ran. Clients that start during a restart wait on the socket that the service manager holds.
func TestRestartUnderLoad(t *testing.T) {
	t.Parallel()
	restarts := byNight(4, 20)
	for name, start := range map[string]func(testing.TB, ...fixture.ConfigSource) *fixture.Tributary{
		"socket": fixture.StartTributaryOnSocket, "address": fixture.StartTributary,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port, grpcPort := fixture.FreePort(t), fixture.FreePort(t)
			workersOfEcho := []*worker{startWorker(t, "one"), startWorker(t, "two")}
			greeters := []int{
				healthServer(t, healthpb.HealthCheckResponse_SERVING), healthServer(t, healthpb.HealthCheckResponse_SERVING),
			}
			directory, steady := t.TempDir(), t.TempDir()
			for i := range 20 {
				service := fmt.Sprintf("steady-%d", i)
				write(t, steady, service+".yaml", serviceEntry(service, 80))
			}
			choose := func(backend int) {
				write(t, directory, "echo.yaml", workers(port, workersOfEcho[backend]))
				write(t, directory, "greeter.yaml", service("greeter", fmt.Sprintf("  ports: [{number: %d, name: grpc, protocol: GRPC}]\n"+
					"  endpoints: [{address: 127.0.0.1, ports: {grpc: %d}}]\n", grpcPort, greeters[backend])))
			}
			choose(0)
			tributary := start(t, fixture.Files("mesh", directory), fixture.Files("steady", steady))
			mesh := &mesh{tributary, directory}
			istiod := mesh.StartIstiod(t)
			istiod.AwaitFolders(t, directory, steady)
			objects := guard(t, istiod, fixture.ReadObjects(t, steady))
			envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS))
			envoy.Await(t, answeredAt(port))
			target := fmt.Sprintf("xds:///greeter.mesh.internal:%d", grpcPort)
			conn := xdsConnection(t, mesh.XDS, target)
			mesh.Await(t, func() error { _, err := checkHealth(conn); return err })

			throughEnvoy := loadOn(t, port)
			throughGRPC := startLoad(t, func() (string, error) { time.Sleep(10 * time.Millisecond); return checkHealth(conn) })
			for n := 1; n <= restarts; n++ {
				require.Zero(t, mesh.Terminate(t, 10*time.Second))
				choose(n % 2)
				newcomer := make(chan error, 1)
				if name == "socket" {
					conn := xdsConnection(t, mesh.XDS, target)
					go func() { _, err := checkHealth(conn); newcomer <- err }()
				} else {
					newcomer <- nil
				}
				answered := throughEnvoy.answered.Load()
				require.Eventually(t, func() bool { return throughEnvoy.answered.Load() > answered+5 }, 10*time.Second, time.Millisecond,
					"while no process runs")
				mesh.Restart(t)
				throughEnvoy.awaitAnswer(t, workersOfEcho[n%2].name)
				throughGRPC.awaitAnswer(t, fixture.Loopback(greeters[n%2]))
				require.NoError(t, <-newcomer, "a client that starts during the restart")
			}
			require.Zero(t, throughEnvoy.end(), "requests that failed through Envoy")
			require.Zero(t, throughGRPC.end(), "requests of grpc-go that failed")
			istiod.AwaitFolders(t, directory, steady)
			polls := objects.stop(t)
			mesh.rejectedNothing(t)
			t.Logf("%d restarts: Envoy answered %d requests and grpc-go %d, istiod held every object at %d polls", restarts,
				throughEnvoy.answered.Load(), throughGRPC.answered.Load(), polls)
		})
	}
}
