package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// strict has an Envoy reject all routes of a port for one regular expression that others take, and that it claims to take.
var strict = strings.NewReplacer("re2.max_program_size.error_level: 32768", "re2.max_program_size.error_level: 50")

// answersAt returns a function that waits until a host of regexHosts answers with a text.
func answersAt(t *testing.T, envoy *fixture.Envoy, port int) func(host int, text string) {
	return func(host int, text string) {
		t.Helper()
		envoy.WaitFor(t, 30*time.Second, func() error {
			got, err := requestAs(t, port, fmt.Sprintf("h%d.mesh.internal", host))
			if err == nil && got != text {
				err = fmt.Errorf("h%d answers %q, and not yet %q", host, got, text)
			}
			return err
		})
	}
}

// The status names the resources that a real Envoy rejects, with the object that changed; the Envoy keeps its version
// of that resource and takes all others, and another Envoy, which accepts it, gets all of it.
func TestRejectedOnTributary(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			const hosts, broken = 3, 2
			port, good := fixture.FreePort(t), fixture.FreePort(t)
			otherHosts := func(text string) string {
				return strings.NewReplacer("{name: h", "{name: x", "[h", "[x").Replace(regexHosts(good, 1, text, -1))
			}
			mesh := startMesh(t, "mesh.yaml", regexHosts(port, hosts, "v1", -1)+otherHosts("v1"))
			boot := strings.Replace(bootstrap(t, "envoy", "--server", mesh.XDS), "DELTA_GRPC", api, 1)
			envoy := fixture.StartEnvoyWith(t, strict.Replace(boot))
			answers := answersAt(t, envoy, port)
			answers(0, "v1")
			answers(broken, "v1")

			mesh.write(t, "mesh.yaml", regexHosts(port, hosts, "v2", broken)+otherHosts("v2"))
			envoy.WaitFor(t, 30*time.Second, func() error {
				if got, err := requestAs(t, good, "x0.mesh.internal"); err != nil || got != "v2" {
					return fmt.Errorf("x0 answers %q (%w)", got, err)
				}
				return nil
			})
			mesh.WaitFor(t, 30*time.Second, func() error {
				// A rejection by delta names one resource; one by state of the world is of all that changed.
				if n, want := mesh.Metric(t, "tributary_xds_rejected_resources", ""), map[string]int{"DELTA_GRPC": 1, "GRPC": 2}[api]; n != want {
					return fmt.Errorf("%v resources are rejected", n)
				}
				return nil
			})
			answers(0, "v1")
			status := mesh.Ask(t, "status")
			require.Contains(t, status, fmt.Sprintf("rejects RouteConfiguration %d: ", port))
			require.Contains(t, status, "max program size of 50", "Envoy's reason")
			require.Contains(t, status, "VirtualService default/h2")
			require.Contains(t, mesh.Ask(t, "explain", "vs", "default/h2"), "max program size of 50")

			mesh.write(t, "mesh.yaml", regexHosts(port, hosts, "v3", -1)+otherHosts("v3"))
			for i := range hosts {
				answers(i, "v3")
			}
			require.NotContains(t, mesh.Ask(t, "status"), "max program size")
		})
	}
}

// regexHosts are services on one port with routes that answer with a text. The regular expression of one of them is
// large.
func regexHosts(port, n int, text string, large int) string {
	var b strings.Builder
	for i := range n {
		re := ".*"
		if i == large {
			re = strings.Repeat("(one|two|three)", 20) + "|.*"
		}
		fmt.Fprintf(&b, `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: h%[1]d, namespace: default}
spec:
  hosts: [h%[1]d.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[2]d, name: http, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: h%[1]d, namespace: default}
spec:
  hosts: [h%[1]d.mesh.internal]
  http:
  - match: [{uri: {regex: "%[3]s"}}]
    directResponse: {status: 200, body: {string: %[4]s}}
`, i, port, re, text)
	}
	return b.String()
}
