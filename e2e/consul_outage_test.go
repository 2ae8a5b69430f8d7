package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// outage is the time that a Consul is down. The tested effects take less than a second, but a user's outage takes
// longer.
func outage() time.Duration {
	return byNight(3*time.Second, time.Minute)
}

// TestConsulStopped shows that an outage of Consul removes no object.
func TestConsulStopped(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	consul.Register(t, instance("web-1", "127.0.0.1", 9080), api.HealthPassing)
	consul.Register(t, instance("web-2", "127.0.0.2", 9080), api.HealthPassing)
	consul.Register(t, instance("api-1", "127.0.0.1", 9090), api.HealthPassing)
	tributary := fixture.StartTributary(t, consul.Source("consul"))
	istiod := tributary.StartIstiod(t)
	endpointOne, endpointTwo := endpoint("127.0.0.1 9080 weight: 1"), endpoint("127.0.0.2 9080 weight: 1")
	want := httpEntry("web", 9080, endpointOne, endpointTwo) + "---\n" + httpEntry("api", 9090, endpoint("127.0.0.1 9090 weight: 1"))
	istiod.AwaitText(t, want)

	watch := guard(t, istiod, fixture.ParseObjects(t, want))
	consul.Kill()
	awaitState(t, tributary, "consul", "unreachable", true)
	time.Sleep(outage()) // The test is about the length of the outage.
	consul.Restart(t)
	consul.AwaitLeader(t)
	awaitState(t, tributary, "consul", "healthy", false)
	t.Logf("every object was there at %d looks", watch.stop(t))

	// Later changes arrive as before.
	require.NoError(t, consul.API().Agent().ServiceDeregister("web-2"))
	shows(t, istiod, "web", "an instance goes after the restart", httpEntry("web", 9080, endpointOne))
}

// TestConsulPortAfterRestart shows that clients find a service at the port at which they found it before tributary was
// started again, though no instance has that port any more.
func TestConsulPortAfterRestart(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	s := instance("web-1", "127.0.0.1", 9080)
	consul.Register(t, s, api.HealthPassing)
	tributary := fixture.StartTributary(t, consul.Source("consul"))
	istiod := tributary.StartIstiod(t)
	shows(t, istiod, "web", "at first", httpEntry("web", 9080, endpoint("127.0.0.1 9080 weight: 1")))
	changed := time.Now()
	s.Port = 9090
	consul.Register(t, s, api.HealthPassing)
	want := httpEntry("web", 9080, endpoint("127.0.0.1 9090 weight: 1"))
	shows(t, istiod, "web", "the instance has another port", want)
	awaitStored(t, tributary, "consul", changed)

	watch := guard(t, istiod, fixture.ParseObjects(t, want))
	tributary.Crash(t)
	tributary.AwaitReady(t)
	awaitState(t, tributary, "consul", "healthy", false)
	// The next change arrives, so istiod is connected again and has read all earlier changes.
	consul.Register(t, instance("api-1", "127.0.0.1", 9091), api.HealthPassing)
	istiod.AwaitText(t, want+"---\n"+httpEntry("api", 9091, endpoint("127.0.0.1 9091 weight: 1")))
	watch.stop(t)
}

// TestConsulWiped shows that a Consul that comes back empty does not empty the mesh: its agents have to register their
// services again. Services that no agent registers are removed after a while.
func TestConsulWiped(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	const hold = 15 * time.Second
	register := func() {
		consul.Register(t, instance("web-1", "127.0.0.1", 9080), api.HealthPassing)
		consul.Register(t, instance("api-1", "127.0.0.1", 9090), api.HealthPassing)
	}
	register()
	consul.Register(t, instance("old-1", "127.0.0.1", 9099), api.HealthPassing)
	tributary := fixture.StartTributary(t, consul.Source("consul").With("grace", consulGrace.String()).With("resetHold", hold.String()))
	istiod := tributary.StartIstiod(t)
	back := httpEntry("web", 9080, endpoint("127.0.0.1 9080 weight: 1")) + "---\n" +
		httpEntry("api", 9090, endpoint("127.0.0.1 9090 weight: 1"))
	want := back + "---\n" + httpEntry("old", 9099, endpoint("127.0.0.1 9099 weight: 1"))
	istiod.AwaitText(t, want)

	// More indexes than the new Consul will have for a while, so that its restart is visible.
	for i := range 30 {
		consul.RegisterAt(t, "filler", fmt.Sprintf("127.0.1.%d", i+1),
			&api.AgentService{
				ID: "old-filler", Service: "old-filler", Kind: api.ServiceKindConnectProxy, Port: 1,
				Proxy: &api.AgentServiceConnectProxyConfig{DestinationServiceName: "old"},
			})
	}
	watch := guard(t, istiod, fixture.ParseObjects(t, want))
	consul.Wipe(t)
	awaitMessage(t, tributary, "consul", "", "stay until")
	watch.stop(t)

	watch = guard(t, istiod, fixture.ParseObjects(t, back))
	register()
	istiod.WaitFor(t, hold+15*time.Second, func() error {
		got, err := istiod.Configs(t.Context())
		if err != nil {
			return err
		}
		return fixture.ParseObjects(t, back).Diff(got)
	})
	watch.stop(t)
	awaitState(t, tributary, "consul", "healthy", false)
}

