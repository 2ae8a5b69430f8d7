package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"tributary/e2e/fixture"
)

// TestRestartUnderLoad_RouteMoves counts calls of grpc-go that fail although tributary comes back with another cluster:
// while no process runs, the route moves to a new service and the old one is deleted.
func TestRestartUnderLoad_RouteMoves(t *testing.T) {
	t.Parallel()
	restarts := byNight(10, 50)
	port := fixture.FreePort(t)
	greeters := []int{healthServer(t, healthpb.HealthCheckResponse_SERVING), healthServer(t, healthpb.HealthCheckResponse_SERVING)}
	directory := t.TempDir()
	choose := func(version int) {
		target := fmt.Sprintf("greeter-%d", version)
		entry := func(name string) string {
			return service(name, fmt.Sprintf("  ports: [{number: %d, name: grpc, protocol: GRPC}]\n"+
				"  endpoints: [{address: 127.0.0.1, ports: {grpc: %d}}]\n", port, greeters[version%2]))
		}
		write(t, directory, "greeter.yaml", entry("greeter")+"---\n"+entry(target)+fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: greeter, namespace: default}
spec:
  hosts: [greeter.mesh.internal]
  http: [{route: [{destination: {host: %s.mesh.internal}}]}]
`, target))
	}
	choose(0)
	tributary := fixture.StartTributary(t, fixture.Files("mesh", directory))
	mesh := &mesh{tributary, directory}
	conn := xdsConnection(t, mesh.XDS, fmt.Sprintf("xds:///greeter.mesh.internal:%d", port))
	mesh.Await(t, func() error { _, err := checkHealth(conn); return err })
	calls := startLoad(t, func() (string, error) { time.Sleep(5 * time.Millisecond); return checkHealth(conn) })
	for version := 1; version <= restarts; version++ {
		require.Zero(t, mesh.Terminate(t, 10*time.Second))
		choose(version)
		mesh.Restart(t)
		calls.awaitAnswer(t, fixture.Loopback(greeters[version%2]))
		answered := calls.answered.Load() // by callers that had begun before
		require.Eventually(t, func() bool { return calls.answered.Load() > answered+20 }, 10*time.Second, time.Millisecond)
	}
	require.Zero(t, calls.end(), "calls that failed")
	mesh.rejectedNothing(t)
	t.Logf("%d restarts, %d calls", restarts, calls.answered.Load())
}
