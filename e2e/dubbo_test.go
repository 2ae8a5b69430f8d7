package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
)

// dubboTime is within which a change in ZooKeeper shows in istiod. It takes 0.2 s on an idle machine.
const dubboTime = 10 * time.Second

// greeters returns the endpoints that istiod holds of Dubbo services, by the name of their ServiceEntry: ":port weight application".
func greeters(ctx context.Context, istiod *fixture.Istiod) (map[string][]string, error) {
	all, err := istiod.Configs(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for key, object := range all {
		se, ok := object.Message().(*networking.ServiceEntry)
		if !ok || key.Namespace != "dubbo" {
			continue
		}
		endpoints := []string{}
		for _, e := range se.Endpoints {
			for _, port := range e.Ports {
				endpoints = append(endpoints, fmt.Sprintf(":%d %d %s", port, cmp.Or(e.Weight, 1), e.Labels["application"]))
			}
		}
		slices.Sort(endpoints)
		found[key.Name] = endpoints
	}
	return found, nil
}

// awaitGreeters waits until istiod holds exactly these endpoints.
func awaitGreeters(t *testing.T, istiod *fixture.Istiod, what string, within time.Duration, want map[string][]string) {
	t.Helper()
	istiod.WaitFor(t, within, func() error { return sameGreeters(t.Context(), istiod, what, want) })
}

func sameGreeters(ctx context.Context, istiod *fixture.Istiod, what string, want map[string][]string) error {
	got, err := greeters(ctx, istiod)
	if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
		err = fmt.Errorf("%s: istiod holds\n%v, want\n%v", what, got, want)
	}
	return err
}

// TestDubboJava shows that providers of every version, mode, protocol and place of metadata appear in istiod, unmodified.
func TestDubboJava(t *testing.T) {
	t.Parallel()
	zookeeper := fixture.StartZooKeeper(t)
	tributary := fixture.StartTributary(t, zookeeper.Source("dubbo"))
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)

	all := []fixture.DubboJava{
		{Version: "3.3.6", App: "all-local-dubbo", Mode: "all", Metadata: "local", Protocol: "dubbo"},
		{Version: "3.3.6", App: "instance-local-tri", Mode: "instance", Metadata: "local", Protocol: "tri"},
		{Version: "3.3.6", App: "instance-local-both", Mode: "instance", Metadata: "local", Protocol: "dubbo,tri", Group: "both"},
		{Version: "3.3.6", App: "instance-remote-dubbo", Mode: "instance", Metadata: "remote", Protocol: "dubbo", Weight: "250"},
		{Version: "3.2.19", App: "instance-local-dubbo-32", Mode: "instance", Metadata: "local", Protocol: "dubbo", Group: "g1", Service: "1.0.0", Weight: "20"},
		{Version: "3.2.19", App: "instance-local-tri-32", Mode: "instance", Metadata: "local", Protocol: "tri", Group: "g1", Service: "1.0.0"},
		{Version: "3.2.19", App: "all-remote-tri-32", Mode: "all", Metadata: "remote", Protocol: "tri", Group: "g1", Service: "1.0.0", Weight: "30"},
		{Version: "2.7.23", App: "interface-27", Protocol: "dubbo"},
	}
	want := map[string][]string{}
	var running []*fixture.Process
	const most = 4 // JVMs at a time, besides ZooKeeper's
	for len(all) > 0 {
		now := all[:min(most, len(all))]
		all = all[len(now):]
		running = nil
		for _, d := range now {
			d.Registry = zookeeper.Addr
			protocols := strings.Split(d.Protocol, ",")
			for range protocols {
				d.Ports = append(d.Ports, fmt.Sprint(fixture.FreePort(t)))
			}
			running = append(running, d.Start(t))
			name := "demo-greetservice"
			if d.Group != "" {
				name += "-" + d.Group
			}
			if d.Service != "" {
				name += "-" + strings.ReplaceAll(d.Service, ".", "-")
			}
			for i, protocol := range protocols {
				entry := name
				if protocol != "dubbo" {
					entry += "." + protocol
				}
				want[entry] = append(want[entry], fmt.Sprintf(":%s %s %s", d.Ports[i], cmp.Or(d.Weight, "100"), d.App))
				slices.Sort(want[entry])
			}
		}
		for _, p := range running {
			fixture.AwaitReady(t, p)
		}
		awaitGreeters(t, istiod, "providers that start", 20*time.Second, want)
		for _, p := range running {
			p.Terminate(t, 20*time.Second)
		}
		for entry := range want {
			want[entry] = []string{}
		}
		awaitGreeters(t, istiod, "the last ones stopped", dubboTime, want)
	}
}

