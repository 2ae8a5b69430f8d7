package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// bothVariants runs a test with an Envoy that takes all by delta, and one that takes it by state of the world.
func bothVariants(t *testing.T, test func(t *testing.T, start func(mesh *mesh) *fixture.Envoy)) {
	t.Helper()
	for _, api := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			test(t, func(mesh *mesh) *fixture.Envoy {
				return fixture.StartEnvoyWith(t, strings.Replace(bootstrap(t, "envoy", "--server", mesh.XDS), "DELTA_GRPC", api, 1))
			})
		})
	}
}

// worker is a backend that takes a while for each request.
type worker struct {
	name     string
	server   *http.Server
	port     int
	inFlight atomic.Int64
}

func startWorker(t *testing.T, name string) *worker {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &worker{name: name, port: lis.Addr().(*net.TCPAddr).Port}
	w.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w.inFlight.Add(1)
		defer w.inFlight.Add(-1)
		time.Sleep(50 * time.Millisecond) // that is its work
		_, _ = io.WriteString(rw, name)
	})}
	go func() { _ = w.server.Serve(lis) }()
	t.Cleanup(func() { _ = w.server.Close() })
	return w
}

// loadOn asks for the service on a port, several at a time.
func loadOn(t *testing.T, port int) *load {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	return startLoad(t, func() (string, error) {
		req, err := http.NewRequest(http.MethodGet, "http://"+fixture.Loopback(port), nil) //nolint:noctx // as short as the test
		if err != nil {
			return "", err
		}
		req.Host = "echo.mesh.internal"
		res, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", res.Status, body)
		}
		return string(body), err
	})
}

// Endpoints go and come under load. Each ends as soon as Envoy has removed it and its requests in flight are done: no
// request fails.
func TestDrainedUnderLoadOnTributary(t *testing.T) {
	t.Parallel()
	bothVariants(t, func(t *testing.T, start func(*mesh) *fixture.Envoy) {
		port := fixture.FreePort(t)
		stays, leaves := startWorker(t, "stays"), startWorker(t, "leaves 0")
		mesh := startMesh(t, "echo.yaml", workers(port, stays, leaves))
		envoy := start(mesh)
		envoy.Await(t, answeredAt(port))
		l := loadOn(t, port)
		for n := 1; n <= 10; n++ {
			l.awaitAnswer(t, leaves.name)
			mesh.write(t, "echo.yaml", workers(port, stays))
			endpoint := fmt.Sprintf("127.0.0.1:%d::", leaves.port)
			envoy.Await(t, func() error {
				_, body, err := fixture.Get(t.Context(), envoy.URL("/clusters"))
				if err == nil && strings.Contains(body, endpoint) || leaves.inFlight.Load() > 0 {
					err = fmt.Errorf("it has %d requests", leaves.inFlight.Load())
				}
				return err
			})
			require.NoError(t, leaves.server.Close())
			leaves = startWorker(t, fmt.Sprintf("leaves %d", n))
			mesh.write(t, "echo.yaml", workers(port, stays, leaves))
		}
		require.Zero(t, l.end(), "requests that failed")
		t.Logf("%d requests answered", l.answered.Load())
		mesh.rejectedNothing(t)
	})
}

// Tributary is killed again and again under load. Its last resources stay in force; changes of the meantime arrive
// after its restart; no request fails.
func TestKilledUnderLoadOnTributary(t *testing.T) {
	t.Parallel()
	bothVariants(t, func(t *testing.T, start func(*mesh) *fixture.Envoy) {
		port := fixture.FreePort(t)
		pair := []*worker{startWorker(t, "one"), startWorker(t, "two")}
		mesh := startMesh(t, "echo.yaml", workers(port, pair[0]))
		envoy := start(mesh)
		envoy.Await(t, answeredAt(port))
		l := loadOn(t, port)
		l.awaitAnswer(t, "one")
		for n := 1; n <= 5; n++ {
			mesh.Kill()
			if n%2 == 0 {
				require.NoError(t, os.RemoveAll(mesh.State)) // it has no saved state
			}
			answered := l.answered.Load()
			require.Eventually(t, func() bool { return l.answered.Load() > answered+20 }, 10*time.Second, time.Millisecond, "while it is down")
			mesh.write(t, "echo.yaml", workers(port, pair[n%2]))
			mesh.Restart(t)
			l.awaitAnswer(t, pair[n%2].name)
		}
		require.Zero(t, l.end(), "requests that failed")
		t.Logf("%d requests answered", l.answered.Load())
		mesh.rejectedNothing(t)
	})
}

// workers is a service that some workers do.
func workers(port int, members ...*worker) string {
	var endpoints []string
	for _, w := range members {
		endpoints = append(endpoints, fmt.Sprintf("{address: 127.0.0.1, ports: {http: %d}}", w.port))
	}
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [%s]
`, port, strings.Join(endpoints, ", "))
}
