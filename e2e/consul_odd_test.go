package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestConsulWithoutALeader leaves one of three servers: it answers stale questions as if nothing were the matter.
func TestConsulWithoutALeader(t *testing.T) {
	t.Parallel()
	servers := fixture.StartConsulServers(t, 3, fixture.ConsulOptions{})
	consul := servers[0]
	consul.RegisterAt(t, "far", "127.2.0.1", &api.AgentService{ID: "web-1", Service: "web", Port: 9080})
	tributary := fixture.StartTributary(t, consul.Source("consul"), fixture.ConfigSource{Name: "rules", Address: "consul-kv://" + consul.HTTP + "/mesh"})
	awaitState(t, tributary, "consul", "healthy", false)
	awaitState(t, tributary, "rules", "healthy", false)
	servers[1].Kill()
	servers[2].Kill()
	for _, name := range []string{"consul", "rules"} {
		tributary.WaitFor(t, time.Minute, func() error {
			if s := source(t, tributary, name); s.State != "unreachable" || !strings.Contains(s.Message, "leader") {
				return fmt.Errorf("the source is %v", s)
			}
			return nil
		})
		t.Log(source(t, tributary, name))
	}
	require.Zero(t, tributary.Metric(t, "tributary_consul_known_leader", ""))
	servers[1].Restart(t)
	servers[2].Restart(t)
	awaitState(t, tributary, "consul", "healthy", false)
	awaitState(t, tributary, "rules", "healthy", false)
	require.Equal(t, 1, tributary.Metric(t, "tributary_consul_known_leader", ""))
}

// TestConsulNames registers services whose names HTTP cannot express. A first start goes on without them.
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
	var all []struct {
		Quarantined []struct{ Group, Reason string }
	}
	require.NoError(t, fixture.GetJSON(t.Context(), tributary.URL("/debug/sources"), &all))
	var names []string
	for _, q := range all[0].Quarantined {
		names = append(names, q.Group)
		t.Log(q.Reason)
	}
	slices.Sort(odd)
	slices.Sort(names)
	require.Equal(t, odd, names)
}
