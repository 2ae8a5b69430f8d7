package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// strict has an Envoy reject all routes of a port for one regular expression that others take, and that it claims to take.
var strict = strings.NewReplacer("re2.max_program_size.error_level: 32768", "re2.max_program_size.error_level: 50")

// What a real Envoy rejects is traced back to its object, of several that changed at once: that one is served as it was before, the others as they are.
func TestQuarantineOnTributary(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			const hosts, broken = 5, 2
			port := fixture.FreePort(t)
			mesh := startMesh(t, "mesh.yaml", regexHosts(port, hosts, "v1", -1))
			start := func() *fixture.Envoy {
				return fixture.StartEnvoyWith(t, strict.Replace(strings.Replace(bootstrap(t, "envoy", "--server", mesh.XDS), "DELTA_GRPC", api, 1)))
			}
			envoy := start()
			answers := func(host int, text string) {
				t.Helper()
				envoy.WaitFor(t, 30*time.Second, func() error {
					got, err := requestAs(t, port, fmt.Sprintf("h%d.mesh.internal", host))
					if err == nil && got != text {
						err = fmt.Errorf("h%d answers %q, and not yet %q", host, got, text)
					}
					return err
				})
			}
			for i := range hosts {
				answers(i, "v1")
			}

			mesh.write(t, "mesh.yaml", regexHosts(port, hosts, "v2", broken))
			for i := range hosts {
				if i != broken {
					answers(i, "v2")
				}
			}
			mesh.WaitFor(t, 30*time.Second, func() error {
				if mesh.Metric(t, "tributary_envoy_complaints_total", `end="quarantined"`) != 1 {
					return errors.New("nothing is in quarantine")
				}
				return nil
			})
			answers(broken, "v1")
			require.Contains(t, mesh.Ask(t, "status"), "VirtualService default/h2 by Envoys: ")
			why := mesh.Ask(t, "explain", "vs", "default/h2")
			require.Contains(t, why, "max program size of 50", "Envoy's reason")
			require.Contains(t, why, "is served to all of them")

			// An Envoy that starts when tributary has been restarted knows nothing of before.
			envoy.Kill()
			mesh.Kill()
			mesh.Restart(t)
			envoy = start()
			for i := range hosts {
				answers(i, map[bool]string{true: "v1", false: "v2"}[i == broken])
			}
			require.Contains(t, mesh.Ask(t, "status"), "VirtualService default/h2 by Envoys: ")

			mesh.write(t, "mesh.yaml", regexHosts(port, hosts, "v3", -1))
			for i := range hosts {
				answers(i, "v3")
			}
			require.NotContains(t, mesh.Ask(t, "status"), "by Envoys")
		})
	}
}

// regexHosts are services on one port whose routes answer with a text. The regular expression of one of them is large.
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

// What is in a response with something that an Envoy rejects, and comes of no object that could be set aside, since that is gone, arrives nonetheless.
func TestInnocentRoutesArriveOnTributary(t *testing.T) {
	t.Parallel()
	mesh := startMesh(t, "mesh.yaml", "")
	envoy := fixture.StartEnvoyWith(t, strict.Replace(bootstrap(t, "envoy", "--server", mesh.XDS)))
	bad := fixture.FreePort(t)
	ports := []int{fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t)}
	services, routes := regexHosts(bad, 1, "v1", -1), ""
	for i, port := range ports {
		services += fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%[1]d, namespace: default}
spec: {hosts: [s%[1]d.mesh.internal], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: %[2]d, name: http, protocol: HTTP}]}
`, i, port)
		routes += fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: s%[1]d, namespace: default}
spec: {hosts: [s%[1]d.mesh.internal], http: [{directResponse: {status: 200, body: {string: v1}}}]}
`, i)
	}
	answers := func(port int, host, text string) {
		t.Helper()
		envoy.WaitFor(t, 30*time.Second, func() error {
			got, err := requestAs(t, port, host+".mesh.internal")
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, text) {
				return fmt.Errorf("%s answers %q, and not yet %q", host, got, text)
			}
			return nil
		})
	}
	mesh.write(t, "mesh.yaml", services+routes)
	answers(bad, "h0", "v1")
	for i, port := range ports {
		answers(port, fmt.Sprint("s", i), "v1")
	}
	mesh.write(t, "mesh.yaml", strings.Replace(services, regexHosts(bad, 1, "v1", -1), regexHosts(bad, 1, "v2", 0), 1))
	for i, port := range ports {
		answers(port, fmt.Sprint("s", i), "503")
	}
	answers(bad, "h0", "v1")
	mesh.WaitFor(t, 30*time.Second, func() error {
		if mesh.Metric(t, "tributary_envoy_complaints_total", `end="quarantined"`) != 1 {
			return errors.New("nothing is in quarantine")
		}
		return nil
	})
}
