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

// TestDubboEnsemble shows that istiod holds what is right while the servers of an ensemble of ZooKeeper are restarted one after the other,
// and while most of them are away, and that a provider that comes or goes meanwhile is seen.
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
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
	provider := func(app string) (*fixture.Process, string) {
		port := fixture.FreePort(t)
		return fixture.DubboGo{App: app, Mode: "all", Protocol: "dubbo", Registry: strings.Join(servers, ","), Port: port}.Start(t),
			fmt.Sprintf(":%d 100 %s", port, app)
	}
	_, first := provider("a")
	second, other := provider("b")
	want := func(endpoints ...string) map[string][]string {
		return map[string][]string{"com-acme-greeter": endpoints}
	}
	both := want(first, other)
	if other < first {
		both = want(other, first)
	}
	awaitGreeters(t, istiod, "two providers", 4*dubboTime, both)

	restart := func(all ...*fixture.ZooKeeper) {
		for _, z := range all {
			z.Kill()
		}
		time.Sleep(4 * time.Second)
		for _, z := range all {
			z.Restart(t)
		}
		for _, z := range all {
			z.AwaitServing(t)
		}
		time.Sleep(4 * time.Second)
	}
	stays(t, func() error { return sameGreeters(t.Context(), istiod, "the servers are restarted one by one", both) }, func() {
		for _, z := range ensemble {
			restart(z)
		}
	})
	stays(t, func() error { return sameGreeters(t.Context(), istiod, "most servers are away", both) }, func() {
		restart(ensemble[:2]...)
		time.Sleep(hold)
	})
	ensemble[0].Kill()
	second.Terminate(t, 20*time.Second)
	awaitGreeters(t, istiod, "one stops while a server is away", 6*time.Second+hold+2*dubboTime, want(first))
}

// TestDubboZooKeeperTLS shows that a real ZooKeeper is read over TLS, by a user, below a root and of a group of its own; and that who is
// not that user is told so.
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
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
	holds := func(what string, endpoints ...string) {
		t.Helper()
		istiod.WaitFor(t, dubboTime, func() error {
			return sameHeld(t.Context(), istiod, "dubbo", what, map[string][]string{"com-acme-demo": endpoints})
		})
	}
	holds("one of each level", "10.0.0.5:20880 100", "10.0.0.6:20880 100")
	admin.Put(t, node("10.0.0.7", "com.acme.Demo"), "")
	holds("one more", "10.0.0.5:20880 100", "10.0.0.6:20880 100", "10.0.0.7:20880 100")

	for what, c := range map[string]struct{ user, message string }{
		"nobody":        {"", "access denied"},
		"somebody else": {"eve:x@", "access denied"},
	} {
		other := fixture.StartTributary(t, fixture.ConfigSource{
			Name:    "dubbo",
			Address: "zookeeper://" + c.user + zookeeper.TLS + "/shared?group=ours&session=4000",
		}.
			With("tlsSettings", tls))
		other.WaitFor(t, 20*time.Second, func() error {
			status := other.Ask(t, "status")
			if !strings.Contains(status, "denied") || !strings.Contains(status, c.message) {
				return fmt.Errorf("%s: %s", what, status)
			}
			return nil
		})
		other.Kill()
	}
	untrusting := fixture.StartTributary(t, fixture.ConfigSource{
		Name:    "dubbo",
		Address: "zookeeper://bob:s3cret@" + zookeeper.TLS + "/shared?group=ours&session=4000",
	}.
		With("tlsSettings", map[string]any{"mode": "SIMPLE"}))
	untrusting.WaitFor(t, 20*time.Second, func() error {
		status := untrusting.Ask(t, "status")
		if !strings.Contains(status, "unreachable") || strings.Contains(status, "s3cret") {
			return fmt.Errorf("who does not know the certificate: %s", status)
		}
		return nil
	})
	require.NotContains(t, tributary.Output(), "s3cret")
}