// TestDubboGo shows the same of providers in Go.
func TestDubboGo(t *testing.T) {
	t.Parallel()
	zookeeper := fixture.StartZooKeeper(t)
	tributary := fixture.StartTributary(t, zookeeper.Source("dubbo"))
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
	want := map[string][]string{}
	var running []*fixture.Process
	for _, d := range []fixture.DubboGo{
		{App: "interface-tri", Mode: "interface", Protocol: "tri"},
		{App: "interface-dubbo", Mode: "interface", Protocol: "dubbo", Group: "g1", Version: "1.0.0"},
		{App: "instance-local-tri", Mode: "instance", Protocol: "tri", Group: "g1", Version: "1.0.0"},
		{App: "instance-local-dubbo", Mode: "instance", Protocol: "dubbo"},
		{App: "instance-remote-tri", Mode: "instance", Protocol: "tri", Remote: true},
		{App: "instance-remote-dubbo", Mode: "instance", Protocol: "dubbo", Group: "g2", Remote: true},
		{App: "all-local-tri", Mode: "all", Protocol: "tri"},
		{App: "all-remote-dubbo", Mode: "all", Protocol: "dubbo", Version: "2.0.0", Remote: true},
	} {
		d.Registry, d.Port = zookeeper.Addr, fixture.FreePort(t)
		running = append(running, d.Start(t))
		entry := "com-acme-greeter"
		if d.Group != "" {
			entry += "-" + d.Group
		}
		if d.Version != "" {
			entry += "-" + strings.ReplaceAll(d.Version, ".", "-")
		}
		if d.Protocol != "dubbo" {
			entry += "." + d.Protocol
		}
		want[entry] = append(want[entry], fmt.Sprintf(":%d 100 %s", d.Port, d.App))
		slices.Sort(want[entry])
	}
	awaitGreeters(t, istiod, "providers that start", 3*dubboTime, want)
	for _, p := range running {
		p.Kill()
	}
	for entry := range want {
		want[entry] = []string{}
	}
	awaitGreeters(t, istiod, "their sessions have ended", 9*dubboTime, want)
}

// lifeOf is a kind of provider, of which TestDubboLifecycle follows two.
type lifeOf struct {
	entry, iface string // the name of its ServiceEntry, and of what it serves
	start        func(t *testing.T, app, registry string, port int) *fixture.Process
}

// TestDubboLifecycle shows that istiod holds what is right at each step of the life of providers and of their registry, and that nothing
// is lost meanwhile. By night all kinds of providers are followed, and the registry is away for a minute.
func TestDubboLifecycle(t *testing.T) {
	t.Parallel()
	java := func(version string) lifeOf {
		return lifeOf{"demo-greetservice", "demo.GreetService", func(t *testing.T, app, registry string, port int) *fixture.Process {
			d := fixture.DubboJava{Version: version, App: app, Mode: "all", Metadata: "local", Registry: registry, Ports: []string{strconv.Itoa(port)}}
			return d.Start(t)
		}}
	}
	golang := lifeOf{"com-acme-greeter", "com.acme.Greeter", func(t *testing.T, app, registry string, port int) *fixture.Process {
		return fixture.DubboGo{App: app, Mode: "all", Protocol: "dubbo", Registry: registry, Port: port}.Start(t)
	}}
	for _, c := range []struct {
		name string
		lifeOf
	}{{"java 3.3.6", java("3.3.6")}, {"java 3.2.19", java("3.2.19")}, {"java 2.7.23", java("2.7.23")}, {"dubbo-go 3.3.2", golang}} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "java 3.3.6" && os.Getenv("E2E_NIGHTLY") == "" {
				t.Skip("E2E_NIGHTLY=1 runs it")
			}
			t.Parallel()
			dubboLife(t, c.lifeOf)
		})
	}
}

