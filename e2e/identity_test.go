package e2e

import (
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
	"tributary/internal/spiffe/spiffetest"
	"tributary/internal/testutil"
)

const (
	echoHost = "echo.mesh.internal"
	callerID = "spiffe://" + fixture.SPIREDomain + "/ns/default/sa/caller"
	echoID   = "spiffe://" + fixture.SPIREDomain + "/ns/default/sa/echo"
)

// identified is a mesh of two Envoys with identities: one that calls, and a gateway that is called by mutual TLS and passes on to a
// backend in plaintext. The backend answers with the identity of the caller.
type identified struct {
	*mesh
	port, gatewayPort int // of the caller's listener, and of the gateway
	backend           int
	caller, gateway   *fixture.Envoy
}

// objects of a mesh with a service account at its endpoint, and with a gateway that admits names.
func (m *identified) objects(account, admitted, policy string) string {
	return fmt.Sprintf(`
apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: mesh, namespace: istio-system}
spec: {trustDomain: %[6]s}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  hosts: [%[7]s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[1]d, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: %[2]d}, serviceAccount: %[4]s}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: default}
spec: {host: %[7]s, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 5}}%[8]s}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: behind, namespace: default}
spec:
  hosts: [behind.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[3]d, name: http, protocol: HTTP, targetPort: %[3]d}]
  endpoints: [{address: 127.0.0.1}]
  exportTo: [gateways]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: gateways}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: %[2]d, name: mutual, protocol: HTTPS}, hosts: ["*"], tls: {mode: ISTIO_MUTUAL%[5]s}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: gateways}
spec: {hosts: ["*"], gateways: [front], http: [{route: [{destination: {host: behind.mesh.internal}}]}]}
`, m.port, m.gatewayPort, m.backend, account, admitted, fixture.SPIREDomain, echoHost, policy)
}

// startIdentified starts the mesh with Envoys that have the flags in their bootstraps, by programs of their own.
func startIdentified(t *testing.T, programs [2]string, flags ...[]string) *identified {
	t.Helper()
	m := &identified{port: fixture.FreePort(t), gatewayPort: fixture.FreePort(t)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, uri, _ := strings.Cut(r.Header.Get("X-Forwarded-Client-Cert"), "URI=")
		_, _ = io.WriteString(w, uri)
	}))
	t.Cleanup(s.Close)
	m.backend = s.Listener.Addr().(*net.TCPAddr).Port
	m.mesh = startMesh(t, "mesh.yaml", m.objects("echo", "", ""))
	m.gateway = fixture.StartEnvoyCopy(t, programs[0], bootstrap(t, append([]string{
		"envoy", "--server", m.XDS, "--namespace", "gateways",
		"--node-id", "router~127.0.0.1~front.gateways~gateways.svc.cluster.local", "--label", "istio=ingressgateway",
	}, flags[0]...)...))
	m.caller = fixture.StartEnvoyCopy(t, programs[1], bootstrap(t, append([]string{"envoy", "--server", m.XDS}, flags[1]...)...))
	m.answers(t)
	return m
}

// answers waits until the gateway answers the caller, and knows its identity.
func (m *identified) answers(t *testing.T) {
	t.Helper()
	m.caller.Await(t, answeredBy(t, m.port, callerID))
}

// refuses waits until the caller gets 503, and one of both has refused the name in a certificate.
func (m *identified) refuses(t *testing.T, envoy *fixture.Envoy) {
	t.Helper()
	before := statistic(t, envoy, "ssl.fail_verify_san")
	m.caller.Await(t, answeredWith(t, m.port, echoHost, http.StatusServiceUnavailable))
	require.Greater(t, statistic(t, envoy, "ssl.fail_verify_san"), before)
}

// statistic returns the largest value of a statistic of an Envoy.
func statistic(t *testing.T, e *fixture.Envoy, name string) (most int) {
	t.Helper()
	_, body, err := fixture.Get(t.Context(), e.URL("/stats?filter="+name))
	require.NoError(t, err)
	for line := range strings.Lines(body) {
		var n int
		_, value, _ := strings.Cut(line, ": ")
		_, _ = fmt.Sscan(value, &n)
		most = max(most, n)
	}
	return most
}

// rotated waits until both Envoys have had new certificates a number of times.
func (m *identified) rotated(t *testing.T, times int) {
	t.Helper()
	m.rotatedBy(t, times, func() {})
}

func (m *identified) rotatedBy(t *testing.T, times int, do func()) {
	t.Helper()
	envoys := []*fixture.Envoy{m.caller, m.gateway}
	var before [2]int
	for i, e := range envoys {
		before[i] = statistic(t, e, "ssl_context_update_by_sds")
	}
	do()
	for i, e := range envoys {
		e.WaitFor(t, 60*time.Second, func() error {
			if n := statistic(t, e, "ssl_context_update_by_sds") - before[i]; n < times {
				return fmt.Errorf("%d rotations", n)
			}
			return nil
		})
	}
}

// keepsIdentities has identities checked: the server and the caller must have the expected identity, and plaintext is
// refused.
func (m *identified) keepsIdentities(t *testing.T) {
	t.Helper()
	_, err := requestAs(t, m.gatewayPort, echoHost)
	require.Error(t, err, "plaintext is refused")
	_, err = requestAt(t, "https://"+fixture.Loopback(m.gatewayPort), echoHost)
	require.Error(t, err, "TLS without a certificate is refused, too")

	m.write(t, "mesh.yaml", m.objects("other", "", ""))
	m.refuses(t, m.caller)
	m.write(t, "mesh.yaml", m.objects("other", "", ", tls: {mode: ISTIO_MUTUAL, subjectAltNames: ['"+echoID+"']}"))
	m.answers(t)
	m.write(t, "mesh.yaml", m.objects("echo", ", subjectAltNames: ['"+echoID+"']", ""))
	m.refuses(t, m.gateway)
	m.write(t, "mesh.yaml", m.objects("echo", ", subjectAltNames: ['"+callerID+"']", ""))
	m.answers(t)
}

