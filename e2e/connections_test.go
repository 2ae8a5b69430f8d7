package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// A real Envoy handles connections as VirtualServices demand: a route directs TCP, the requested name directs TLS; it
// encrypts as a DestinationRule demands, verifies by files, and prefers near endpoints.
func TestConnectionsOnTributary(t *testing.T) {
	t.Parallel()
	backendOne, backendTwo := backend(t, "one"), backend(t, "two")
	files := t.TempDir()
	cert, key := fixture.SelfSigned(t, files)
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, map[bool]string{true: "a known client", false: "anybody"}[len(r.TLS.PeerCertificates) > 0])
	}))
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert} //nolint:gosec // a test's
	secure.StartTLS()
	t.Cleanup(secure.Close)
	var securePort int
	_, err = fmt.Sscanf(secure.URL, "https://127.0.0.1:%d", &securePort)
	require.NoError(t, err)

	tcp, byName, encrypted, near := fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t)
	text := func(nearby int) string {
		return service("raw", fmt.Sprintf("  ports: [{number: %d, name: tcp, protocol: TCP}]\n  endpoints: [{address: 127.0.0.1, ports: {tcp: "+
			"%d}}]\n", tcp, backendOne)) + "---\n" +
			service("two", fmt.Sprintf("  ports: [{number: 80, name: tcp, protocol: TCP}]\n  endpoints: [{address: 127.0.0.1, ports: {tcp: %d}}]\n",
				backendTwo)) + "---\n" +
			service("own", fmt.Sprintf("  ports: [{number: %d, name: tls, protocol: TLS}]\n  endpoints: [{address: 127.0.0.1, ports: {tls: %d}}]\n",
				byName, securePort)) + "---\n" +
			service("echo", fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: {http: "+
				"%d}}]\n", encrypted, securePort)) + "---\n" +
			service("near", fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  endpoints:\n  - {address: 127.0.0.1, ports: "+
				"{http: %d}, locality: %s}\n  - {address: 127.0.0.1, ports: {http: %d}, locality: us/b}\n",
				near, backendOne, []string{"eu/a/1", "us/c"}[nearby], backendTwo)) + "---\n" + fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: raw, namespace: default}
spec:
  hosts: [raw.mesh.internal]
  tcp: [{route: [{destination: {host: two.mesh.internal}}]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: own, namespace: default}
spec:
  hosts: [own.mesh.internal]
  tls:
  - {match: [{sniHosts: [own.mesh.internal]}], route: [{destination: {host: own.mesh.internal}}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: default}
spec:
  host: echo.mesh.internal
  trafficPolicy: {tls: {mode: MUTUAL, caCertificates: %[1]s, clientCertificate: %[1]s, privateKey: %[2]s, subjectAltNames: [%[3]s]}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: near, namespace: default}
spec:
  host: near.mesh.internal
  trafficPolicy: {outlierDetection: {consecutive5xxErrors: 3}, loadBalancer: {localityLbSetting: {failover: [{from: eu, to: us}]}}}
`, cert, key, "127.0.0.1")
	}
	mesh := startMesh(t, "mesh.yaml", text(0))
	envoy := fixture.StartEnvoy(t, mesh.XDS)

	envoy.Await(t, answeredBy(t, tcp, "two"))
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a test's
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", fixture.Loopback(byName))
		},
	}}
	envoy.Await(t, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://own.mesh.internal/", nil)
		require.NoError(t, err)
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	})
	envoy.Await(t, answeredBy(t, encrypted, "a known client"))
	for range 20 {
		envoy.Await(t, answeredAs(t, near, "near.mesh.internal", "one"))
	}
	mesh.write(t, "mesh.yaml", text(1))
	envoy.Await(t, answeredAs(t, near, "near.mesh.internal", "two"))
	mesh.rejectedNothing(t)
}
