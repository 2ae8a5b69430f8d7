package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// targetGateway is a Gateway of the Gateway API with a route to the service one.
const targetGateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: %[1]s}
spec:
  gatewayClassName: istio
  listeners: [{name: http, port: %[2]d, protocol: HTTP}, {name: tcp, port: %[3]d, protocol: TCP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: one, namespace: %[1]s}
spec:
  parentRefs: [{name: edge, sectionName: http}]
  rules: [{backendRefs: [{group: networking.istio.io, kind: Hostname, name: one.mesh.internal, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TCPRoute
metadata: {name: one, namespace: %[1]s}
spec:
  parentRefs: [{name: edge, sectionName: tcp}]
  rules: [{backendRefs: [{group: networking.istio.io, kind: Hostname, name: one.mesh.internal, port: 80}]}]
---
`

// The Envoys with the label of a derived Gateway in its namespace enforce a policy that refers to the Gateway, and
// Envoys of other namespaces deny requests to the Gateway while it has a policy.
func TestTargetsOfPolicies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home, foreign, homeTCP, foreignTCP := fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t)
	write(t, dir, "services.yaml", service("one", fmt.Sprintf("  ports: [{number: 80, name: main, protocol: HTTP}]\n  endpoints: "+
		"[{address: 127.0.0.1, ports: {main: %d}}]\n", backend(t, "one"))))
	write(t, dir, "gateways.yaml", fmt.Sprintf(targetGateway, "default", home, homeTCP)+
		fmt.Sprintf(targetGateway, "shop", foreign, foreignTCP))
	tributary := fixture.StartTributary(t, fixture.Files("mesh", dir).With("guard", "off").With("derive", map[string]any{}))
	tributary.AwaitReady(t)
	envoy := fixture.StartGateway(t, tributary.XDS, "/nonexistent") // in namespace default, with istio.io/gateway-name: edge
	expect := func(name string, timeout time.Duration, atHome, elsewhere int) {
		t.Helper()
		begun := time.Now()
		defer func() { t.Logf("%s: in force after %s", name, time.Since(begun).Round(time.Millisecond)) }()
		envoy.WaitFor(t, timeout, func() error {
			for port, status := range map[int]int{home: atHome, foreign: elsewhere} {
				if got, err := askEdge(t, port, "GET", "one.example.com", "/"); got.status != status {
					return fmt.Errorf("%s: port %d: %d (%v), want %d", name, port, got.status, err, status) //nolint:errorlint // there may be none
				}
			}
			for port, status := range map[int]int{homeTCP: atHome, foreignTCP: elsewhere} {
				if _, err := askEdge(t, port, "GET", "one.example.com", "/"); (err == nil) != (status == http.StatusOK) {
					return fmt.Errorf("%s: TCP port %d: %v, want %d", name, port, err, status) //nolint:errorlint // there may be none
				}
			}
			return nil
		})
	}
	const soon = 8 * time.Second // less than a removal waits for an Envoy that does not acknowledge
	expect("no policy", 30*time.Second, 200, 200)
	reference := "{group: gateway.networking.k8s.io, kind: Gateway, name: edge}"
	for name, spec := range map[string]string{
		"targetRefs": "{action: DENY, targetRefs: [" + reference + "], rules: [{}]}",
		"targetRef":  "{action: DENY, targetRef: " + reference + ", rules: [{}]}",
	} {
		text := policy("deny", spec)
		write(t, dir, "policy.yaml", strings.ReplaceAll(text, "namespace: default", "namespace: shop"))
		expect(name+" of another namespace", soon, 200, 403)
		write(t, dir, "policy.yaml", text)
		expect(name+" in its namespace", soon, 403, 403) // as with istiod, a policy is for all that the Envoy serves
		write(t, dir, "policy.yaml", "")
		expect(name+" is gone", 30*time.Second, 200, 200)
	}

	write(t, dir, "policy.yaml", policy("deny", "{action: DENY, targetRef: "+strings.ReplaceAll(reference, "edge", "absent")+", rules: [{}]}"))
	envoy.Await(t, func() error {
		if out, code := fixture.Run(t, fixture.TributaryBinary(t), "status", "--check", "--admin", tributary.Admin); code == 0 {
			return fmt.Errorf("status --check: %s", out)
		}
		return nil
	})
	out, _ := fixture.Run(t, fixture.TributaryBinary(t), "explain", "AuthorizationPolicy", "default/deny", "--admin", tributary.Admin)
	require.Contains(t, out, "it applies to no client")
	out, _ = fixture.Run(t, fixture.TributaryBinary(t), "validate", "--derive", dir)
	require.Contains(t, out, "it applies to no client")
}
