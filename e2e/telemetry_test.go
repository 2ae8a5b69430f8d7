package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// A real Envoy writes a line for each request if a Telemetry demands it, unless the Telemetry of its workload overrides
// that, and sends spans of the configured share of requests to the provider of the MeshConfig.
func TestTelemetryOnTributary(t *testing.T) {
	t.Parallel()
	var spans atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/api/v2/spans" && strings.Contains(string(body), "echo.mesh.internal") {
			spans.Add(1)
		}
	}))
	defer collector.Close()
	port, front := fixture.FreePort(t), fixture.FreePort(t)
	log := filepath.Join(t.TempDir(), "access.log")
	mesh := startMesh(t, "echo.yaml", listing(port, backend(t, "one")))
	mesh.write(t, "observe.yaml", fmt.Sprintf(`apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: istio}
spec:
  extensionProviders:
  - {name: lines, envoyFileAccessLog: {path: %q, logFormat: {text: "%%REQ(:PATH)%% %%RESPONSE_CODE%% %%UPSTREAM_CLUSTER_RAW%%"}}}
  - {name: spans, zipkin: {service: spans.mesh.internal, port: 9411}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: spans, namespace: default}
spec:
  hosts: [spans.mesh.internal]
  ports: [{number: 9411, name: http, protocol: HTTP, targetPort: %d}]
  resolution: STATIC
  endpoints: [{address: 127.0.0.1}]
---
apiVersion: networking.istio.io/v1
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
`, log, collector.Listener.Addr().(*net.TCPAddr).Port, front))
	const head = "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: %s, namespace: %s}\nspec: %s\n---\n"
	defaults := fmt.Sprintf(head, "all", "istio-system", "{accessLogging: [{providers: [{name: lines}], filter: {expression: "+
		"\"request.url_path.startsWith('/logged')\"}}], tracing: [{providers: [{name: spans}], randomSamplingPercentage: 100}]}")
	mesh.write(t, "telemetry.yaml", defaults)

	sidecar := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS, "--label", "app=shop"))
	sidecar.Await(t, answeredBy(t, port, "one"))
	gateway := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", mesh.XDS,
		"--node-id", "router~127.0.0.1~front.default~default.svc.cluster.local", "--label", "istio=ingressgateway"))
	gateway.Await(t, answeredBy(t, front, "one"))

	ask := func(port int, path string) {
		t.Helper()
		_, err := askEdge(t, port, http.MethodGet, "echo.mesh.internal", path)
		require.NoError(t, err)
	}
	lines := func() string {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		return string(text)
	}
	ask(port, "/quiet")
	for i, listenPort := range []int{port, front} {
		path := fmt.Sprintf("/logged/%d", i)
		sidecar.WaitFor(t, 30*time.Second, func() error { // Envoy writes every ten seconds
			ask(listenPort, path)
			if !strings.Contains(lines(), fmt.Sprintf("%s 200 outbound|%d||echo.mesh.internal\n", path, port)) {
				return fmt.Errorf("no line for %s in %q", path, lines())
			}
			return nil
		})
	}
	require.NotContains(t, lines(), "quiet")
	sidecar.Await(t, func() error {
		if spans.Load() == 0 {
			return errors.New("no spans")
		}
		return nil
	})

	mesh.write(t, "telemetry.yaml", defaults+fmt.Sprintf(head, "shop", "default",
		"{selector: {matchLabels: {app: shop}}, accessLogging: [{disabled: true}], tracing: [{randomSamplingPercentage: 12.5}]}"))
	listeners := func(e *fixture.Envoy) string {
		_, dump, err := fixture.Get(t.Context(), e.URL("/config_dump?resource=dynamic_listeners"))
		require.NoError(t, err)
		return dump
	}
	sidecar.Await(t, func() error {
		if dump := listeners(sidecar); strings.Contains(dump, log) || !strings.Contains(dump, "12.5") {
			return errors.New("the sidecar still logs, or has the earlier sampling")
		}
		return nil
	})
	require.Contains(t, listeners(gateway), log)
	require.NotContains(t, listeners(gateway), "12.5")
	mesh.rejectedNothing(t)
}
