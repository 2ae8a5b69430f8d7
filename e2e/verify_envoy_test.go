package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/resource"
	"tributary/server/envoy/envoytest"
)

// findingsOf runs `tributary verify` against an Envoy, and returns what it finds, as "class kind name", and its reasons.
func findingsOf(t *testing.T, tributary *fixture.Tributary, envoy string, more ...string) (found, reasons []string) {
	t.Helper()
	out, code := fixture.Run(t, append([]string{
		fixture.TributaryBinary(t), "verify", "--envoy", envoy, "--admin", tributary.Admin, "-o",
		"json",
	}, more...)...)
	var all []struct{ Class, Kind, Name, Reason string }
	require.NoError(t, json.Unmarshal([]byte(out), &all), out)
	counted := 0
	for _, f := range all {
		require.NotEmpty(t, f.Reason)
		found, reasons = append(found, f.Class+" "+f.Kind+" "+f.Name), append(reasons, f.Reason)
		if f.Class != "extra" {
			counted++
		}
	}
	require.Equal(t, map[bool]int{true: 3}[counted > 0], code)
	return found, reasons
}

// manySamples writes all of Istio's samples and a random mesh into a folder.
func manySamples(t *testing.T, dir string) {
	t.Helper()
	random := envoytest.New(7)
	for range 40 {
		random.Change()
	}
	var objects []*resource.Resource
	for r := range random.Table.Snapshot().All() {
		objects = append(objects, r)
	}
	for _, s := range samples(t) {
		objects = append(objects, s.objects...)
	}
	taken := make(map[resource.Key]bool)
	for i, r := range objects {
		if taken[r.Key()] {
			continue
		}
		taken[r.Key()] = true
		text, err := resource.MarshalJSON(r)
		require.NoError(t, err)
		write(t, dir, fmt.Sprintf("%d.json", i), string(text))
	}
}

