package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/xds"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// secured is a tributary that serves a folder over TLS, with clients' certificates, beside plaintext.
type secured struct {
	*fixture.Tributary

	TLS      string   // host:port
	dir      string   // of the served files
	certs    string   // of the server's certificate and key
	ca       []string // flags of commands that trust the server
	identity []string // flags of those that show a certificate that is trusted
	foreign  []string // and of those that show one that is not
}

func startSecured(t *testing.T, clientAuth string) *secured {
	t.Helper()
	s := &secured{TLS: fixture.Loopback(fixture.FreePort(t)), dir: t.TempDir(), certs: t.TempDir()}
	mine, foreignDir := t.TempDir(), t.TempDir()
	cert, key := fixture.SelfSigned(t, s.certs)
	clientCert, clientKey := fixture.SelfSigned(t, mine)
	foreignCert, foreignKey := fixture.SelfSigned(t, foreignDir)
	roots := filepath.Join(t.TempDir(), "roots.pem") // the roots of clients stay, while the server's certificate is exchanged
	text, err := os.ReadFile(cert)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(roots, text, 0o600))
	s.ca = []string{"--tls-ca", roots}
	s.identity = append(s.ca, "--tls-cert", clientCert, "--tls-key", clientKey)
	s.foreign = append(s.ca, "--tls-cert", foreignCert, "--tls-key", foreignKey)
	conf := fmt.Sprintf("listen: {xdsTLS: {address: %q, certificate: %q, key: %q", s.TLS, cert, key)
	if clientAuth != "none" {
		conf += fmt.Sprintf(", clientCAs: %q, clientAuth: %s", clientCert, clientAuth)
	}
	s.Tributary = fixture.StartTributaryWith(t, conf+fmt.Sprintf("}}\nconfigSources: [{name: mesh, address: %q}]\n", "fs://"+s.dir))
	return s
}

// istiod reads over TLS. It can show no certificate.
func TestIstiodOverTLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "optional")
	rule := virtualService("reviews", "v1.mesh.internal")
	write(t, s.dir, "rule.yaml", rule)
	istiod := fixture.NewIstiodWith(t, bootstrap(t, append([]string{"istiod", "--kubernetes=false", "--server", s.TLS}, s.ca...)...))
	istiod.AwaitSynced(t)
	istiod.AwaitText(t, rule)
}

// Envoy, gRPC programs and the command line show certificates; a client with none, or a foreign one, is refused, and
// the log names the client and the reason.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "require")
	serverPort := healthServer(t, healthpb.HealthCheckResponse_SERVING)
	write(t, s.dir, "greeter.yaml", greeter(serverPort, 1))

	fixture.StartEnvoyWith(t, bootstrap(t, append([]string{"envoy", "--server", s.TLS}, s.identity...)...))
	resolver, err := xds.NewXDSResolverWithConfigForTesting([]byte(bootstrap(t,
		append([]string{"grpc", "--server", s.TLS}, s.identity...)...)))
	require.NoError(t, err)
	conn, err := grpc.NewClient("xds:///greeter.mesh.internal:50051", grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	s.Await(t, func() error {
		_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	})

	get := func(flags ...string) (string, int) {
		return fixture.Run(t, append([]string{fixture.TributaryBinary(t), "get", "se", "-A", "--server", s.TLS}, flags...)...)
	}
	out, code := get(s.identity...)
	require.Zero(t, code)
	require.Contains(t, out, "greeter")
	for name, flags := range map[string][]string{"no certificate": s.ca, "a foreign certificate": s.foreign, "no TLS": nil} {
		out, code := get(append(flags, "--timeout", "3s")...)
		require.Equal(t, 1, code, name)
		require.Empty(t, out, name)
	}
	for _, want := range []string{"client didn't provide a certificate", "certificate signed by unknown authority", "it does not speak TLS"} {
		require.Contains(t, s.Output(), want)
	}
}

// The certificate is exchanged once a second, by other files each time; connected clients see no change, and every new
// connection succeeds.
func TestCertificate_RotatesUnderStreams(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "none")
	write(t, s.dir, "rule.yaml", virtualService("reviews", "v1.mesh.internal"))
	rotations := byNight(10, 60)
	first, err := os.ReadFile(filepath.Join(s.certs, "cert.pem"))
	require.NoError(t, err)
	roots, dirs := string(first), make([]string, rotations)
	for i := range dirs {
		dirs[i] = t.TempDir()
		cert, _ := fixture.SelfSigned(t, dirs[i])
		text, err := os.ReadFile(cert)
		require.NoError(t, err)
		roots += string(text)
	}
	bundle := testutil.WriteFile(t, t.TempDir(), "all.pem", roots)

	load := exec.CommandContext(t.Context(), loadProgram(t), "--server", s.TLS, "--tls-ca", bundle,
		"--clients", "200", "--duration", fmt.Sprintf("%ds", rotations))
	var out strings.Builder
	load.Stdout, load.Stderr = &out, &out
	require.NoError(t, load.Start())
	for i, dir := range dirs {
		for _, name := range []string{"key.pem", "cert.pem"} { // the key comes first
			require.NoError(t, os.Rename(filepath.Join(dir, name), filepath.Join(s.certs, name)))
		}
		s.Await(t, func() error {
			if got := strings.Count(s.Output(), "certificate: in force"); got <= i {
				return fmt.Errorf("%d of %d certificates are in force", got, i+1)
			}
			return nil
		})
		got, code := fixture.Run(t, fixture.TributaryBinary(t), "get", "vs", "-A", "--server", s.TLS, "--tls-ca", bundle)
		require.Zero(t, code)
		require.Contains(t, got, "reviews")
	}
	require.NoError(t, load.Wait(), "%s", &out)
	require.NotContains(t, s.Output(), "client refused")
}

// A process that may open few files cuts off the clients that are too many, and goes on to read its sources, to serve
// those it has, and to tell how it is.
func TestMoreClientsThanFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "rule.yaml", virtualService("reviews", "v1.mesh.internal"))
	tributary := fixture.StartTributaryWith(t, fmt.Sprintf("configSources: [{name: mesh, address: %q}]\n", "fs://"+dir),
		"sh", "-c", `ulimit -n 1024; exec "$0" "$@"`)
	istiod := tributary.StartIstiod(t)
	load := exec.CommandContext(t.Context(), loadProgram(t), "--server", tributary.XDS,
		"--clients", "1300", "--types", "vs", "--timeout", "60s", "--duration", "1s")
	require.NoError(t, load.Start())
	defer func() {
		_ = load.Process.Kill()
		_ = load.Wait() // it does not get all of its clients in
	}()
	tributary.WaitFor(t, 60*time.Second, pageNames(t, tributary, "/metrics", "tributary_connections 896"))
	rule := virtualService("reviews", "v2.mesh.internal")
	write(t, dir, "rule.yaml", rule)
	istiod.AwaitText(t, rule)
	require.Positive(t, tributary.Metric(t, "tributary_connections_refused_total", `reason="connections"`))
	require.Contains(t, tributary.Output(), "few files may be open at once")
	require.Contains(t, tributary.Output(), "a connection was cut off")
}
