package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
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

// never fails if istiod did not hold exactly this at some moment while f ran.
func never(t *testing.T, istiod *fixture.Istiod, what string, f func(), want map[string][]string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	lost := make(chan error, 1)
	go func() {
		var first error
		for ctx.Err() == nil {
			if err := sameGreeters(ctx, istiod, what, want); err != nil && ctx.Err() == nil && first == nil {
				first = err
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
		lost <- first
	}()
	f()
	cancel()
	require.NoError(t, <-lost)
}

// TestDubboLifecycle shows that istiod holds what is right at each step of the life of providers and of their registry, and that nothing
// is lost meanwhile.
func TestDubboLifecycle(t *testing.T) {
	t.Parallel()
	const hold = 10 * time.Second
	zookeeper := fixture.StartZooKeeper(t)
	ours, theirs := fixture.StartGate(t, zookeeper.Addr), fixture.StartGate(t, zookeeper.Addr)
	tributary := fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: "zookeeper://" + ours.Addr + "?session=4000"}.With("hold", hold.String()))
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
	provider := func(app string) (*fixture.Process, string) {
		d := fixture.DubboJava{Version: "3.3.6", App: app, Mode: "all", Metadata: "local", Registry: theirs.Addr, Ports: []string{fmt.Sprint(fixture.FreePort(t))}}
		return d.Start(t), d.Ports[0]
	}
	one, port1 := provider("one")
	two, port2 := provider("two")
	fixture.AwaitReady(t, one)
	fixture.AwaitReady(t, two)
	at := func(port string, weight int, app string) string { return fmt.Sprintf(":%s %d %s", port, weight, app) }
	holds := func(what string, within time.Duration, endpoints ...string) {
		t.Helper()
		slices.Sort(endpoints)
		awaitGreeters(t, istiod, what, within, map[string][]string{"demo-greetservice": endpoints})
	}
	both := func(what string, within time.Duration) {
		t.Helper()
		holds(what, within, at(port1, 100, "one"), at(port2, 100, "two"))
	}
	both("two providers", 2*dubboTime)

	never := func(what string, f func(), want ...string) {
		t.Helper()
		slices.Sort(want)
		never(t, istiod, what, f, map[string][]string{"demo-greetservice": want})
	}
	all := []string{at(port1, 100, "one"), at(port2, 100, "two")}

	admin := zookeeper.Client(t)
	rule := admin.Configurator(t, "demo.GreetService", "override://0.0.0.0/demo.GreetService?category=configurators&dynamic=false&enabled=true&weight=33")
	holds("a configurator sets the weight", dubboTime, at(port1, 33, "one"), at(port2, 33, "two"))
	admin.Delete(t, rule)
	both("it is deleted", dubboTime)

	time.Sleep(hold) // so that nothing is in doubt any more: what is killed goes at once
	two.Kill()
	holds("one is killed", 3*time.Second+dubboTime, at(port1, 100, "one"))
	two.Restart(t)
	both("it is back", 3*dubboTime)

	away := 10 * time.Second
	if os.Getenv("E2E_NIGHTLY") != "" {
		away = time.Minute
	}
	never("ZooKeeper is killed", func() {
		zookeeper.Kill()
		time.Sleep(away)
		zookeeper.Restart(t)
		zookeeper.AwaitServing(t)
		time.Sleep(hold + 5*time.Second)
	}, all...)

	never("all sessions expire in a partition", func() {
		ours.Shut()
		theirs.Shut()
		time.Sleep(8 * time.Second)
		require.Empty(t, admin.Children(t, "/services/one"), "the session of the provider has ended")
		ours.Open()
		time.Sleep(2 * time.Second)
		require.Empty(t, admin.Children(t, "/services/one"))
		theirs.Open()
		time.Sleep(hold + 3*time.Second)
	}, all...)

	two.Terminate(t, 20*time.Second)
	holds("one stops", hold+dubboTime, at(port1, 100, "one"))
	one.Terminate(t, 20*time.Second)
	holds("the last one stops", hold+dubboTime)
}