// An Envoy that has all that it is told has no findings, whatever it is and however it asks: what it adds or says otherwise is no
// difference.
func TestVerifyEnvoyFindsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manySamples(t, dir)
	port, front := fixture.FreePort(t), fixture.FreePort(t)
	write(t, dir, "echo.yaml", echoService(port, backend(t, "one"), backend(t, "two")))
	credentials := t.TempDir()
	cert, key := fixture.SelfSigned(t, credentials)
	write(t, dir, "gateway.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec:
  selector: {front: only}
  servers:
  - {port: {number: %d, name: http, protocol: HTTPS}, hosts: [echo.mesh.internal], tls: {mode: SIMPLE, serverCertificate: %s, `+
		`privateKey: %s}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  gateways: [default/front]
  http: [{route: [{destination: {host: echo.mesh.internal}}]}]
`, front, cert, key))
	tributary := fixture.StartTributary(t, fixture.Files("mesh", dir).With("validation", "warn"))
	node := func(what string, more ...string) []string {
		return append([]string{"envoy", "--server", tributary.XDS, "--node-id", what}, more...)
	}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"sidecar", node("sidecar~127.0.0.1~a.default~default.svc.cluster.local", "--metadata", "INTERCEPTION_MODE=REDIRECT")},
		{"gateway", node("router~127.0.0.1~b.default~default.svc.cluster.local", "--label", "front=only")},
		{"on demand", node("sidecar~127.0.0.1~c.default~default.svc.cluster.local", "--metadata", "ON_DEMAND=true", "--metadata",
			"INTERCEPTION_MODE=REDIRECT")},
	} {
		for _, api := range []string{"DELTA_GRPC", "GRPC"} {
			t.Run(c.name+" "+api, func(t *testing.T) {
				envoy := fixture.StartEnvoyWith(t, strings.Replace(bootstrap(t, c.args...), "DELTA_GRPC", api, 1))
				found, reasons := findingsOf(t, tributary, envoy.URL(""), "--settle", "20s")
				require.Empty(t, found, "%s", reasons)
				_, dump, err := fixture.Get(t.Context(), envoy.URL("/config_dump?include_eds"))
				require.NoError(t, err)
				file := filepath.Join(t.TempDir(), "dump.json")
				require.NoError(t, os.WriteFile(file, []byte(dump), 0o600))
				found, reasons = findingsOf(t, tributary, file)
				require.Empty(t, found, "%s", reasons)
			})
		}
	}
	require.Zero(t, tributary.Metric(t, "tributary_xds_nacks_total", ""))
}

// An Envoy on demand has what it has asked for.
func TestVerifyEnvoyOnDemand(t *testing.T) {
	t.Parallel()
	port := fixture.FreePort(t)
	mesh := startMesh(t, "echo.yaml", echoService(port, backend(t, "one"), backend(t, "two")))
	gate := fixture.StartGate(t, mesh.XDS)
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", gate.Addr, "--metadata", "ON_DEMAND=true"))
	found, reasons := findingsOf(t, mesh.Tributary, envoy.URL(""))
	require.Empty(t, found, "%s", reasons)
	envoy.WaitFor(t, 10*time.Second, func() error { return answeredWith(t, port, "echo.mesh.internal", 200) })
	found, reasons = findingsOf(t, mesh.Tributary, envoy.URL(""))
	require.Empty(t, found, "%s", reasons)

	gate.Shut()
	mesh.write(t, "route.yaml", echoRoute("one"))
	mesh.WaitFor(t, 10*time.Second, func() error { return pageNames(t, mesh.Tributary, "/debug/configz", `"VirtualService"`) })
	found, _ = findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "1s")
	require.Equal(t, []string{"stale VirtualHost " + fmt.Sprintf("%d/echo.mesh.internal", port)}, found)
	gate.Open()
	found, reasons = findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "30s")
	require.Empty(t, found, "%s", reasons)
}

// What something in between holds back is found stale or missing, and what an Envoy has from elsewhere is extra.
func TestVerifyEnvoyFindsWhatIsHeldBack(t *testing.T) {
	t.Parallel()
	one, two, three := backend(t, "one"), backend(t, "two"), backend(t, "three")
	port, other := fixture.FreePort(t), fixture.FreePort(t)
	for _, api := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(api, func(t *testing.T) {
			mesh := startMesh(t, "echo.yaml", echoService(port, one, two))
			gate := fixture.StartGate(t, mesh.XDS)
			text := strings.Replace(bootstrap(t, "envoy", "--server", gate.Addr), "DELTA_GRPC", api, 1)
			envoy := fixture.StartEnvoyWith(t, withOwnRoutes(t, text))
			const own = "extra RouteConfiguration own"
			found, reasons := findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "10s")
			require.Equal(t, []string{own}, found, "%s", reasons)

			gate.Shut()
			mesh.write(t, "echo.yaml", echoService(port, one, three)+"---\n"+plain(other, two))
			mesh.write(t, "route.yaml", echoRoute("one"))
			mesh.WaitFor(t, 10*time.Second, func() error { return pageNames(t, mesh.Tributary, "/debug/configz", `"VirtualService"`) })
			found, reasons = findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "1s")
			require.Contains(t, found, fmt.Sprintf("stale RouteConfiguration %d", port))
			require.Contains(t, found, fmt.Sprintf("stale ClusterLoadAssignment outbound|%d||echo.mesh.internal", port))
			require.Contains(t, strings.Join(reasons, "\n"), "lacks 127.0.0.1")
			require.Contains(t, strings.Join(found, "\n"), "missing Listener 127.0.0.1_"+fmt.Sprint(other))
			require.Contains(t, found, own)

			gate.Open()
			found, reasons = findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "60s")
			require.Equal(t, []string{own}, found, "%s", reasons)
		})
	}
}

// withOwnRoutes adds a listener to a bootstrap whose routes are in a file.
func withOwnRoutes(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "routes.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`version_info: "1"
resources:
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: own
`), 0o600))
	require.Contains(t, text, "static_resources:\n")
	return strings.Replace(text, "static_resources:\n", fmt.Sprintf(`static_resources:
  listeners:
  - name: own
    address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: own
          rds: {route_config_name: own, config_source: {path_config_source: {path: %s}}}
          http_filters:
          - name: router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
`, fixture.FreePort(t), file), 1)
}

// What an Envoy has rejected is found with its words: an object that it does not take, and what its machine lacks.
func TestVerifyEnvoyFindsWhatItRejected(t *testing.T) {
	t.Parallel()
	port, taken := fixture.FreePort(t), backend(t, "somebody else")
	dir := t.TempDir()
	write(t, dir, "mesh.yaml", regexHosts(port, 3, "v1", -1))
	admin := fixture.FreePort(t)
	tributary := fixture.StartTributaryWith(t, fmt.Sprintf("configSources:\n- {name: mesh, address: 'fs://%s'}\n", dir))
	text := strict.Replace(bootstrap(t, "envoy", "--server", tributary.XDS))
	envoy := fixture.StartEnvoyAt(t, text, admin)
	found, reasons := findingsOf(t, tributary, envoy.URL(""), "--settle", "10s")
	require.Empty(t, found, "%s", reasons)

	write(t, dir, "mesh.yaml", regexHosts(port, 3, "v2", 1))
	write(t, dir, "taken.yaml", plain(taken, taken))
	tributary.WaitFor(t, 30*time.Second, func() error {
		if n := tributary.Metric(t, "tributary_xds_rejected_resources", ""); n != 2 {
			return fmt.Errorf("%v resources are rejected", n)
		}
		return nil
	})
	found, reasons = findingsOf(t, tributary, envoy.URL(""), "--settle", "2s")
	all := strings.Join(reasons, "\n")
	require.Contains(t, found, fmt.Sprintf("rejected RouteConfiguration %d", port), all)
	require.Contains(t, all, "max program size of 50")
	require.Contains(t, strings.Join(found, "\n"), fmt.Sprintf("rejected Listener 127.0.0.1_%d", taken), all)
	require.Contains(t, all, "cannot bind")
	require.Len(t, found, 2, all)
}