// TestConsulToken shows that a token that is deleted, restricted or lost removes no object: Consul then lists services
// without instances.
func TestConsulToken(t *testing.T) {
	t.Parallel()
	const management, accessor, secret = "e2e00000-0000-4000-8000-0000000000aa", "e2e00000-0000-4000-8000-0000000000bb",
		"e2e00000-0000-4000-8000-0000000000cc"
	consul := fixture.StartConsul(t, fixture.ConsulOptions{ManagementToken: management})
	acl := consul.API().ACL()
	policy, _, err := acl.PolicyCreate(&api.ACLPolicy{
		Name:  "tributary",
		Rules: `node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`,
	}, nil)
	require.NoError(t, err)
	restore := func() {
		_, _, err := acl.TokenCreate(&api.ACLToken{
			AccessorID: accessor, SecretID: secret,
			Policies: []*api.ACLTokenPolicyLink{{Name: "tributary"}},
		}, nil)
		require.NoError(t, err)
	}
	restore()
	consul.Register(t, instance("web-1", "127.0.0.1", 9080), api.HealthPassing)
	consul.Register(t, instance("api-1", "127.0.0.1", 9090), api.HealthPassing)

	file := testutil.WriteFile(t, t.TempDir(), "token", secret+"\n")
	tributary := fixture.StartTributary(t, consul.Source("consul").With("tokenFile", file).With("resync", "2s").With("grace",
		consulGrace.String()))
	istiod := tributary.StartIstiod(t)
	want := httpEntry("web", 9080, endpoint("127.0.0.1 9080 weight: 1")) + "---\n" +
		httpEntry("api", 9090, endpoint("127.0.0.1 9090 weight: 1"))
	istiod.AwaitText(t, want)

	watch := guard(t, istiod, fixture.ParseObjects(t, want))
	_, err = acl.TokenDelete(accessor, nil)
	require.NoError(t, err)
	awaitState(t, tributary, "consul", "denied", true)
	require.NotContains(t, source(t, tributary, "consul").Message, secret)
	t.Log(source(t, tributary, "consul"))
	time.Sleep(outage()) // Longer than the grace of a service that has gone, and than a full compare.
	restore()
	awaitState(t, tributary, "consul", "healthy", false)
	t.Logf("every object was there at %d looks", watch.stop(t))

	consul.SetStatus(t, "web-1", api.HealthCritical)
	shows(t, istiod, "web", "a check after the token is back", httpEntry("web", 9080))
	consul.SetStatus(t, "web-1", api.HealthPassing)
	shows(t, istiod, "web", "and its end", httpEntry("web", 9080, endpoint("127.0.0.1 9080 weight: 1")))

	// A token that loses part of its rights: open watches get no response at all.
	watch = guard(t, istiod, fixture.ParseObjects(t, want))
	narrow := func(rules string) {
		_, _, err := acl.PolicyUpdate(&api.ACLPolicy{ID: policy.ID, Name: policy.Name, Rules: rules}, nil)
		require.NoError(t, err)
	}
	narrow(`node_prefix "" { policy = "read" } service "api" { policy = "read" }`)
	awaitMessage(t, tributary, "consul", "degraded", "token", "web")
	time.Sleep(outage())
	narrow(policy.Rules)
	awaitState(t, tributary, "consul", "healthy", false)
	t.Logf("every object was there at %d looks", watch.stop(t))

	// A lost token. Consul does not tell anonymous clients that it filters its responses.
	watch = guard(t, istiod, fixture.ParseObjects(t, want))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	awaitMessage(t, tributary, "consul", "denied", "no token is sent")
	tributary.Crash(t)
	tributary.AwaitAlive(t)
	awaitMessage(t, tributary, "consul", "denied", "no token is sent")
	require.NoError(t, os.WriteFile(file, []byte(secret), 0o600))
	awaitState(t, tributary, "consul", "healthy", false)
	t.Logf("every object was there at %d looks", watch.stop(t))
}
