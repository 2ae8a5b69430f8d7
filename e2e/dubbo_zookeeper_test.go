package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestDubboEnsemble shows that istiod has the right endpoints while the servers of a ZooKeeper ensemble are restarted
// one after the other, and while most of them are down, and that it sees a provider that comes or goes meanwhile.
func TestDubboEnsemble(t *testing.T) {
	t.Parallel()
	const hold = 10 * time.Second
	ensemble := fixture.StartZooKeepers(t, 3, "maxSessionTimeout=6000")
	var servers []string
	for _, z := range ensemble {
		servers = append(servers, z.Addr)
	}
	address := "zookeeper://" + servers[0] + "?session=6000&backup=" + strings.Join(servers[1:], ",")
	tributary := fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: address}.With("hold", hold.String()))
	istiod := tributary.StartIstiod(t)
	provider := func(app string) (*fixture.Process, string) {
		port := fixture.FreePort(t)
		return fixture.DubboGo{App: app, Mode: "all", Protocol: "dubbo", Registry: strings.Join(servers, ","), Port: port}.Start(t),
			fmt.Sprintf(":%d 100 %s", port, app)
	}
	_, first := provider("a")
	second, secondEndpoint := provider("b")
	want := func(endpoints ...string) map[string][]string {
		return map[string][]string{"com-acme-greeter": endpoints}
	}
	bothEndpoints := want(first, secondEndpoint)
	if secondEndpoint < first {
		bothEndpoints = want(secondEndpoint, first)
	}
	awaitGreeters(t, istiod, "two providers", 4*dubboTime, bothEndpoints)

	restart := func(members ...*fixture.ZooKeeper) {
		for _, z := range members {
			z.Kill()
		}
		time.Sleep(4 * time.Second)
		for _, z := range members {
			z.Restart(t)
		}
		for _, z := range members {
			z.AwaitServing(t)
		}
		time.Sleep(4 * time.Second)
	}
	stays(t, sameGreeters(t.Context(), istiod, "the servers are restarted one by one", bothEndpoints), func() {
		for _, z := range ensemble {
			restart(z)
		}
	})
	stays(t, sameGreeters(t.Context(), istiod, "most servers are away", bothEndpoints), func() {
		restart(ensemble[:2]...)
		time.Sleep(hold)
	})
	ensemble[0].Kill()
	second.Terminate(t, 20*time.Second)
	awaitGreeters(t, istiod, "one stops while a server is away", 6*time.Second+hold+2*dubboTime, want(first))
}

// TestDubboZooKeeperTLS shows that tributary reads a real ZooKeeper over TLS, with a user, below a root and a group of
// its own, and reports wrong users as denied.
func TestDubboZooKeeperTLS(t *testing.T) {
	t.Parallel()
	zookeeper := fixture.StartZooKeeperTLS(t)
	admin := zookeeper.Client(t)
	admin.Own(t, "bob", "s3cret")
	node := func(host, iface string) string {
		return "/shared/ours/" + iface + "/providers/" + url.QueryEscape("dubbo://"+host+":20880/"+iface+"?application=a&interface="+iface)
	}
	admin.Put(t, node("10.0.0.5", "com.acme.Demo"), "")
	admin.Put(t, "/shared/ours/app/10.0.0.6:20880",
		`{"name":"app","address":"10.0.0.6","port":20880,"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":20880,`+
			`\"protocol\":\"dubbo\"}]","dubbo.metadata.revision":"r1"}}}`)
	admin.Put(t, "/shared/ours/metadata/app/r1",
		`{"app":"app","revision":"r1","services":{"x":{"name":"com.acme.Demo","protocol":"dubbo","port":20880,"path":"com.acme.Demo",`+
			`"params":{}}}}`)

	tls := map[string]any{"mode": "SIMPLE", "caCertificates": zookeeper.CA}
	tributary := fixture.StartTributary(t, fixture.ConfigSource{
		Name:    "dubbo",
		Address: "zookeeper://bob:s3cret@" + zookeeper.TLS + "/shared?group=ours&session=4000",
	}.
		With("tlsSettings", tls))
	istiod := tributary.StartIstiod(t)
	holds := func(step string, endpoints ...string) {
		t.Helper()
		istiod.WaitFor(t, dubboTime, func() error {
			return sameHeld(t.Context(), istiod, "dubbo", step, map[string][]string{"com-acme-demo": endpoints})
		})
	}
	holds("one of each level", "10.0.0.5:20880 100", "10.0.0.6:20880 100")
	admin.Put(t, node("10.0.0.7", "com.acme.Demo"), "")
	holds("one more", "10.0.0.5:20880 100", "10.0.0.6:20880 100", "10.0.0.7:20880 100")

	for name, c := range map[string]struct{ user, message string }{
		"no user":      {"", "access denied"},
		"another user": {"eve:x@", "access denied"},
	} {
		unauthorized := fixture.StartTributary(t, fixture.ConfigSource{
			Name:    "dubbo",
			Address: "zookeeper://" + c.user + zookeeper.TLS + "/shared?group=ours&session=4000",
		}.
			With("tlsSettings", tls))
		unauthorized.Await(t, func() error {
			status := unauthorized.Ask(t, "status")
			if !strings.Contains(status, "denied") || !strings.Contains(status, c.message) {
				return fmt.Errorf("%s: %s", name, status)
			}
			return nil
		})
		unauthorized.Kill()
	}
	untrusting := fixture.StartTributary(t, fixture.ConfigSource{
		Name:    "dubbo",
		Address: "zookeeper://bob:s3cret@" + zookeeper.TLS + "/shared?group=ours&session=4000",
	}.
		With("tlsSettings", map[string]any{"mode": "SIMPLE"}))
	untrusting.Await(t, func() error {
		status := untrusting.Ask(t, "status")
		if !strings.Contains(status, "unreachable") || strings.Contains(status, "s3cret") {
			return fmt.Errorf("without the authority of the certificate: %s", status)
		}
		return nil
	})
	require.NotContains(t, tributary.Output(), "s3cret")
}