// Two real Envoys get their identities from a real SPIRE, with certificates that are valid for seconds. No request
// fails while they are replaced, while the agent is down and comes back, nor while tributary is down.
func TestSPIREIdentities(t *testing.T) {
	t.Parallel()
	spire := fixture.StartSPIRE(t)
	programs := [2]string{fixture.EnvoyCopy(t), fixture.EnvoyCopy(t)}
	const valid = 12 * time.Second
	spire.Register(t, echoID, programs[0], valid)
	spire.Register(t, callerID, programs[1], valid)
	flags := []string{"--spire", spire.Socket}
	m := startIdentified(t, programs, flags, flags)
	l := loadOn(t, m.port)
	m.rotated(t, 2)
	spire.Agent.Crash(t)
	spire.AwaitAgent(t)
	m.rotated(t, 1)
	m.Kill()
	m.rotated(t, 1)
	m.Restart(t)
	m.AwaitReady(t)
	require.Zero(t, l.end(), "requests that failed")
	t.Logf("%d requests answered", l.answered.Load())
	m.keepsIdentities(t)

	// With several trust domains, SPIRE has Envoy verify each by its own roots, and names as before.
	aliases := func(account string) string {
		return strings.Replace(m.objects(account, "", ""), "{trustDomain: ", "{trustDomainAliases: [old.example], trustDomain: ", 1)
	}
	m.write(t, "mesh.yaml", aliases("echo"))
	for _, e := range []*fixture.Envoy{m.caller, m.gateway} {
		e.Await(t, func() error {
			_, body, err := fixture.Get(t.Context(), e.URL("/config_dump?resource=dynamic_active_secrets"))
			if err == nil && !strings.Contains(body, `"name": "ALL"`) {
				err = fmt.Errorf("no ALL in %s", body)
			}
			return err
		})
	}
	m.answers(t)
	m.write(t, "mesh.yaml", aliases("other"))
	m.caller.Await(t, answeredWith(t, m.port, echoHost, http.StatusServiceUnavailable))
	m.write(t, "mesh.yaml", aliases("echo"))
	m.answers(t)
	for _, e := range []*fixture.Envoy{m.caller, m.gateway} {
		m.Ask(t, "verify", "--envoy", e.URL(""))
	}
	m.rejectedNothing(t)
}

// identityFiles are the files of an identity, which are replaced as Kubernetes replaces those of a volume: by a symbolic link.
type identityFiles struct {
	dir, id    string
	generation int
}

func (f *identityFiles) replace(t *testing.T, signer *testutil.Authority, trusted ...*testutil.Authority) {
	t.Helper()
	f.generation++
	name := fmt.Sprintf("..%d", f.generation)
	dir := filepath.Join(f.dir, name)
	require.NoError(t, os.Mkdir(dir, 0o700))
	pair, roots := spiffetest.Sign(signer, f.id, time.Time{}), ""
	for _, a := range trusted {
		roots += a.PEM
	}
	for file, text := range map[string]string{"cert-chain.pem": pair.Certificate, "key.pem": pair.Key, "root-cert.pem": roots} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		if f.generation == 1 {
			require.NoError(t, os.Symlink(filepath.Join("..data", file), filepath.Join(f.dir, file)))
		}
	}
	require.NoError(t, os.Symlink(name, filepath.Join(f.dir, "..new")))
	require.NoError(t, os.Rename(filepath.Join(f.dir, "..new"), filepath.Join(f.dir, "..data")))
}

// The same with identities in files: first the certificates are replaced, and then their issuers, without a failed
// request.
func TestFileIdentities(t *testing.T) {
	t.Parallel()
	authorityOne, authorityTwo := testutil.NewAuthority(t), testutil.NewAuthority(t)
	echo, caller := &identityFiles{dir: t.TempDir(), id: echoID}, &identityFiles{dir: t.TempDir(), id: callerID}
	replace := func(signer *testutil.Authority, trusted ...*testutil.Authority) {
		echo.replace(t, signer, trusted...)
		caller.replace(t, signer, trusted...)
	}
	replace(authorityOne, authorityOne)
	program := fixture.EnvoyBinary(t)
	m := startIdentified(t, [2]string{program, program}, []string{"--identity-dir", echo.dir}, []string{"--identity-dir", caller.dir})
	l := loadOn(t, m.port)
	changed := func(signer *testutil.Authority, trusted ...*testutil.Authority) {
		t.Helper()
		m.rotatedBy(t, 1, func() { replace(signer, trusted...) })
	}
	changed(authorityOne, authorityOne)
	changed(authorityOne, authorityOne, authorityTwo)
	m.Kill()
	changed(authorityTwo, authorityOne, authorityTwo)
	m.Restart(t)
	m.AwaitReady(t)
	changed(authorityTwo, authorityTwo)
	require.Zero(t, l.end(), "requests that failed")
	t.Logf("%d requests answered", l.answered.Load())
	m.keepsIdentities(t)
	m.rejectedNothing(t)

	caller.replace(t, authorityOne, authorityTwo)
	m.caller.Await(t, answeredWith(t, m.port, echoHost, http.StatusServiceUnavailable))
}
