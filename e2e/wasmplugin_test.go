package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// A real Envoy runs Wasm modules of WasmPlugins: one from a service of the mesh, if its checksum is known, and one from
// a file on its machine. A module that cannot run refuses requests, unless it may fail. Envoy rejects a listener with a
// missing file, and keeps the one before.
func TestWasmPluginOnTributary(t *testing.T) {
	t.Parallel()
	module := wasmModule("x-wasm", "yes")
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(module) }))
	t.Cleanup(files.Close)
	port := fixture.FreePort(t)
	mesh := startMesh(t, "services.yaml", gatewayServices(backend(t, "one"), backend(t, "two"), files.Listener.Addr().(*net.TCPAddr).Port)+
		service("files", fmt.Sprintf("  ports: [{number: 80, name: main, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: "+
			"{main: %d}}]\n",
			files.Listener.Addr().(*net.TCPAddr).Port)))
	mesh.write(t, "gateway.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec: {selector: {istio: ingressgateway}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: [shop.example.com]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: default}
spec: {hosts: [shop.example.com], gateways: [front], http: [{route: [{destination: {host: one.mesh.internal}}]}]}
`, port))
	envoy := fixture.StartGateway(t, mesh.XDS, t.TempDir())
	expect := func(status int, header string) {
		t.Helper()
		envoy.Await(t, func() error {
			got, err := askEdge(t, port, http.MethodGet, "shop.example.com", "")
			if value := got.header.Get("x-wasm"); err == nil && (got.status != status || value != header) {
				err = fmt.Errorf("%d %q", got.status, value)
			}
			return err
		})
	}
	plugin := func(spec string) {
		t.Helper()
		mesh.write(t, "plugin.yaml", "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: a, namespace: "+
			"default}\nspec: "+spec+"\n")
	}
	expect(200, "")
	sum := sha256.Sum256(module)
	plugin(fmt.Sprintf("{url: 'http://files.mesh.internal/a.wasm', sha256: %q}", hex.EncodeToString(sum[:])))
	expect(200, "yes")
	plugin("{url: 'oci://registry/image'}")
	expect(403, "")
	require.Contains(t, mesh.Ask(t, "explain", "wasmplugin", "default/a"), "spec.url has no effect on Envoys: images are fetched by "+
		"Istio's agent")
	plugin("{url: 'oci://registry/image', failStrategy: FAIL_OPEN}")
	expect(200, "")
	file := testutil.WriteFile(t, t.TempDir(), "a.wasm", string(wasmModule("x-wasm", "file")))
	plugin(fmt.Sprintf("{url: 'file://%s'}", file))
	expect(200, "file")
	plugin("{url: 'http://files.mesh.internal/a.wasm', sha256: a123456789012345678901234567890123456789012345678901234567890123}")
	expect(503, "")
	mesh.rejectedNothing(t)
	plugin("{url: 'file:///none.wasm'}")
	envoy.Await(t, func() error {
		if mesh.Metric(t, "tributary_xds_nacks_total", "") == 0 {
			return errors.New("the listener is not rejected")
		}
		return nil
	})
	expect(503, "")
}

// wasmModule is a module by version 0.2.1 of Proxy-Wasm that adds a header to each response.
func wasmModule(name, value string) []byte {
	vector := func(items ...[]byte) []byte {
		b := []byte{byte(len(items))}
		for _, i := range items {
			b = append(b, i...)
		}
		return b
	}
	text := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	section := func(id byte, body []byte) []byte { return append([]byte{id, byte(len(body))}, body...) }
	function := func(code ...byte) []byte { return append([]byte{byte(len(code) + 2), 0}, append(code, 0x0b)...) }
	const i32, constant, offset = 0x7f, 0x41, 16 // where the texts are
	export := func(name string, kind, index byte) []byte { return append(text(name), kind, index) }
	b := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range [][]byte{
		section(1, vector( // types
			[]byte{0x60, 0, 0}, []byte{0x60, 1, i32, 1, i32}, []byte{0x60, 3, i32, i32, i32, 1, i32}, []byte{
				0x60, 5, i32, i32, i32, i32,
				i32, 1, i32,
			})),
		section(2, vector(append(append(text("env"), text("proxy_add_header_map_value")...), 0, 3))),
		section(3, vector([]byte{0}, []byte{1}, []byte{2})), // the types of functions
		section(5, vector([]byte{0, 1})),                    // a page of memory
		section(7, vector(export("memory", 2, 0), export("proxy_abi_version_0_2_1", 0, 1), export("malloc", 0, 2),
			export("proxy_on_response_headers", 0, 3))),
		section(10, vector(function(), function(constant, 0x80, 8), // malloc returns 1024
			function(constant, 2, constant, offset, constant, byte(len(name)), constant, offset+byte(len(name)), constant, byte(len(value)), 0x10, 0,
				0x1a, constant, 0))),
		section(11, vector(append([]byte{0, constant, offset, 0x0b}, text(name+value)...))),
	} {
		b = append(b, s...)
	}
	return b
}
