package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// httpPatch is an EnvoyFilter that inserts an HTTP filter at gateways.
const httpPatch = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: breaks, namespace: default}
spec:
  workloadSelector: {labels: {istio: ingressgateway}}
  configPatches:
  - applyTo: %s
    match: {context: GATEWAY, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: %s
      value:
        name: %s
        typed_config: {"@type": type.googleapis.com/%s}
`

// breakers are objects with a listener that only an Envoy finds to be invalid, with the status of a response after
// policies change.
var breakers = map[string]struct{ object, fallback string }{
	"absent Wasm file": {`apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: breaks, namespace: default}
spec: {url: "file:///nonexistent.wasm", phase: AUTHN}
`, "that it last accepted"},
	"absent Lua file": {fmt.Sprintf(httpPatch, "HTTP_FILTER", "INSERT_FIRST", "script",
		`envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {filename: /nonexistent.lua}`), "that it last accepted"},
	"Lua that does not run": {fmt.Sprintf(httpPatch, "HTTP_FILTER", "INSERT_FIRST", "script",
		`envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: "error('no')"}`), "that it last accepted"},
	"unknown extension of a filter of ours": {
		fmt.Sprintf(httpPatch, "NETWORK_FILTER", "MERGE", "envoy.filters.network.http_connection_manager",
			`envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, `+
				`original_ip_detection_extensions: [{name: x, typed_config: {"@type": type.googleapis.com/google.protobuf.StringValue, value: x}}]`),
		"closes all connections",
	},
	"address that is not the machine's": {
		fmt.Sprintf(listenerPatch, `{address: {socket_address: {address: 10.99.99.99}}}`), "that it last accepted",
	},
	"changed reuse of the port": {fmt.Sprintf(listenerPatch, `{enable_reuse_port: false}`), "that it last accepted"},
}

// listenerPatch is an EnvoyFilter that changes the listeners of gateways.
const listenerPatch = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: breaks, namespace: default}
spec:
  workloadSelector: {labels: {istio: ingressgateway}}
  configPatches:
  - {applyTo: LISTENER, match: {context: GATEWAY}, patch: {operation: MERGE, value: %s}}
`

// silentBreakers are objects with which an Envoy acknowledges the listener and goes on with the earlier one.
var silentBreakers = map[string]string{
	"api_listener": fmt.Sprintf(listenerPatch, `{api_listener: {api_listener: {"@type": type.googleapis.com/`+
		`envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: x, route_config: {name: x}}}}`),
	"routes that are nowhere": fmt.Sprintf(httpPatch, "NETWORK_FILTER", "MERGE", "envoy.filters.network.http_connection_manager",
		`envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, rds: {route_config_name: nowhere}`),
	"module that does not come": fmt.Sprintf(httpPatch, "HTTP_FILTER", "INSERT_FIRST", "script",
		`envoy.extensions.filters.http.wasm.v3.Wasm, config: {name: x, vm_config: {runtime: envoy.wasm.runtime.v8, code: {remote: {`+
			`http_uri: {uri: "http://x/y", cluster: nowhere, timeout: 5s}, sha256: "00", retry_policy: {num_retries: 4000000000}}}}}`),
}

// TestSilentlyFrozenListenerDenies shows that no EnvoyFilter has an Envoy acknowledge a listener that is not in force.
func TestSilentlyFrozenListenerDenies(t *testing.T) {
	t.Parallel()
	for name, object := range silentBreakers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mesh, envoy, port := startFrozen(t, frozenKind{api: "DELTA_GRPC"})
			passes := func(want bool) { t.Helper(); awaitPasses(t, envoy, port, want) }
			passes(true)
			mesh.write(t, "breaks.yaml", object)
			mesh.Await(t, func() error {
				output, code := fixture.Run(t, fixture.TributaryBinary(t), "explain", "envoyfilter", "default/breaks", "--admin", mesh.Admin)
				if !strings.Contains(output, "spec.configPatches[0] has no effect on Envoys") { // it may not be read yet
					return fmt.Errorf("exit code %d: %s", code, output)
				}
				return nil
			})
			mesh.write(t, "deny.yaml", denyAll)
			passes(false)
			mesh.rejectedNothing(t)
		})
	}
}

// awaitPasses waits until a request through an Envoy passes, or until it does not.
func awaitPasses(t *testing.T, envoy *fixture.Envoy, port int, want bool) {
	t.Helper()
	envoy.Await(t, func() error {
		text, err := requestOnce(t, port)
		if (text == "passed") != want {
			return fmt.Errorf("%q (%w)", text, err)
		}
		return nil
	})
}

const denyAll = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: default}
spec:
  selector: {matchLabels: {istio: ingressgateway}}
  action: DENY
  rules: [{}]
`

const frontGateway = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: default}
spec:
  hosts: ["*"]
  gateways: [front]
  http: [{directResponse: {status: 200, body: {string: passed}}}]
`

// frozenKind is a kind of Envoy with a listener that freezes.
type frozenKind struct {
	api     string
	inbound bool // a sidecar, with a listener for its workload
}

// startFrozen starts an Envoy with a listener that answers "passed" at a port.
func startFrozen(t *testing.T, kind frozenKind, flags ...string) (m *mesh, envoy *fixture.Envoy, port int) {
	t.Helper()
	port = fixture.FreePort(t)
	node, mode, objects := "router", "REDIRECT", fmt.Sprintf(frontGateway, port)
	if kind.inbound {
		node, mode, objects = "sidecar", "NONE", fmt.Sprintf(inboundSidecar, port, backend(t, "passed"))
	}
	m = startMesh(t, "mesh.yaml", objects)
	boot := bootstrap(t, "envoy", "--server", m.XDS, "--label", "istio=ingressgateway", "--metadata", "INTERCEPTION_MODE="+mode,
		"--node-id", node+"~127.0.0.1~front.default~default.svc.cluster.local")
	return m, fixture.StartEnvoyCopy(t, "", strings.Replace(boot, "DELTA_GRPC", kind.api, 1), flags...), port
}

