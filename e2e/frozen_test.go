package e2e

import (
	"fmt"
	"strings"
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

// breakers are objects for which only an Envoy knows that it rejects the listener, with what a client gets once policies change.
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

// TestFrozenListenerDenies shows that a real Envoy that rejects a listener enforces a DENY that comes later, although it rejects that
// listener, too; and that it gets the listener back once the object is mended.
func TestFrozenListenerDenies(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"DELTA_GRPC", "GRPC"} {
		for name, breaker := range breakers {
			t.Run(api+" "+name, func(t *testing.T) {
				t.Parallel()
				port := fixture.FreePort(t)
				mesh := startMesh(t, "mesh.yaml", fmt.Sprintf(frontGateway, port))
				boot := bootstrap(t, "envoy", "--server", mesh.XDS, "--label", "istio=ingressgateway",
					"--node-id", "router~127.0.0.1~front.default~default.svc.cluster.local")
				envoy := fixture.StartEnvoyWith(t, strings.Replace(boot, "DELTA_GRPC", api, 1))
				passes := func(want bool) {
					t.Helper()
					envoy.WaitFor(t, 20*time.Second, func() error {
						text, err := requestOnce(t, port)
						if (text == "passed") != want {
							return fmt.Errorf("%q (%w)", text, err)
						}
						return nil
					})
				}
				passes(true)

				mesh.write(t, "breaks.yaml", breaker.object)
				mesh.WaitFor(t, 20*time.Second, func() error {
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
				mesh.WaitFor(t, 20*time.Second, func() error {
					if status := mesh.Ask(t, "status"); !strings.Contains(status, breaker.fallback) || strings.Contains(status, "not in force") {
						return fmt.Errorf("%s", status)
					}
					return nil
				})

				mesh.write(t, "breaks.yaml", "")
				mesh.WaitFor(t, 20*time.Second, func() error {
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

// requestOnce asks a port by a connection of its own.
func requestOnce(t *testing.T, port int) (string, error) {
	return requestAs(t, port, "shop.example.com", "Connection", "close")
}
