package e2e

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// The access rules limit clients with certificates and tokens (grpcurl is one of them) to their rights. A client with a
// foreign, expired or stolen certificate or a revoked token is refused, and the log names the client and the reason.
func TestAccess_LimitsClientsByIdentity(t *testing.T) {
	t.Parallel()
	authority, foreign := testutil.NewAuthority(t), testutil.NewAuthority(t)
	dir := t.TempDir()
	cert, key := authority.Loopback(time.Time{}).Files(dir)
	cas := testutil.WriteFile(t, dir, "ca.pem", authority.PEM)
	client := func(a *testutil.Authority, name string, expires time.Time) []string {
		id, err := url.Parse("spiffe://e2e/ns/" + name)
		require.NoError(t, err)
		cert, key := a.Sign(&x509.Certificate{URIs: []*url.URL{id}, NotAfter: expires}).Files(t.TempDir())
		return []string{"--tls-ca", cas, "--tls-cert", cert, "--tls-key", key}
	}
	rules, tokens, address := t.TempDir(), filepath.Join(dir, "tokens"), fixture.Loopback(fixture.FreePort(t))
	write(t, rules, "mine.yaml", strings.ReplaceAll(virtualService("mine", "v1.mesh.internal"), "namespace: shop", "namespace: prod"))
	write(t, rules, "other.yaml", virtualService("other", "v1.mesh.internal"))
	token, code := fixture.Run(t, fixture.TributaryBinary(t), "token", "new", "ci", "--file", tokens)
	require.Zero(t, code)
	token = strings.TrimSpace(token)
	tokenFile := testutil.WriteFile(t, dir, "ci.token", token)
	s := fixture.StartTributaryWith(t,
		fmt.Sprintf(`listen: {xds: "off", xdsTLS: {address: %q, certificate: %q, key: %q, clientCAs: %q, clientAuth: optional}}
identity: {tokens: %q}
access:
- {who: {spiffe: ["spiffe://e2e/ns/prod/*"]}, allow: {namespaces: [prod]}}
- {who: {spiffe: ["spiffe://e2e/ns/envoy/*"]}}
- {who: {token: [ci]}, allow: {namespaces: [prod], services: [reflection]}}
configSources: [{name: mesh, address: %q}]
`, address, cert, key, cas, tokens, "fs://"+rules))
	get := func(flags ...string) (string, int) {
		return fixture.Run(t, append([]string{fixture.TributaryBinary(t), "get", "vs", "-A", "--timeout", "5s", "--server", address},
			flags...)...)
	}
	web := client(authority, "prod/web", time.Time{})
	s.Await(t, func() error {
		if _, code := get(web...); code != 0 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
	for _, flags := range [][]string{web, {"--tls-ca", cas, "--token-file", tokenFile}} {
		out, code := get(flags...)
		require.Zero(t, code)
		require.Contains(t, out, "mine")
		require.NotContains(t, out, "other")
	}
	fixture.StartEnvoyWith(t, bootstrap(t, append([]string{"envoy", "--server", address}, client(authority, "envoy/one", time.Time{})...)...))

	for want, flags := range map[string][]string{
		"certificate signed by unknown authority":                            client(foreign, "prod/web", time.Time{}),
		"certificate has expired":                                            client(authority, "prod/web", time.Now().Add(-time.Minute)),
		`identity=spiffe://e2e/ns/test/web err="no access rule matches`:      client(authority, "test/web", time.Time{}),
		`err="no access rule matches a client without certificate or token"`: {"--tls-ca", cas},
	} {
		out, code := get(flags...)
		require.Equal(t, 1, code, want)
		require.NotContains(t, out, "mine")
		s.Await(t, func() error {
			if !strings.Contains(s.Output(), want) {
				return fmt.Errorf("the log has no %s", want)
			}
			return nil
		})
	}

	grpcurl := func(args ...string) (string, int) {
		return fixture.Run(t, append([]string{fixture.Grpcurl(t), "-cacert", cas, "-H", "Authorization: Bearer " + token, "-max-time", "20"},
			args...)...)
	}
	const stream = "envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	out, code := grpcurl(address, "list")
	require.Zero(t, code)
	require.Contains(t, out, "envoy.service.discovery.v3.AggregatedDiscoveryService")
	// The stream ends when the token is revoked, with the status of that: grpcurl's exit code is 64 and the gRPC code.
	cmd := exec.CommandContext(t.Context(), fixture.Grpcurl(t), "-cacert", cas, "-H", "Authorization: Bearer "+token, "-d", "@", address,
		stream)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = stdin.Write([]byte(`{"node": {"id": "grpcurl"}, "type_url": "networking.istio.io/v1/VirtualService"}` + "\n"))
	require.NoError(t, err)
	logs := func(want string) {
		s.Await(t, func() error {
			if !strings.Contains(s.Output(), want) {
				return fmt.Errorf("the log has no %s", want)
			}
			return nil
		})
	}
	logs("node_id=grpcurl")
	testutil.WriteFile(t, dir, "tokens", "# none\n")
	logs(`identity=token:ci err="the token is unknown or revoked"`)
	require.NoError(t, stdin.Close())
	require.Error(t, cmd.Wait())
	require.Equal(t, 64+16, cmd.ProcessState.ExitCode(), "UNAUTHENTICATED: %s", &output)
	require.Contains(t, output.String(), "the token is unknown or revoked")
	require.NotContains(t, output.String(), "other")
	require.NotContains(t, s.Output(), token)
}
