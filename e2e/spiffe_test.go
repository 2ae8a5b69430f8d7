package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/spiffe/spiffetest"
	"tributary/internal/testutil"
)

// The certificates of both tiers are from a SPIFFE Workload API, which is a server of ours on a unix socket: it comes
// late, exchanges the certificates under streams, goes away, and ends the federation with another trust domain.
func TestSPIFFE(t *testing.T) {
	t.Parallel()
	authority, foreign, api := testutil.NewAuthority(t), testutil.NewAuthority(t), spiffetest.New(t)
	const relayID, tierID = "spiffe://example.org/relay", "spiffe://example.org/tier"
	federation := spiffetest.Domains{"spiffe://other.test": foreign}
	give := func(domains spiffetest.Domains) {
		api.Give(authority, domains, spiffetest.Sign(authority, relayID, time.Time{}), spiffetest.Sign(authority, tierID, time.Time{}))
	}
	rules, address := t.TempDir(), fixture.Loopback(fixture.FreePort(t))
	write(t, rules, "rule.yaml", virtualService("one", "v1.mesh.internal"))
	s := fixture.StartTributaryWith(t, fmt.Sprintf(`
listen: {xdsTLS: {address: %q, certificate: %s, clientCAs: 'spiffe://', workloadAPI: %q}}
access:
- {who: {spiffe: ['spiffe://example.org/*']}}
- {who: {spiffe: ['spiffe://other.test/*']}, allow: {namespaces: [shop]}}
- {who: {cidr: [127.0.0.1]}}
configSources: [{name: mesh, address: %q}]
`, address, relayID, api.Address(), "fs://"+rules))
	require.Contains(t, s.Output(), "no certificate yet: TLS connections are refused")
	require.Contains(t, s.Ask(t, "status"), "listen.xdsTLS: no certificate yet: TLS connections are refused")

	give(federation)
	tier := fixture.StartTributaryWith(t, fmt.Sprintf(`
configSources:
- name: above
  address: xds://%s
  tlsSettings: {mode: MUTUAL, clientCertificate: %s, caCertificates: 'spiffe://example.org', subjectAltNames: [%s], workloadAPI: %q}
`, address, tierID, relayID, api.Address()))
	below := func(name string) {
		t.Helper()
		tier.WaitFor(t, 30*time.Second, func() error {
			out, _ := fixture.Run(t, fixture.TributaryBinary(t), "get", "vs", "-A", "--timeout", "5s", "--server", tier.XDS)
			if !strings.Contains(out, name) {
				return fmt.Errorf("%s is not there:\n%s", name, out)
			}
			return nil
		})
	}
	below("one")

	// A client with certificates in files, as spiffe-helper writes them: Envoy, and one of the other trust domain.
	dir := t.TempDir()
	ca := testutil.WriteFile(t, dir, "ca.pem", authority.PEM)
	files := func(issuer *testutil.Authority, id string) []string {
		cert, key := spiffetest.Sign(issuer, id, time.Time{}).Files(t.TempDir())
		return []string{"--tls-ca", ca, "--tls-cert", cert, "--tls-key", key, "--tls-server-name", relayID}
	}
	fixture.StartEnvoyWith(t, bootstrap(t, append([]string{"envoy", "--server", address},
		files(authority, "spiffe://example.org/envoy")...)...))
	federated := files(foreign, "spiffe://other.test/web")
	watch := exec.CommandContext(t.Context(), fixture.TributaryBinary(t),
		append([]string{"watch", "vs", "-A", "--server", address}, federated...)...)
	var watched strings.Builder
	watch.Stdout, watch.Stderr = &watched, &watched
	require.NoError(t, watch.Start())
	defer func() { _ = watch.Process.Kill(); _ = watch.Wait() }()
	get := func(flags []string) (string, int) {
		return fixture.Run(t, append([]string{fixture.TributaryBinary(t), "get", "vs", "-A", "--timeout", "5s", "--server", address},
			flags...)...)
	}
	out, code := get(federated)
	require.Zero(t, code)
	require.Contains(t, out, "one")
	_, code = get(files(foreign, "spiffe://example.org/web"))
	require.Equal(t, 1, code, "an authority of another trust domain cannot sign for ours")
	logs := func(want string) {
		t.Helper()
		s.WaitFor(t, 40*time.Second, func() error {
			if !strings.Contains(s.Output(), want) {
				return fmt.Errorf("the log has no %s", want)
			}
			return nil
		})
	}
	logs("certificate signed by unknown authority")
	// The command line asks a Workload API, too.
	cli := exec.CommandContext(t.Context(), fixture.TributaryBinary(t), "get", "vs", "-A", "--server", address,
		"--tls-ca", "spiffe://", "--tls-cert", tierID, "--tls-server-name", relayID)
	cli.Env = append(cli.Environ(), "SPIFFE_ENDPOINT_SOCKET="+api.Address())
	text, err := cli.CombinedOutput()
	require.NoError(t, err, "%s", text)

	// Streams outlive the certificates that they began with.
	load := exec.CommandContext(t.Context(), loadProgram(t),
		append([]string{"--server", address, "--clients", "50", "--duration", "8s"},
			files(authority, "spiffe://example.org/load")...)...)
	var output strings.Builder
	load.Stdout, load.Stderr = &output, &output
	require.NoError(t, load.Start())
	for i := range 5 {
		give(federation)
		s.Await(t, func() error {
			if got := strings.Count(s.Output(), "certificate: in force"); got < i+2 {
				return fmt.Errorf("%d certificates were in force", got)
			}
			return nil
		})
	}
	require.NoError(t, load.Wait(), "%s", &output)

	// The last state stays in use while the Workload API is down.
	api.Stop()
	logs("no valid new content: the previous certificate stays in force")
	require.Contains(t, s.Ask(t, "status"), "the SPIFFE Workload API at "+api.Address())
	require.Equal(t, 1, s.Metric(t, "tributary_certificate_trouble", "xdsTLS"))
	require.Positive(t, s.Metric(t, "tributary_certificate_expiry_timestamp_seconds", "xdsTLS"))
	_, code = get(federated)
	require.Zero(t, code)
	write(t, rules, "rule.yaml", virtualService("two", "v1.mesh.internal"))
	below("two")

	// The federation ends, and with it the streams that it concerns.
	api.Start()
	give(nil)
	logs(`identity=spiffe://other.test/web err="x509svid: could not get X509 bundle`)
	_, code = get(federated)
	require.Equal(t, 1, code)
	write(t, rules, "rule.yaml", virtualService("three", "v1.mesh.internal"))
	below("three")
	require.NotContains(t, tier.Output(), "ERROR")
}
