package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// TestBackendTLSPolicy holds, with a real Envoy, that a BackendTLSPolicy accepts only certificates of its CA for its
// hostname, or one of its subjectAltNames instead.
func TestBackendTLSPolicy(t *testing.T) {
	t.Parallel()
	authority, foreign := testutil.NewAuthority(t), testutil.NewAuthority(t)
	serve := func(a *testutil.Authority, names ...string) (port int) {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secure") }))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{a.Sign(&x509.Certificate{DNSNames: names}).TLS()}, MinVersion: tls.VersionTLS12}
		s.StartTLS()
		t.Cleanup(s.Close)
		_, err := fmt.Sscanf(s.URL, "https://127.0.0.1:%d", &port)
		require.NoError(t, err)
		return port
	}
	const ref = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]"
	const system = "wellKnownCACertificates: System"
	const names = "subjectAltNames: [{type: Hostname, hostname: alt.example}]"
	cases := []struct {
		name, validation string
		port             int
		status           int
	}{
		{"own", "hostname: web.example, " + ref, serve(authority, "web.example"), 200},
		{"wildcard", "hostname: web.example, " + ref, serve(authority, "*.example"), 200},
		{"second", "hostname: web.example, " + ref, serve(authority, "a.example", "web.example"), 200},
		{"other", "hostname: web.example, " + ref, serve(authority, "other.example"), 503},
		{"below", "hostname: web.example, " + ref, serve(authority, "a.web.example"), 503},
		{"foreign", "hostname: web.example, " + ref, serve(foreign, "web.example"), 503},
		{"alternative", "hostname: web.example, " + names + ", " + ref, serve(authority, "alt.example"), 200},
		{"instead", "hostname: web.example, " + names + ", " + ref, serve(authority, "web.example"), 503},
		{"system", "hostname: web.example, " + system, serve(authority, "web.example"), 503},
		{"invalid", "hostname: web.example, caCertificateRefs: [{group: x.y, kind: Bundle, name: ca}]", serve(authority, "web.example"), 503},
		{"newer", "hostname: web.example, wellKnownCACertificates: Newer", serve(authority, "web.example"), 503},
	}
	credentials, dir, port := t.TempDir(), t.TempDir(), fixture.FreePort(t)
	folder := filepath.Join(credentials, "shop", "ca")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	testutil.WriteFile(t, folder, "ca.crt", authority.PEM)
	text := fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: shop}\n"+
		"spec: {gatewayClassName: istio, listeners: [{name: http, port: %d, protocol: HTTP}]}\n", port)
	for _, c := range cases {
		text += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: shop}\nspec: "+
			"{hosts: [%[1]s.shop.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 443, name: http, "+
			"protocol: HTTP}], endpoints: [{address: 127.0.0.1, ports: {http: %[2]d}}]}\n---\napiVersion: gateway.networking.k8s.io/v1\n"+
			"kind: BackendTLSPolicy\nmetadata: {name: %[1]s, namespace: shop}\nspec: {targetRefs: [{group: '', kind: Service, name: %[1]s}], "+
			"validation: {%[3]s}}\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %[1]s, namespace: shop}\n"+
			"spec: {parentRefs: [{name: edge}], hostnames: [%[1]s.x], rules: [{backendRefs: [{name: %[1]s, port: 443}]}]}\n",
			c.name, c.port, c.validation)
	}
	write(t, dir, "mesh.yaml", text)
	tributary := fixture.StartTributary(t, fixture.Files("cluster", dir).With("derive", map[string]any{}))
	tributary.AwaitReady(t)
	envoy := fixture.StartGateway(t, tributary.XDS, credentials)
	for _, c := range cases {
		envoy.Await(t, func() error {
			got, err := askEdge(t, port, http.MethodGet, c.name+".x", "/")
			if err == nil && got.status != c.status {
				err = fmt.Errorf("%s: %d %q", c.name, got.status, got.body)
			}
			return err
		})
	}
}
