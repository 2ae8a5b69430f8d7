package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestConsul_FewerQueriesThanServices has more services than blocking queries. Changes of services without a query
// become visible by the other queries.
func TestConsul_FewerQueriesThanServices(t *testing.T) {
	t.Parallel()
	const services = 40
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	nodeOf := func(n int) string { return fmt.Sprint("node-", n%4) }
	register := func(n, instance, port int, status, address string, meta map[string]string) {
		t.Helper()
		name, id := fmt.Sprintf("svc-%02d", n), fmt.Sprintf("svc-%02d-%d", n, instance)
		_, err := consul.API().Catalog().Register(&api.CatalogRegistration{
			Node: nodeOf(n), Address: address, Service: &api.AgentService{ID: id, Service: name, Port: port, Meta: meta},
			Check: &api.AgentCheck{Node: nodeOf(n), CheckID: "check:" + id, ServiceID: id, Status: status},
		}, nil)
		require.NoError(t, err)
	}
	for n := range services {
		register(n, 1, 9080, api.HealthPassing, "127.2.0.1", nil)
	}
	// One place for the names, three for the witnesses, and eight for services.
	tributary := fixture.StartTributary(t, consul.Source("consul").With("maxConcurrentWatches", 12).With("aliases", "none").With("resync",
		"10m").With("grace", "1s"))
	tributary.AwaitReady(t)
	awaitState(t, tributary, "consul", "healthy", false)
	shown := func(n int, step string, parts ...string) {
		t.Helper()
		began := time.Now()
		tributary.Await(t, func() error {
			entries, err := fixture.ReadServed(t.Context(), tributary.XDS, "networking.istio.io/v1/ServiceEntry")
			if err != nil {
				return err
			}
			body := entries[fmt.Sprintf("consul/svc-%02d", n)].Body
			for _, p := range parts {
				if absent, no := strings.CutPrefix(p, "no "); no && strings.Contains(body, absent) || !no && !strings.Contains(body, p) {
					return fmt.Errorf("svc-%02d is not as it should be (%s): %q", n, p, body)
				}
			}
			return nil
		})
		t.Logf("svc-%02d, %s: %s", n, step, time.Since(began).Round(10*time.Millisecond))
	}
	for n := range services {
		shown(n, "at first", "127.2.0.1")
	}
	require.Equal(t, 8, tributary.Metric(t, "tributary_consul_watches", ""))
	tributary.WaitFor(t, time.Minute, func() error { // until the second reads, which the start of the witnesses caused, are done
		before := tributary.Metric(t, "tributary_consul_reads_total", "")
		time.Sleep(2 * time.Second)
		if now := tributary.Metric(t, "tributary_consul_reads_total", ""); now != before {
			return fmt.Errorf("%d reads, and %d", before, now)
		}
		return nil
	})
	for _, n := range []int{17, 39} { // of 40 services eight have a place
		register(n, 1, 9080, api.HealthCritical, "127.2.0.1", nil)
		shown(n, "a check that fails", "no 127.2.0.1")
		register(n, 1, 9080, api.HealthPassing, "127.2.0.1", nil)
		shown(n, "and recovers", "127.2.0.1")
		register(n, 1, 9080, api.HealthPassing, "127.2.0.1", map[string]string{"version": "of-meta"})
		shown(n, "another meta", "of-meta")
		_, err := consul.API().Catalog().Register(&api.CatalogRegistration{Node: nodeOf(n), Address: "127.2.0.1", Service: &api.AgentService{
			ID: fmt.Sprintf("svc-%02d-2", n), Service: fmt.Sprintf("svc-%02d", n), Port: 9080, Address: "127.2.0.2",
		}}, nil)
		require.NoError(t, err)
		shown(n, "one more", "127.2.0.1", "127.2.0.2")
		_, err = consul.API().Catalog().Deregister(&api.CatalogDeregistration{Node: nodeOf(n), ServiceID: fmt.Sprintf("svc-%02d-2", n)}, nil)
		require.NoError(t, err)
		shown(n, "one less", "127.2.0.1", "no 127.2.0.2")
	}
	_, err := consul.API().Catalog().Register(&api.CatalogRegistration{Node: nodeOf(1), Address: "127.2.0.9", SkipNodeUpdate: false}, nil)
	require.NoError(t, err)
	for n := 1; n < services; n += 4 {
		shown(n, "another address of its node", "127.2.0.9")
	}
	_, err = consul.API().Catalog().Register(&api.CatalogRegistration{
		Node: nodeOf(2), Address: "127.2.0.1", SkipNodeUpdate: true,
		Check: &api.AgentCheck{
			Node: nodeOf(2), CheckID: "serfHealth", Status: api.HealthCritical,
		},
	}, nil)
	require.NoError(t, err)
	for n := 2; n < services; n += 4 {
		shown(n, "a check of its node", "no 127.2.0.1")
	}
}
