package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"tributary/e2e/fixture"
)

// A real Envoy follows the HTTP routes of VirtualServices that it gets from tributary.
func TestRoutesOnTributary(t *testing.T) {
	t.Parallel()
	var mirrored, tries atomic.Int64
	backendOne := handler(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			time.Sleep(2 * time.Second)
		case "/flaky":
			if tries.Add(1)%3 != 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
		case "/header":
			w.Header().Set("X-Got", r.Header.Get("X-Added")+r.Header.Get("X-Removed"))
		}
		_, _ = io.WriteString(w, "one "+r.URL.Path)
	})
	backendTwo := handler(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mirror" {
			mirrored.Add(1)
		}
		_, _ = io.WriteString(w, "two "+r.URL.Path)
	})
	port := fixture.FreePort(t)
	mesh := startMesh(t, "echo.yaml", echoService(port, backendOne, backendTwo)+"---\n"+manyRoutes)
	envoy := fixture.StartEnvoy(t, mesh.XDS)
	ask := func(path string, headers ...string) answer {
		got, err := askEdge(t, port, http.MethodGet, "echo.mesh.internal", path, headers...)
		require.NoError(t, err)
		return got
	}
	envoy.Await(t, answeredAt(port))

	require.Equal(t, "two /exact", ask("/exact").body)
	require.Equal(t, "two /any", ask("/any", "x-user", "bob").body)
	require.Equal(t, "one /rewritten/it", ask("/rewrite/it").body)
	require.Equal(t, http.StatusMovedPermanently, ask("/old").status)
	require.Equal(t, "/new", ask("/old").header.Get("Location")[len("http://echo.mesh.internal"):])
	require.Equal(t, http.StatusTeapot, ask("/teapot").status)
	require.Equal(t, "short and stout", ask("/teapot").body)
	require.Equal(t, http.StatusConflict, ask("/abort").status)
	require.Equal(t, http.StatusGatewayTimeout, ask("/slow").status)
	require.Equal(t, "one /flaky", ask("/flaky").body, "after two retries")
	require.Equal(t, "one /mirror", ask("/mirror").body)
	require.Eventually(t, func() bool { return mirrored.Load() == 1 }, 5*time.Second, 10*time.Millisecond)
	require.Equal(t, "yes", ask("/header", "x-removed", "no").header.Get("X-Got"))
	require.Equal(t, http.StatusServiceUnavailable, ask("/nowhere").status, "a route without a service responds with 503")

	counts := map[string]int{}
	for range 1000 {
		counts[ask("/weighted").body]++
	}
	require.InDelta(t, 750, counts["one /weighted"], 60, "%v", counts)
	require.Equal(t, 1000, counts["one /weighted"]+counts["two /weighted"], "%v", counts)
	mesh.rejectedNothing(t)
}

// A route moves to a new subset, and the old one is removed in the same commit, 50 times under load: no request fails.
func TestSubsetMovesOnTributary(t *testing.T) {
	t.Parallel()
	backendOne, backendTwo := backend(t, "one"), backend(t, "two")
	port := fixture.FreePort(t)
	mesh := startMesh(t, "echo.yaml", moved(port, 0, backendOne))
	envoy := fixture.StartEnvoy(t, mesh.XDS)
	envoy.Await(t, answeredAt(port))
	l := startLoad(t, func() (string, error) {
		res, err := response(t, port, "echo.mesh.internal")
		if err != nil {
			return "", err
		}
		defer func() { _ = res.Body.Close() }()
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s %s: %v", res.Status, b, err) //nolint:errorlint // err may be nil
		}
		return res.Header.Get("X-Move"), nil
	})
	for n := 1; n <= 50; n++ {
		mesh.write(t, "echo.yaml", moved(port, n, []int{backendOne, backendTwo}[n%2]))
		l.awaitAnswer(t, fmt.Sprint(n))
	}
	require.Zero(t, l.end(), "requests that failed")
	t.Logf("%d requests answered", l.answered.Load())
	mesh.rejectedNothing(t)
}

// answer is the response to a request.
type answer struct {
	status int
	body   string
	header http.Header
}

