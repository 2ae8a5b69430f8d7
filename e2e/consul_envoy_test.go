package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// A real Envoy with tributary as its only server reaches a service of a real Consul, by the alias of the datacenter,
// too. Rules in files route the service; it scales, follows its checks, and loses instances under load without a failed
// request. After its last instance, requests get 503 while the service is kept, and then the port is closed.
func TestConsulThroughEnvoy(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	port := fixture.FreePort(t)
	mesh := startMesh(t, "rules.yaml", consulRules, consul.Source("consul").With("grace", consulGrace.String()).With("servicePort", port))
	register := func(n int) {
		name := "shop-" + strconv.Itoa(n)
		s := instance(name, "127.0.0.1", backend(t, name))
		s.Meta["version"] = "v" + strconv.Itoa(n)
		consul.Register(t, s, api.HealthPassing)
	}
	register(1)
	envoy := fixture.StartEnvoy(t, mesh.XDS)
	const soon = 30 * time.Second // a service that changes often is read ever less often, once in 15 s at the least
	answers := func(want ...string) {
		t.Helper()
		envoy.WaitFor(t, soon, answeredByAll(t, port, "shop.service.consul", want))
	}
	answers("shop-1")
	require.NoError(t, answeredAs(t, port, "shop.service.dc1.consul", "shop-1")())

	register(2)
	register(3)
	answers("shop-1", "shop-2", "shop-3")
	for version := 1; version <= 3; version++ {
		for range 5 {
			require.Equal(t, fmt.Sprintf("shop-%d", version), askVersion(t, port, fmt.Sprintf("v%d", version)))
		}
	}
	consul.SetStatus(t, "shop-2", api.HealthCritical)
	answers("shop-1", "shop-3")
	consul.SetStatus(t, "shop-2", api.HealthPassing)
	answers("shop-1", "shop-2", "shop-3")

	l := startLoad(t, func() (string, error) { return requestAs(t, port, "shop.service.consul") })
	require.NoError(t, consul.API().Agent().ServiceDeregister("shop-1"))
	require.NoError(t, consul.API().Agent().ServiceDeregister("shop-2"))
	answers("shop-3")
	require.Zero(t, l.end(), "requests that failed")
	t.Logf("%d requests answered", l.answered.Load())

	require.NoError(t, consul.API().Agent().ServiceDeregister("shop-3"))
	envoy.WaitFor(t, soon, answeredWith(t, port, "shop.service.consul", http.StatusServiceUnavailable))
	envoy.WaitFor(t, soon, func() error { return checkClosed(t, port) })
	mesh.rejectedNothing(t)
}

// answeredByAll checks that each backend, and no other, answers some of 30 requests.
func answeredByAll(t *testing.T, port int, host string, backends []string) func() error {
	return func() error {
		got := map[string]int{}
		for range 30 {
			name, err := requestAs(t, port, host)
			if err != nil {
				return err
			}
			got[name]++
		}
		for _, b := range backends {
			if got[b] == 0 {
				return fmt.Errorf("no answer of %s: %v", b, got)
			}
		}
		if len(got) != len(backends) {
			return fmt.Errorf("answers of %v, want %v", got, backends)
		}
		return nil
	}
}

func askVersion(t *testing.T, port int, version string) string {
	t.Helper()
	name, err := requestAs(t, port, "shop.service.consul", "x-version", version)
	require.NoError(t, err)
	return name
}

const consulRules = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: shop, namespace: consul}
spec:
  host: shop.service.consul
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
  - {name: v3, labels: {version: v3}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: consul}
spec:
  hosts: [shop.service.consul]
  http:
  - match: [{headers: {x-version: {exact: v1}}}]
    route: [{destination: {host: shop.service.consul, subset: v1}}]
  - match: [{headers: {x-version: {exact: v2}}}]
    route: [{destination: {host: shop.service.consul, subset: v2}}]
  - match: [{headers: {x-version: {exact: v3}}}]
    route: [{destination: {host: shop.service.consul, subset: v3}}]
  - route: [{destination: {host: shop.service.consul}}]
`