// TestFrozenListenerDenies shows that a real Envoy that rejects a listener enforces a later DENY, although it rejects
// that listener, too; and that it gets the listener back after the object is corrected.
func TestFrozenListenerDenies(t *testing.T) {
	t.Parallel()
	for _, kind := range []frozenKind{{api: "DELTA_GRPC"}, {api: "GRPC"}, {api: "DELTA_GRPC", inbound: true}} {
		for name, breaker := range breakers {
			t.Run(fmt.Sprintf("%s inbound %t %s", kind.api, kind.inbound, name), func(t *testing.T) {
				t.Parallel()
				mesh, envoy, port := startFrozen(t, kind)
				object := breaker.object
				if kind.inbound {
					object = strings.Replace(object, "context: GATEWAY", "context: SIDECAR_INBOUND", 1)
				}
				passes := func(want bool) { t.Helper(); awaitPasses(t, envoy, port, want) }
				passes(true)

				mesh.write(t, "breaks.yaml", object)
				mesh.Await(t, func() error {
					if n := mesh.Metric(t, "tributary_xds_rejected_resources", ""); n == 0 {
						return fmt.Errorf("nothing is rejected")
					}
					return nil
				})
				passes(true)
				require.NotContains(t, mesh.Ask(t, "status"), breaker.fallback, "the policies are those that the Envoy has")

				written := time.Now()
				mesh.write(t, "deny.yaml", denyAll)
				passes(false)
				t.Logf("denies after %s", time.Since(written))
				for range 60 {
					text, _ := requestOnce(t, port)
					require.NotEqual(t, "passed", text)
				}
				mesh.Await(t, func() error {
					if status := mesh.Ask(t, "status"); !strings.Contains(status, breaker.fallback) || strings.Contains(status, "not in force") {
						return fmt.Errorf("%s", status)
					}
					return nil
				})

				mesh.write(t, "breaks.yaml", "")
				mesh.Await(t, func() error {
					if n := mesh.Metric(t, "tributary_xds_rejected_resources", ""); n != 0 {
						return fmt.Errorf("%v resources are rejected", n)
					}
					return nil
				})
				passes(false)
				mesh.write(t, "deny.yaml", "")
				passes(true)
			})
		}
	}
}

// TestFrozenListenerDeniesUnderLoad has four callers send requests on connections that stay open, to an Envoy that rejects a
// listener. Once a new connection is denied, an open one passes at most one more request, since Envoy drains immediately.
func TestFrozenListenerDeniesUnderLoad(t *testing.T) {
	t.Parallel()
	for _, inbound := range []bool{false, true} {
		t.Run(fmt.Sprintf("inbound %t", inbound), func(t *testing.T) {
			t.Parallel()
			mesh, envoy, port := startFrozen(t, frozenKind{"DELTA_GRPC", inbound}, "--drain-strategy", "immediate")
			mesh.write(t, "breaks.yaml", breakers["absent Wasm file"].object)
			mesh.Await(t, func() error {
				if n := mesh.Metric(t, "tributary_xds_rejected_resources", ""); n == 0 {
					return fmt.Errorf("nothing is rejected")
				}
				return nil
			})
			var callers [4]keepAliveCaller
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			stop := sync.OnceFunc(func() {
				cancel()
				running.Wait()
			})
			t.Cleanup(stop)
			for i := range callers {
				running.Go(func() { callers[i].run(ctx, port) })
			}
			await := func(condition string, reached func(*keepAliveCaller) bool) {
				t.Helper()
				envoy.Await(t, func() error {
					for i := range callers {
						if !reached(&callers[i]) {
							return fmt.Errorf("caller %d waits until %s", i, condition)
						}
					}
					return nil
				})
			}
			await("requests pass", func(c *keepAliveCaller) bool { return c.passed.Load() > 20 })
			mesh.write(t, "deny.yaml", denyAll)
			envoy.Await(t, func() error {
				if text, err := requestOnce(t, port); text == "passed" {
					return fmt.Errorf("a new connection passes (%w)", err)
				}
				return nil
			})
			for i := range callers {
				callers[i].denies.Store(true)
			}
			await("many requests are denied", func(c *keepAliveCaller) bool { return c.denied.Load() > 100 })
			stop()
			for i := range callers {
				t.Logf("caller %d: %d passed before, %d after, %d were denied", i, callers[i].passed.Load(), callers[i].late.Load(),
					callers[i].denied.Load())
				require.LessOrEqual(t, callers[i].late.Load(), int64(1))
			}
		})
	}
}

// keepAliveCaller sends requests on one connection as long as that stays open.
type keepAliveCaller struct {
	denies               atomic.Bool // new connections are denied
	passed, late, denied atomic.Int64
}

func (c *keepAliveCaller) run(ctx context.Context, port int) {
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		denies := c.denies.Load()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+fixture.Loopback(port)+"/", nil)
		if err != nil {
			return
		}
		res, err := client.Do(req)
		switch {
		case err != nil: // such as a connection that Envoy closes
			c.denied.Add(1)
		case res.StatusCode != http.StatusOK:
			c.denied.Add(1)
		case denies:
			c.late.Add(1)
		default:
			c.passed.Add(1)
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// requestOnce asks a port by a connection of its own.
func requestOnce(t *testing.T, port int) (string, error) {
	return requestAs(t, port, "shop.example.com", "Connection", "close")
}
