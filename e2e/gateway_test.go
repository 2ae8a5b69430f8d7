package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// A real Envoy is the gateway of a mesh: in the clear, with TLS by files and by a credential, with redirects to it, and
// passing TLS on by the requested name. A missing file of a Gateway disables its server alone.
func TestGatewayOnTributary(t *testing.T) {
	t.Parallel()
	backendOne, backendTwo := backend(t, "one"), backend(t, "two")
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "its own TLS") }))
	t.Cleanup(secure.Close)
	var securePort int
	_, err := fmt.Sscanf(secure.URL, "https://127.0.0.1:%d", &securePort)
	require.NoError(t, err)

	credentials := t.TempDir()
	files, missing := filepath.Join(credentials, "files"), filepath.Join(credentials, "missing")
	byName := filepath.Join(credentials, "shop")
	require.NoError(t, os.MkdirAll(files, 0o700))
	require.NoError(t, os.MkdirAll(byName, 0o700))
	cert, key := fixture.SelfSigned(t, files)
	c, k := fixture.SelfSigned(t, byName)
	require.NoError(t, os.Rename(c, filepath.Join(byName, "tls.crt")))
	require.NoError(t, os.Rename(k, filepath.Join(byName, "tls.key")))

	plain, encrypted, old, pass := fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t)
	dir := t.TempDir()
	write(t, dir, "services.yaml", gatewayServices(backendOne, backendTwo, securePort))
	write(t, dir, "gateway.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: %d, name: http, protocol: HTTP}, hosts: ["*.example.com"]}
  - {port: {number: %d, name: files, protocol: HTTPS}, hosts: [files.example.com], tls: {mode: SIMPLE, serverCertificate: %s, `+
		`privateKey: %s}}
  - {port: {number: %[2]d, name: name, protocol: HTTPS}, hosts: [name.example.com], tls: {mode: SIMPLE, credentialName: shop}}
  - {port: {number: %[2]d, name: lost, protocol: HTTPS}, hosts: [lost.example.com], tls: {mode: SIMPLE, credentialName: %[7]s}}
  - {port: {number: %[5]d, name: old, protocol: HTTP}, hosts: ["*.example.com"], tls: {httpsRedirect: true}}
  - {port: {number: %[6]d, name: pass, protocol: TLS}, hosts: [own.example.com], tls: {mode: PASSTHROUGH}}
`, plain, encrypted, cert, key, old, pass, filepath.Base(missing)))
	write(t, dir, "routes.yaml", gatewayRoutes)
	tributary := fixture.StartTributary(t, fixture.Files("mesh", dir))
	envoy := fixture.StartGateway(t, tributary.XDS, credentials)

	get := func(scheme, host string, port int, path string) (int, string, error) {
		conf := &tls.Config{InsecureSkipVerify: true, ServerName: host} //nolint:gosec // certificates of a test
		got, err := askBy(t, conf, http.MethodGet, scheme+"://"+fixture.Loopback(port)+path, host)
		return got.status, got.body + got.header.Get("Location"), err
	}
	for _, tt := range []struct {
		scheme, host string
		port         int
		path         string
		status       int
		body         string
	}{
		{"http", "shop.example.com", plain, "/", 200, "one"},
		{"http", "shop.example.com", plain, "/two", 200, "two"},
		{"http", "nobody.example.com", plain, "/", 404, ""},
		{"https", "files.example.com", encrypted, "/", 200, "one"},
		{"https", "name.example.com", encrypted, "/two", 200, "two"},
		{"http", "shop.example.com", old, "/a", 301, "https://shop.example.com/a"},
		{"https", "own.example.com", pass, "/", 200, "its own TLS"},
	} {
		envoy.Await(t, func() error {
			status, body, err := get(tt.scheme, tt.host, tt.port, tt.path)
			if err == nil && (status != tt.status || body != tt.body) {
				err = fmt.Errorf("%s %s%s: %d %q", tt.scheme, tt.host, tt.path, status, body)
			}
			return err
		})
	}
	_, _, err = get("https", "lost.example.com", encrypted, "/")
	require.Error(t, err, "there is no certificate")

	_, remainingRoutes, _ := strings.Cut(gatewayRoutes, "---\n")
	write(t, dir, "routes.yaml", remainingRoutes)
	envoy.Await(t, func() error {
		status, _, err := get("http", "shop.example.com", plain, "/")
		if err == nil && status != http.StatusNotFound {
			err = fmt.Errorf("%d", status)
		}
		return err
	})
}

func gatewayServices(backendOne, backendTwo, securePort int) string {
	text := ""
	for name, port := range map[string]int{"one": backendOne, "two": backendTwo, "own": securePort} {
		protocol := "HTTP"
		if name == "own" {
			protocol = "TLS"
		}
		text += service(name, fmt.Sprintf("  ports: [{number: 80, name: main, protocol: %s}]\n  endpoints: [{address: 127.0.0.1, ports: {main: "+
			"%d}}]\n", protocol, port)) + "---\n"
	}
	return text
}

const gatewayRoutes = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: default}
spec:
  hosts: [shop.example.com, files.example.com, name.example.com, lost.example.com]
  gateways: [front]
  http:
  - match: [{uri: {exact: /two}}]
    route: [{destination: {host: two.mesh.internal}}]
  - route: [{destination: {host: one.mesh.internal}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: own, namespace: default}
spec:
  hosts: [own.example.com]
  gateways: [default/front]
  tls:
  - match: [{sniHosts: [own.example.com]}]
    route: [{destination: {host: own.mesh.internal}}]
`
