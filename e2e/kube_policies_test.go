package e2e

import (
	"fmt"
	"testing"

	"tributary/e2e/fixture"
)

// TestKubeFirstSightOfPoliciesDenies has tributary start without the right to read policies; the cluster has one
// policy, or none. No request passes a real Envoy until tributary has the right; then the policies decide.
func TestKubeFirstSightOfPoliciesDenies(t *testing.T) {
	t.Parallel()
	const otherRules = `[{apiGroups: [networking.istio.io, extensions.istio.io, telemetry.istio.io], ` +
		`resources: ["*"], verbs: [get, list, watch]}]`
	cluster := fixture.StartKube(t, "istio")
	for _, object := range []string{denyAll, ""} {
		port := fixture.FreePort(t)
		calls := startCaller(t, port)
		cluster.Apply(t, fmt.Sprintf(frontGateway, port)+"---\n"+object)
		cluster.Grant(t, "", otherRules)
		world := &kubeWorld{Kube: cluster, tributary: fixture.StartTributary(t, cluster.Source("cluster"))}
		envoy := fixture.StartGateway(t, world.tributary.XDS, "/nonexistent")
		calls.denies(t, envoy.Process, "without the right")
		world.says(t, "no right to list and watch authorizationpolicies.security.istio.io, .*"+
			"policies were never read, so Envoys refuse all requests: grant the right")
		cluster.Gate.Shut() // A connection that ends is no right.
		cluster.Gate.Open()
		calls.denies(t, envoy.Process, "without the right, after a cut")

		cluster.Grant(t, "", readIstio)
		for key, policy := range fixture.ParseObjects(t, object) {
			awaitState(t, world.tributary, "cluster", "healthy", false)
			calls.denies(t, envoy.Process, "with the right, by the policy")
			cluster.Delete(t, policy.APIVersion, key)
		}
		calls.passes(t, envoy.Process, "without a policy")
		awaitState(t, world.tributary, "cluster", "healthy", false)
		envoy.Kill() // Or it listens on the next port, too.
	}
}
