package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// A real Envoy as a gateway verifies its clients: by files and by a credential; all clients, or those that show a
// certificate; by the issuer of the certificate and by the names in it. Replaced files take effect without a restart.
func TestGatewayVerifiesClientsOnTributary(t *testing.T) {
	t.Parallel()
	backendPort := backend(t, "one")
	credentials, mine := t.TempDir(), t.TempDir()
	named := filepath.Join(credentials, "shop")
	require.NoError(t, os.Mkdir(named, 0o700))
	authority, foreign := testutil.NewAuthority(t), testutil.NewAuthority(t)
	serverCertificate := authority.Sign(&x509.Certificate{DNSNames: []string{"*.example.com"}})
	cert, key := serverCertificate.Files(mine)
	ca := testutil.WriteFile(t, mine, "ca.pem", authority.PEM)
	testutil.WriteFile(t, named, "tls.crt", serverCertificate.Certificate)
	testutil.WriteFile(t, named, "tls.key", serverCertificate.Key)
	testutil.WriteFile(t, named, "ca.crt", authority.PEM)
	person := func(issuer *testutil.Authority, name string) []tls.Certificate {
		return []tls.Certificate{issuer.Sign(&x509.Certificate{
			DNSNames:    []string{name},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}).TLS()}
	}
	knownClient, another := person(authority, "known.clients"), person(authority, "another.clients")
	stranger := person(foreign, "known.clients")

	dir, port := t.TempDir(), fixture.FreePort(t)
	text := "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: front, namespace: default}\nspec:\n  selector: {istio: " +
		"ingressgateway}\n  servers:\n"
	for name, how := range map[string]string{
		"files":    fmt.Sprintf("mode: MUTUAL, serverCertificate: %s, privateKey: %s, caCertificates: %s", cert, key, ca),
		"name":     "mode: MUTUAL, credentialName: shop",
		"optional": fmt.Sprintf("mode: OPTIONAL_MUTUAL, serverCertificate: %s, privateKey: %s, caCertificates: %s", cert, key, ca),
		"some": fmt.Sprintf("mode: MUTUAL, serverCertificate: %s, privateKey: %s, caCertificates: %s, subjectAltNames: [known.clients]", cert,
			key, ca),
	} {
		text += fmt.Sprintf("  - {port: {number: %d, name: %s, protocol: HTTPS}, hosts: [%[2]s.example.com], tls: {%s}}\n", port, name, how)
	}
	write(t, dir, "mesh.yaml", text+"---\n"+service("one", fmt.Sprintf("  ports: [{number: 80, name: main, protocol: HTTP}]\n  endpoints: "+
		"[{address: 127.0.0.1, ports: {main: %d}}]\n", backendPort))+`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: all, namespace: default}
spec: {hosts: ["*.example.com"], gateways: [front], http: [{route: [{destination: {host: one.mesh.internal}}]}]}
`)
	tributary := fixture.StartTributary(t, fixture.Files("mesh", dir))
	envoy := fixture.StartGateway(t, tributary.XDS, credentials)
	tlsConfig := func(host string, certificates []tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: authority.Pool(), ServerName: host + ".example.com", Certificates: certificates, MinVersion: tls.VersionTLS12}
	}
	get := func(host string, certificates []tls.Certificate) (string, error) {
		got, err := askBy(t, tlsConfig(host, certificates), http.MethodGet, "https://"+fixture.Loopback(port), host+".example.com")
		return got.body, err
	}
	lets := func(host string, certificates []tls.Certificate) {
		t.Helper()
		envoy.Await(t, func() error {
			body, err := get(host, certificates)
			if err == nil && body != "one" {
				err = fmt.Errorf("%s answers %q", host, body)
			}
			return err
		})
	}
	refuses := func(host string, certificates []tls.Certificate, why string) {
		t.Helper()
		raw, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(t.Context(), "tcp", fixture.Loopback(port))
		require.NoError(t, err)
		conn := tls.Client(raw, tlsConfig(host, certificates))
		defer func() { _ = conn.Close() }()
		_, err = conn.Read(make([]byte, 1)) // a client that writes might not get the reason
		require.ErrorContains(t, err, why, host)
	}
	for _, host := range []string{"files", "name", "optional", "some"} {
		lets(host, knownClient)
		refuses(host, stranger, "tls: unknown certificate authority")
	}
	for _, host := range []string{"files", "name", "optional"} {
		lets(host, another)
	}
	refuses("some", another, "tls: ")
	lets("optional", nil)
	for _, host := range []string{"files", "name", "some"} {
		refuses(host, nil, "tls: certificate required")
	}

	testutil.WriteFile(t, mine, "ca.pem", foreign.PEM)
	lets("files", stranger)
	refuses("files", knownClient, "tls: unknown certificate authority")
	lets("name", knownClient)
}
