package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
	"tributary/resource"
	"tributary/server/envoy/envoytest"
)

// findingsOf runs `tributary verify` against an Envoy, and returns its findings, as "class kind name", and their
// reasons.
func findingsOf(t *testing.T, tributary *fixture.Tributary, envoy string, args ...string) (findings, reasons []string) {
	t.Helper()
	out, code := fixture.Run(t, append([]string{
		fixture.TributaryBinary(t), "verify", "--envoy", envoy, "--admin", tributary.Admin, "-o",
		"json",
	}, args...)...)
	var entries []struct{ Class, Kind, Name, Reason string }
	require.NoError(t, json.Unmarshal([]byte(out), &entries), out)
	counted := 0
	for _, f := range entries {
		require.NotEmpty(t, f.Reason)
		findings, reasons = append(findings, f.Class+" "+f.Kind+" "+f.Name), append(reasons, f.Reason)
		if f.Class != "extra" {
			counted++
		}
	}
	require.Equal(t, map[bool]int{true: 3}[counted > 0], code)
	return findings, reasons
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

// An Envoy that has all of its resources has no findings, as any kind of client and with any way of subscribing: its
// own additions and other forms are no difference.
func TestVerifyEnvoy_InSyncHasNoFindings(t *testing.T) {
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
	node := func(id string, args ...string) []string {
		return append([]string{"envoy", "--server", tributary.XDS, "--node-id", id}, args...)
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
				findings, reasons := findingsOf(t, tributary, envoy.URL(""), "--settle", "20s")
				require.Empty(t, findings, "%s", reasons)
				_, dump, err := fixture.Get(t.Context(), envoy.URL("/config_dump?include_eds"))
				require.NoError(t, err)
				file := testutil.WriteFile(t, t.TempDir(), "dump.json", dump)
				findings, reasons = findingsOf(t, tributary, file)
				require.Empty(t, findings, "%s", reasons)
			})
		}
	}
	require.Zero(t, tributary.Metric(t, "tributary_xds_nacks_total", ""))
}

// An Envoy on demand has the resources that it requested.
func TestVerifyEnvoyOnDemand(t *testing.T) {
	t.Parallel()
	port := fixture.FreePort(t)
	mesh := startMesh(t, "echo.yaml", echoService(port, backend(t, "one"), backend(t, "two")))
	gate := fixture.StartGate(t, mesh.XDS)
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", gate.Addr, "--metadata", "ON_DEMAND=true"))
	findings, reasons := findingsOf(t, mesh.Tributary, envoy.URL(""))
	require.Empty(t, findings, "%s", reasons)
	envoy.Await(t, answeredWith(t, port, "echo.mesh.internal", 200))
	findings, reasons = findingsOf(t, mesh.Tributary, envoy.URL(""))
	require.Empty(t, findings, "%s", reasons)

	gate.Shut()
	mesh.write(t, "route.yaml", echoRoute("one"))
	mesh.Await(t, pageNames(t, mesh.Tributary, "/debug/configz", `"VirtualService"`))
	findings, _ = findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "1s")
	require.Equal(t, []string{"stale VirtualHost " + fmt.Sprintf("%d/echo.mesh.internal", port)}, findings)
	gate.Open()
	findings, reasons = findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "30s")
	require.Empty(t, findings, "%s", reasons)
}

// Resources that a gate in between holds back are stale or missing, and an Envoy's resources from elsewhere are extra.
func TestVerifyEnvoy_FindsWithheldResources(t *testing.T) {
	t.Parallel()
	backendOne, backendTwo, backendThree := backend(t, "one"), backend(t, "two"), backend(t, "three")
	port, secondPort := fixture.FreePort(t), fixture.FreePort(t)
	for _, api := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(api, func(t *testing.T) {
			mesh := startMesh(t, "echo.yaml", echoService(port, backendOne, backendTwo))
			gate := fixture.StartGate(t, mesh.XDS)
			text := strings.Replace(bootstrap(t, "envoy", "--server", gate.Addr), "DELTA_GRPC", api, 1)
			envoy := fixture.StartEnvoyWith(t, withOwnRoutes(t, text))
			const extraFinding = "extra RouteConfiguration own"
			findings, reasons := findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "10s")
			require.Equal(t, []string{extraFinding}, findings, "%s", reasons)

			gate.Shut()
			mesh.write(t, "echo.yaml", echoService(port, backendOne, backendThree)+"---\n"+plain(secondPort, backendTwo))
			mesh.write(t, "route.yaml", echoRoute("one"))
			mesh.Await(t, pageNames(t, mesh.Tributary, "/debug/configz", `"VirtualService"`))
			findings, reasons = findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "1s")
			require.Contains(t, findings, fmt.Sprintf("stale RouteConfiguration %d", port))
			require.Contains(t, findings, fmt.Sprintf("stale ClusterLoadAssignment outbound|%d||echo.mesh.internal", port))
			require.Contains(t, strings.Join(reasons, "\n"), "lacks 127.0.0.1")
			require.Contains(t, strings.Join(findings, "\n"), "missing Listener 127.0.0.1_"+fmt.Sprint(secondPort))
			require.Contains(t, findings, extraFinding)

			gate.Open()
			findings, reasons = findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "60s")
			require.Equal(t, []string{extraFinding}, findings, "%s", reasons)
		})
	}
}

// withOwnRoutes adds a listener to a bootstrap that has its routes in a file.
func withOwnRoutes(t *testing.T, text string) string {
	t.Helper()
	file := testutil.WriteFile(t, t.TempDir(), "routes.yaml", `version_info: "1"
resources:
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: own
`)
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

// Resources that an Envoy has rejected are found with its messages: an object that it does not take, and a feature that
// its machine lacks.
func TestVerifyEnvoy_FindsRejectedResources(t *testing.T) {
	t.Parallel()
	port, taken := fixture.FreePort(t), backend(t, "somebody else")
	dir := t.TempDir()
	write(t, dir, "mesh.yaml", regexHosts(port, 3, "v1", -1))
	admin := fixture.FreePort(t)
	tributary := fixture.StartTributaryWith(t, fmt.Sprintf("configSources:\n- {name: mesh, address: 'fs://%s'}\n", dir))
	text := strict.Replace(bootstrap(t, "envoy", "--server", tributary.XDS))
	envoy := fixture.StartEnvoyAt(t, text, admin)
	findings, reasons := findingsOf(t, tributary, envoy.URL(""), "--settle", "10s")
	require.Empty(t, findings, "%s", reasons)

	write(t, dir, "mesh.yaml", regexHosts(port, 3, "v2", 1))
	write(t, dir, "taken.yaml", plain(taken, taken))
	tributary.WaitFor(t, 30*time.Second, func() error {
		if n := tributary.Metric(t, "tributary_xds_rejected_resources", ""); n != 2 {
			return fmt.Errorf("%v resources are rejected", n)
		}
		return nil
	})
	findings, reasons = findingsOf(t, tributary, envoy.URL(""), "--settle", "2s")
	joined := strings.Join(reasons, "\n")
	require.Contains(t, findings, fmt.Sprintf("rejected RouteConfiguration %d", port), joined)
	require.Contains(t, joined, "max program size of 50")
	require.Contains(t, strings.Join(findings, "\n"), fmt.Sprintf("rejected Listener 127.0.0.1_%d", taken), joined)
	require.Contains(t, joined, "cannot bind")
	require.Len(t, findings, 2, joined)
}
