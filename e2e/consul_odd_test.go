package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// TestConsulWithoutALeader leaves one of three servers: it answers stale queries as a healthy server does.
func TestConsulWithoutALeader(t *testing.T) {
	t.Parallel()
	servers := fixture.StartConsulServers(t, 3, fixture.ConsulOptions{})
	consul := servers[0]
	consul.RegisterAt(t, "far", "127.2.0.1", &api.AgentService{ID: "web-1", Service: "web", Port: 9080})
	tributary := fixture.StartTributary(t, consul.Source("consul"),
		fixture.ConfigSource{Name: "rules", Address: "consul-kv://" + consul.HTTP + "/mesh"})
	awaitState(t, tributary, "consul", "healthy", false)
	awaitState(t, tributary, "rules", "healthy", false)
	servers[1].Kill()
	servers[2].Kill()
	for _, name := range []string{"consul", "rules"} {
		awaitMessage(t, tributary, name, "unreachable", "leader")
	}
	require.Zero(t, tributary.Metric(t, "tributary_consul_known_leader", ""), "of neither source")
	require.NotZero(t, tributary.Metric(t, "tributary_consul_last_contact_seconds", `source="consul"`))
	servers[1].Restart(t)
	servers[2].Restart(t)
	awaitState(t, tributary, "consul", "healthy", false)
	awaitState(t, tributary, "rules", "healthy", false)
	for _, name := range []string{"consul", "rules"} {
		tributary.Await(t, func() error {
			if tributary.Metric(t, "tributary_consul_known_leader", `source="`+name+`"`) != 1 {
				return fmt.Errorf("%s has no leader", name)
			}
			return nil
		})
	}
}

// TestConsul_PartialRights has tokens that see part of the catalog, as Consul notes in each response. An instance
// that disappears from the visible part is gone.
func TestConsul_PartialRights(t *testing.T) {
	t.Parallel()
	const management = "e2e00000-0000-4000-8000-0000000000dd"
	consul := fixture.StartConsul(t, fixture.ConsulOptions{ManagementToken: management})
	acl := consul.API().ACL()
	_, _, err := acl.PolicyCreate(&api.ACLPolicy{
		Name:  "mine",
		Rules: `node_prefix "mine" { policy = "read" } service_prefix "" { policy = "read" } key_prefix "mesh/" { policy = "read" }`,
	}, nil)
	require.NoError(t, err)
	token, _, err := acl.TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{Name: "mine"}}}, nil)
	require.NoError(t, err)
	file := testutil.WriteFile(t, t.TempDir(), "token", token.SecretID)
	for i, node := range []string{"mine-0", "mine-1", "theirs"} {
		consul.RegisterAt(t, node, fmt.Sprintf("127.2.0.%d", i+1), &api.AgentService{ID: fmt.Sprint("web-", i), Service: "web", Port: 9080 + i})
	}
	key := func(verb api.KVOp, name string) {
		ok, res, _, err := consul.API().Txn().Txn(api.TxnOps{{KV: &api.KVTxnOp{
			Verb: verb, Key: "mesh/" + name,
			Value: []byte(virtualService(strings.Trim(name, "/\t"), "v1")),
		}}}, nil)
		require.NoError(t, err)
		require.True(t, ok, "%v", res)
	}
	odd := []string{"//a", "\tb"} // a path cannot express them
	for _, name := range append(odd, "c", "d") {
		key(api.KVSet, name)
	}
	tributary := fixture.StartTributary(t, consul.Source("consul").With("tokenFile", file).With("grace", "1s"),
		fixture.ConfigSource{Name: "rules", Address: "consul-kv://" + consul.HTTP + "/mesh"}.With("tokenFile", file))
	awaitServed := func(want ...string) {
		t.Helper()
		tributary.WaitFor(t, 30*time.Second, func() error {
			entries, err := fixture.ReadServed(t.Context(), tributary.XDS, "networking.istio.io/v1/ServiceEntry")
			if err != nil {
				return err
			}
			rules, err := fixture.ReadServed(t.Context(), tributary.XDS, "networking.istio.io/v1/VirtualService")
			if err != nil {
				return err
			}
			var got []string
			for port := 9080; port < 9083; port++ {
				if strings.Contains(entries["consul/web"].Body, fmt.Sprint("127.2.0.", port-9079)) {
					got = append(got, fmt.Sprint(port))
				}
			}
			if got = append(got, slices.Sorted(maps.Keys(rules))...); !slices.Equal(want, got) {
				return fmt.Errorf("%v are served", got)
			}
			return nil
		})
		awaitState(t, tributary, "consul", "healthy", false)
		awaitState(t, tributary, "rules", "healthy", false)
	}
	awaitServed("9080", "9081", "shop/a", "shop/b", "shop/c", "shop/d")
	_, err = consul.API().Catalog().Deregister(&api.CatalogDeregistration{Node: "mine-1", ServiceID: "web-1"}, nil)
	require.NoError(t, err)
	for _, name := range odd {
		key(api.KVDelete, name)
	}
	key(api.KVDelete, "d")
	awaitServed("9080", "shop/c")
}

// TestConsulNames registers services with names that HTTP cannot express. A first start leaves them out.
func TestConsulNames(t *testing.T) {
	t.Parallel()
	odd := []string{"a\u00a0b", "a\tb", "a\nb", ".", "..", "a//b", "/x"}
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	for i, name := range append(slices.Clone(odd), "web") {
		consul.RegisterAt(t, "far", "127.2.0.1", &api.AgentService{ID: fmt.Sprint("id-", i), Service: name, Port: 9080})
	}
	tributary := fixture.StartTributary(t, consul.Source("consul").With("aliases", "none"))
	tributary.AwaitReady(t)
	awaitState(t, tributary, "consul", "healthy", false)
	served, err := fixture.ReadServed(t.Context(), tributary.XDS, "networking.istio.io/v1/ServiceEntry")
	require.NoError(t, err)
	require.Len(t, served, 1)
	require.Contains(t, served, "consul/web")
	var sources []struct {
		Quarantined []struct{ Group, Reason string }
	}
	require.NoError(t, fixture.GetJSON(t.Context(), tributary.URL("/debug/sources"), &sources))
	var names []string
	for _, q := range sources[0].Quarantined {
		names = append(names, q.Group)
		t.Log(q.Reason)
	}
	slices.Sort(odd)
	slices.Sort(names)
	require.Equal(t, odd, names)
}
