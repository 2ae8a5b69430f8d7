package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestSecureIstiod runs the chain istiod (files), tributary, istiod, where both istiods have their default
// authentication. Certificates and tokens of their root namespace suffice for sources, get, diff and verify; messages
// name the remedy for others.
func TestSecureIstiod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", serviceEntry("a", 80))
	upstream := fixture.NewSecureIstiod(t, "configSources:\n- address: fs://"+dir+"\n")
	upstream.AwaitSynced(t)
	cluster := fixture.IstioCluster(t)
	certificate, key, root := cluster.IstioIdentity(t, "istio-system", "tributary")
	token := cluster.IstioToken(t, "istio-system", "tributary")
	foreign, foreignKey, _ := cluster.IstioIdentity(t, "shop", "tributary")
	foreignToken := cluster.IstioToken(t, "shop", "tributary")

	const name = "istiod.istio-system.svc"
	mutual := map[string]any{
		"mode": "MUTUAL", "clientCertificate": certificate, "privateKey": key, "caCertificates": root, "sni": name,
	}
	simple := map[string]any{"mode": "SIMPLE", "caCertificates": root, "sni": name}
	source := fixture.Upstream("istiod", upstream.Secure)
	tributary := fixture.StartTributary(t, source.With("tlsSettings", mutual))
	withToken := fixture.StartTributary(t, source.With("tlsSettings", simple).With("tokenFile", token))
	plain := fixture.StartTributary(t, fixture.Upstream("istiod", upstream.GRPC))
	httpPort := fixture.FreePort(t)
	last := fixture.NewSecureIstiod(t, "configSources:\n- address: xds://"+tributary.XDS+"\n",
		"--httpAddr=0.0.0.0:"+strings.TrimPrefix(fixture.Loopback(httpPort), "127.0.0.1:"))
	last.HTTP = fixture.Loopback(httpPort)
	arrives := func() {
		t.Helper()
		last.Await(t, func() error {
			got, err := last.Configs(t.Context())
			if err != nil {
				return err
			}
			// The upstream makes one of the cluster's only Service.
			delete(got, fixture.Key{Kind: "ServiceEntry", Namespace: "default", Name: "synthetic-kubernetes"})
			return fixture.ReadObjects(t, dir).Diff(got)
		})
	}
	arrives()
	write(t, dir, "a.yaml", serviceEntry("a", 81))
	write(t, dir, "b.yaml", serviceEntry("b", 80))
	arrives()
	withToken.Await(t, pageNames(t, withToken, "/debug/configz", `"number": 81`))
	plain.Await(t, pageNames(t, plain, "/debug/sources", "control-plane identity: connect to istiod's TLS port (15012)"))

	trust := []string{"--tls-ca", root, "--tls-server-name", name}
	byCertificate := append([]string{"--tls-cert", certificate, "--tls-key", key}, trust...)
	byToken := append([]string{"--token-file", token}, trust...)
	defaultNode := []string{"--node-id", "sidecar~127.0.0.1~x.default~default.svc.cluster.local"}
	for _, command := range [][]string{{"get", "se", "-A", "-o", "name"}, {"diff", dir, "--kind", "se", "-n", "shop"}, {"watch", "se", "-A"}} {
		for _, test := range []struct {
			name, address string
			flags         []string
			refusal       string
		}{
			{"certificate", upstream.Secure, byCertificate, ""},
			{"token", upstream.Secure, byToken, ""},
			{"plaintext", upstream.GRPC, nil, "connect to istiod's TLS port (15012)"},
			{"no identity", upstream.Secure, trust, "(istio-system)"},
			{"foreign certificate", upstream.Secure, append([]string{"--tls-cert", foreign, "--tls-key", foreignKey}, trust...), "(istio-system)"},
			{"foreign token", upstream.Secure, append([]string{"--token-file", foreignToken}, trust...), "(istio-system)"},
			{"foreign node", upstream.Secure, append(defaultNode, byToken...), "leave out --node-id"},
		} {
			if command[0] == "watch" && test.refusal == "" || command[0] == "diff" && test.name == "foreign node" {
				continue // watch does not end, and diff has no node
			}
			argv := append(append(command, "--server", test.address), test.flags...)
			out, err := exec.CommandContext(t.Context(), fixture.TributaryBinary(t), argv...).CombinedOutput()
			assert.Equal(t, test.refusal == "", err == nil, "%s %s: %s", command[0], test.name, out)
			assert.Contains(t, string(out), test.refusal, "%s %s", command[0], test.name)
			if command[0] == "get" && test.refusal == "" {
				assert.Contains(t, string(out), "shop/b")
			}
		}
	}

	verify := func(address string, flags ...string) (out string, code int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), fixture.TributaryBinary(t), append([]string{
			"verify", "--istiod", address, "--server", tributary.XDS, "--admin", tributary.Admin, "-o", "json",
		}, flags...)...)
		text, _ := cmd.CombinedOutput() // the exit code has the outcome
		return string(text), cmd.ProcessState.ExitCode()
	}
	prefixed := func(flags []string) (renamed []string) {
		for _, flag := range flags {
			renamed = append(renamed, strings.Replace(flag, "--t", "--istiod-t", 1))
		}
		return renamed
	}
	for _, flags := range [][]string{byCertificate, byToken} {
		out, code := verify("xds://"+last.Secure, prefixed(flags)...)
		require.Zero(t, code, out)
		require.Contains(t, out, "3 objects compared, 0 findings")
	}
	for want, test := range map[string]struct {
		address string
		flags   []string
	}{
		"authentication failure":                  {"xds://" + last.Secure, prefixed(trust)},
		"istiod wants a certificate or token":     {"xds://" + last.Secure, prefixed(append([]string{"--token-file", foreignToken}, trust...))},
		"give --istiod xds://HOST:15012":          {"http://" + fixture.Outside(t) + last.HTTP[len("127.0.0.1"):], nil},
		"--istiod-token-file: open /not/existing": {"xds://" + last.Secure, prefixed([]string{"--token-file", "/not/existing"})},
	} {
		out, code := verify(test.address, test.flags...)
		assert.NotZero(t, code, out)
		assert.Contains(t, out, want)
	}
	out, code := verify("http://" + last.HTTP)
	require.Zero(t, code, out)
}