// The same with an unmodified gRPC client, which takes a route into use before its balancer if it is not introduced to
// the cluster first.
func TestGRPCSubsetMovesOnTributary(t *testing.T) {
	t.Parallel()
	ports := []int{healthServer(t, healthpb.HealthCheckResponse_SERVING), healthServer(t, healthpb.HealthCheckResponse_SERVING)}
	mesh := startMesh(t, "echo.yaml", moved(50051, 0, ports[0]))
	ask := grpcClient(t, mesh.XDS, "xds:///echo.mesh.internal:50051")
	require.Eventually(t, func() bool { return ask() == ports[0] }, 10*time.Second, 20*time.Millisecond)
	l := startLoad(t, func() (string, error) {
		port := ask()
		if port == 0 {
			return "", errors.New("the call failed")
		}
		return strconv.Itoa(port), nil
	})
	for n := 1; n <= 20; n++ {
		to := ports[n%2]
		mesh.write(t, "echo.yaml", moved(50051, n, to))
		l.awaitAnswer(t, strconv.Itoa(to))
	}
	require.Zero(t, l.end(), "calls that failed")
	t.Logf("%d calls answered", l.answered.Load())
	mesh.rejectedNothing(t)
}

func handler(t *testing.T, serve http.HandlerFunc) (port int) {
	t.Helper()
	s := httptest.NewServer(serve)
	t.Cleanup(s.Close)
	_, err := fmt.Sscanf(s.URL, "http://127.0.0.1:%d", &port)
	require.NoError(t, err)
	return port
}

// answeredAt says whether anything answers as the service on a port.
func answeredAt(port int) func() error {
	return func() error {
		req, err := http.NewRequest(http.MethodGet, "http://"+fixture.Loopback(port)+"/exact", nil) //nolint:noctx // as short as the test
		if err != nil {
			return err
		}
		req.Host = "echo.mesh.internal"
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", res.Status)
		}
		return nil
	}
}

const manyRoutes = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  http:
  - match: [{uri: {exact: /exact}}, {headers: {x-user: {exact: bob}}}]
    route: [{destination: {host: echo.mesh.internal, subset: two}}]
  - match: [{uri: {prefix: /rewrite}}]
    rewrite: {uri: /rewritten}
    route: [{destination: {host: echo.mesh.internal, subset: one}}]
  - match: [{uri: {exact: /old}}]
    redirect: {uri: /new}
  - match: [{uri: {exact: /teapot}}]
    directResponse: {status: 418, body: {string: short and stout}}
  - match: [{uri: {exact: /abort}}]
    fault: {abort: {httpStatus: 409, percentage: {value: 100}}}
    route: [{destination: {host: echo.mesh.internal, subset: one}}]
  - match: [{uri: {exact: /slow}}]
    timeout: 0.2s
    route: [{destination: {host: echo.mesh.internal, subset: one}}]
  - match: [{uri: {exact: /flaky}}]
    retries: {attempts: 3, retryOn: 5xx}
    route: [{destination: {host: echo.mesh.internal, subset: one}}]
  - match: [{uri: {exact: /mirror}}]
    mirror: {host: echo.mesh.internal, subset: two}
    route: [{destination: {host: echo.mesh.internal, subset: one}}]
  - match: [{uri: {exact: /header}}]
    headers: {request: {set: {x-added: "yes"}, remove: [x-removed]}}
    route: [{destination: {host: echo.mesh.internal, subset: one}}]
  - match: [{uri: {exact: /nowhere}}]
    route: [{destination: {host: nowhere.mesh.internal}}]
  - route:
    - {destination: {host: echo.mesh.internal, subset: one}, weight: 75}
    - {destination: {host: echo.mesh.internal, subset: two}, weight: 25}
`

// moved is a service that routes requests to the subset with the number of the move, its only subset.
func moved(port, move, backend int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: %d}, labels: {move: m%[3]d}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: default}
spec:
  host: echo.mesh.internal
  subsets: [{name: m%[3]d, labels: {move: m%[3]d}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  http:
  - headers: {response: {set: {x-move: "%[3]d"}}}
    route: [{destination: {host: echo.mesh.internal, subset: m%[3]d}}]
`, port, backend, move)
}
