package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// TestLateCertificates shows that an Envoy uses certificates and authorities with files that were unreadable at first:
// a missing folder or file, or an incomplete file.
func TestLateCertificates(t *testing.T) {
	t.Parallel()
	authority := testutil.NewAuthority(t)
	leaf := authority.Sign(&x509.Certificate{DNSNames: []string{"*.example.com"}})
	content := map[string]string{"tls.crt": leaf.Certificate, "tls.key": leaf.Key, "ca.crt": authority.PEM}
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "backend")
	}))
	backend.TLS = &tls.Config{Certificates: []tls.Certificate{leaf.TLS()}, MinVersion: tls.VersionTLS12}
	backend.StartTLS()
	t.Cleanup(backend.Close)
	_, backendPort, err := net.SplitHostPort(backend.Listener.Addr().String())
	require.NoError(t, err)

	dir, credentials, port := t.TempDir(), t.TempDir(), fixture.FreePort(t)
	shapes := []string{"folder", "missing", "unfinished"}
	gateway := "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: front, namespace: default}\nspec:\n" +
		"  selector: {istio: ingressgateway}\n  servers:\n"
	var rest strings.Builder
	for _, shape := range shapes {
		folder := filepath.Join(credentials, shape)
		if shape != "folder" {
			require.NoError(t, os.Mkdir(folder, 0o700))
		}
		if shape == "unfinished" {
			for file, text := range content {
				testutil.WriteFile(t, folder, file, text[:len(text)/2])
			}
		}
		gateway += fmt.Sprintf("  - {port: {number: %d, name: %s, protocol: HTTPS}, hosts: [%[2]s.example.com], "+
			"tls: {mode: SIMPLE, credentialName: %[2]s}}\n", port, shape)
		fmt.Fprintf(&rest, "---\n%s---\n"+`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[2]s, namespace: default}
spec:
  host: %[2]s.mesh.internal
  trafficPolicy: {tls: {mode: SIMPLE, credentialName: %[2]s, sni: a.example.com, subjectAltNames: ["*.example.com"]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[2]s, namespace: default}
spec: {hosts: [%[2]s.example.com], gateways: [front], http: [{route: [{destination: {host: %[2]s.mesh.internal}}]}]}
`, service(shape, "  ports: [{number: 80, name: main, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: {main: "+
			backendPort+"}}]\n"), shape)
	}
	write(t, dir, "mesh.yaml", gateway+rest.String())
	tributary := fixture.StartTributary(t, fixture.Files("mesh", dir))
	envoy := fixture.StartGateway(t, tributary.XDS, credentials)
	envoy.Await(t, func() error {
		if rejected := tributary.Metric(t, "tributary_xds_nacks_total", "Secret"); rejected < 2*len(shapes) {
			return fmt.Errorf("only %d secrets are rejected", rejected)
		}
		return nil
	})
	for _, shape := range shapes {
		folder := filepath.Join(credentials, shape)
		require.NoError(t, os.MkdirAll(folder, 0o700))
		for file, text := range content {
			testutil.WriteFile(t, folder, file, text)
		}
	}
	for _, shape := range shapes {
		envoy.WaitFor(t, 40*time.Second, func() error { return askLate(t, authority.Pool(), port, shape+".example.com") })
	}
}

// askLate asks a host by TLS and expects the backend.
func askLate(t *testing.T, roots *x509.CertPool, port int, host string) error {
	t.Helper()
	conf := &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
	got, err := askBy(t, conf, http.MethodGet, "https://"+fixture.Loopback(port), host)
	if err == nil && got.body != "backend" {
		err = fmt.Errorf("%s answers %d: %s", host, got.status, got.body)
	}
	return err
}
