package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// securedMesh is a service whose only endpoint is an ingress listener of a sidecar, which passes on to a backend. Callers reach it by
// automatic mutual TLS, with a connection for each request.
const securedMesh = `apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: mesh}
spec: {trustDomain: %[1]s}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[2]d, name: http, protocol: HTTP}]
  endpoints:
  - {address: 127.0.0.1, ports: {http: %[3]d}, serviceAccount: echo, labels: {security.istio.io/tlsMode: istio}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: default}
spec: {host: echo.mesh.internal, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: echo, namespace: default}
spec:
  workloadSelector: {labels: {app: echo}}
  egress: [{hosts: ["~/*"]}] # or it would listen on the port of the service, too
  ingress:
  - {port: {number: %[3]d, protocol: HTTP, name: http}, captureMode: NONE, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:%[4]d"}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: default}
spec: {mtls: {mode: STRICT}}
`

const policyOfEcho = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: %s, namespace: default}
spec: {selector: {matchLabels: {app: echo}}, %s}
`

// Two workloads with identities from a real SPIRE and no istiod: the sidecar of one admits who may call it, whatever changes and whoever is
// away. A policy is in force as soon as one request shows it: none that may not pass does after that.
func TestWorkloadsAdmitByIdentity(t *testing.T) {
	t.Parallel()
	spire := fixture.StartSPIRE(t)
	programs := [2]string{fixture.EnvoyCopy(t), fixture.EnvoyCopy(t)}
	spire.Register(t, echoID, programs[0], time.Minute)
	spire.Register(t, callerID, programs[1], time.Minute)
	port, ingress := fixture.FreePort(t), fixture.FreePort(t)
	mesh := startMesh(t, "mesh.yaml", fmt.Sprintf(securedMesh, fixture.SPIREDomain, port, ingress, backend(t, "one")))
	echo := fixture.StartEnvoyCopy(t, programs[0], bootstrap(t, "envoy", "--server", mesh.XDS, "--spire", spire.Socket, "--label", "app=echo"))
	caller := fixture.StartEnvoyCopy(t, programs[1], bootstrap(t, "envoy", "--server", mesh.XDS, "--spire", spire.Socket))
	answers := func(status int) error { return answeredWith(t, port, echoHost, status) }
	becomes := func(what string, status int) {
		t.Helper()
		caller.WaitFor(t, 20*time.Second, func() error { return answers(status) })
		for range 50 {
			require.NoError(t, answers(status), what)
		}
	}
	becomes("mutual TLS", http.StatusOK)
	_, err := requestAs(t, ingress, echoHost)
	require.Error(t, err, "plaintext is refused")
	_, err = requestAt(t, "https://"+fixture.Loopback(ingress), echoHost)
	require.Error(t, err, "so is TLS without a certificate")

	principal := func(name string) string {
		return fmt.Sprintf("rules: [{from: [{source: {principals: [%s/ns/default/sa/%s]}}]}]", fixture.SPIREDomain, name)
	}
	for _, step := range []struct {
		what, policy string
		status       int
	}{
		{"DENY for another", "action: DENY, " + principal("other"), http.StatusOK},
		{"DENY for the caller", "action: DENY, " + principal("caller"), http.StatusForbidden},
		{"ALLOW for the caller", "action: ALLOW, " + principal("caller"), http.StatusOK},
		{"ALLOW for another", "action: ALLOW, " + principal("other"), http.StatusForbidden},
		{"ALLOW for the namespace", "action: ALLOW, rules: [{from: [{source: {namespaces: [default]}}]}]", http.StatusOK},
		{"ALLOW for other namespaces", "action: ALLOW, rules: [{from: [{source: {notNamespaces: [default]}}]}]", http.StatusForbidden},
		{"ALLOW for a path", "action: ALLOW, rules: [{to: [{operation: {paths: [/]}}]}]", http.StatusOK},
		{"nothing is allowed", "action: ALLOW", http.StatusForbidden},
	} {
		mesh.write(t, "policy.yaml", fmt.Sprintf(policyOfEcho, "of-echo", step.policy))
		becomes(step.what, step.status)
	}

	mesh.write(t, "policy.yaml", fmt.Sprintf(policyOfEcho, "of-echo", "action: DENY, rules: [{when: [{key: nonsense, values: [a]}]}]"))
	mesh.Kill()
	require.NoError(t, answers(http.StatusForbidden), "policies stay while tributary is away")
	mesh.Restart(t)
	mesh.AwaitReady(t)
	for range 50 {
		require.NoError(t, answers(http.StatusForbidden), "an invalid policy is as it was last, also after a restart")
	}
	mesh.write(t, "policy.yaml", fmt.Sprintf(policyOfEcho, "of-echo", "action: ALLOW, rules: [{}]"))
	becomes("a valid policy again", http.StatusOK)

	// A policy of which no version was ever valid denies, until it is gone.
	mesh.write(t, "never.yaml", fmt.Sprintf(policyOfEcho, "never", "action: DENY, rules: [{when: [{key: nonsense, values: [a]}]}]"))
	becomes("a policy that was never valid", http.StatusForbidden)
	require.NoError(t, os.Remove(filepath.Join(mesh.dir, "never.yaml")))
	becomes("without it", http.StatusOK)
	for _, e := range []*fixture.Envoy{echo, caller} {
		mesh.Ask(t, "verify", "--envoy", e.URL(""))
	}
	mesh.rejectedNothing(t)
}