func dubboLife(t *testing.T, of lifeOf) {
	const (
		session = 8 * time.Second // of all, whatever they ask for
		start   = 2 * time.Minute // of a JVM on a machine on which much else starts
	)
	hold := 10 * time.Second
	if os.Getenv("E2E_NIGHTLY") != "" {
		hold = 40 * time.Second // after an outage of a minute some libraries look for ZooKeeper every half minute
	}
	zookeeper := fixture.StartZooKeeper(t, fmt.Sprintf("minSessionTimeout=%[1]d\nmaxSessionTimeout=%[1]d", session.Milliseconds()))
	ours, theirs := fixture.StartGate(t, zookeeper.Addr), fixture.StartGate(t, zookeeper.Addr)
	tributary := fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: "zookeeper://" + ours.Addr + "?session=4000"}.With("hold", hold.String()))
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
	port1, port2 := fixture.FreePort(t), fixture.FreePort(t)
	at := func(port, weight int, app string) string { return fmt.Sprintf(":%d %d %s", port, weight, app) }
	want := func(endpoints ...string) map[string][]string {
		if endpoints == nil {
			endpoints = []string{}
		}
		slices.Sort(endpoints)
		return map[string][]string{of.entry: endpoints}
	}
	holds := func(what string, within time.Duration, endpoints ...string) {
		t.Helper()
		awaitGreeters(t, istiod, what, within, want(endpoints...))
	}
	both := []string{at(port1, 100, "one"), at(port2, 100, "two")}
	keeps := func(what string, f func()) {
		t.Helper()
		stays(t, func() error { return sameGreeters(t.Context(), istiod, what, want(both...)) }, f)
	}

	one := of.start(t, "one", theirs.Addr, port1)
	holds("one provider", start, at(port1, 100, "one"))
	two := of.start(t, "two", theirs.Addr, port2)
	holds("two providers", start, both...)

	admin := zookeeper.Client(t)
	rule := admin.Configurator(t, of.iface, "override://0.0.0.0/"+of.iface+"?category=configurators&dynamic=false&enabled=true&weight=33")
	holds("a configurator sets the weight", dubboTime, at(port1, 33, "one"), at(port2, 33, "two"))
	admin.Delete(t, rule)
	holds("it is deleted", dubboTime, both...)

	time.Sleep(hold) // so that nothing is in doubt any more: what is killed goes at once
	two.Kill()
	holds("one is killed", session+dubboTime, at(port1, 100, "one"))
	two.Restart(t)
	holds("it is back", start, both...)

	time.Sleep(hold) // some end if they cannot register at both levels, and the first one shows already
	keeps("ZooKeeper is killed", func() {
		zookeeper.Kill()
		time.Sleep(awayFor())
		zookeeper.Restart(t)
		zookeeper.AwaitServing(t)
		time.Sleep(hold + 5*time.Second)
	})
	keeps("all sessions expire in a partition", func() {
		ours.Shut()
		theirs.Shut()
		providers := "/dubbo/" + of.iface + "/providers"
		zookeeper.WaitFor(t, 30*time.Second, func() error {
			if left := admin.Children(t, providers); len(left) > 0 {
				return fmt.Errorf("sessions have not ended: %v", left)
			}
			return nil
		})
		ours.Open()
		time.Sleep(2 * time.Second)
		require.Empty(t, admin.Children(t, providers))
		theirs.Open()
		time.Sleep(hold + 3*time.Second)
	})

	two.Terminate(t, 20*time.Second)
	holds("one stops", session+hold+dubboTime, at(port1, 100, "one"))
	one.Terminate(t, 20*time.Second)
	holds("the last one stops", session+hold+dubboTime)
}
