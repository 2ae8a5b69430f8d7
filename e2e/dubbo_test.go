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
		{Version: "3.3.6", App: "instance-local-tri", Mode: "instance", Metadata: "local", Protocol: "tri", Group: "six", IPv6: true},
		{Version: "3.3.6", App: "instance-local-both", Mode: "instance", Metadata: "local", Protocol: "dubbo,tri", Group: "both"},
		{Version: "3.3.6", App: "instance-remote-dubbo", Mode: "instance", Metadata: "remote", Protocol: "dubbo", Weight: "250"},
		{
			Version: "3.2.19", App: "instance-local-dubbo-32", Mode: "instance", Metadata: "local", Protocol: "dubbo", Group: "g1", Service: "1.0.0",
			Weight: "20", IPv6: true,
		},
		{Version: "3.2.19", App: "instance-local-tri-32", Mode: "instance", Metadata: "local", Protocol: "tri", Group: "g1", Service: "1.0.0"},
		{
			Version: "3.2.19", App: "all-remote-tri-32", Mode: "all", Metadata: "remote", Protocol: "tri", Group: "g1", Service: "1.0.0",
			Weight: "30",
		},
		{Version: "2.7.23", App: "interface-27", Protocol: "dubbo", Group: "six", IPv6: true},
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

// life is that of two providers of a kind, which are a service of their own.
type life struct {
	kind         string // which is their group
	entry, iface string // the name of its ServiceEntry, and of what it serves
	start        func(t *testing.T, group, app, registry string, port int) *fixture.Process

	ports    [2]int
	one, two *fixture.Process
}

// at is what istiod holds of a provider, the first or the second one.
func (l *life) at(n, weight int) string {
	return fmt.Sprintf(":%d %d %s", l.ports[n], weight, l.app(n))
}

func (l *life) app(n int) string { return []string{"one", "two"}[n] + "-" + l.kind }

// TestDubboLifecycle shows that istiod holds what is right at each step of the life of providers and of their registry, and that nothing
// is lost meanwhile. By night all kinds of providers are followed, at the same time, and the registry is away for a minute.
func TestDubboLifecycle(t *testing.T) {
	t.Parallel()
	java := func(version string) *life {
		kind := "v" + strings.ReplaceAll(version, ".", "-")
		return &life{
			kind: kind, entry: "demo-greetservice-" + kind, iface: "demo.GreetService",
			start: func(t *testing.T, group, app, registry string, port int) *fixture.Process {
				d := fixture.DubboJava{
					Version: version, App: app, Mode: "all", Metadata: "local", Group: group, Registry: registry,
					Ports: []string{strconv.Itoa(port)},
				}
				return d.Start(t)
			},
		}
	}
	golang := &life{
		kind: "go", entry: "com-acme-greeter-go", iface: "com.acme.Greeter",
		start: func(t *testing.T, group, app, registry string, port int) *fixture.Process {
			return fixture.DubboGo{App: app, Mode: "all", Protocol: "dubbo", Group: group, Registry: registry, Port: port}.Start(t)
		},
	}
	if os.Getenv("E2E_NIGHTLY") == "" {
		dubboLives(t, java("3.3.6"))
		return
	}
	dubboLives(t, java("3.3.6"), java("3.2.19"), java("2.7.23"), golang)
}

// dubboLives leads all of them through the same steps.
func dubboLives(t *testing.T, all ...*life) {
	const (
		session = 8 * time.Second // of all, whatever they ask for
		start   = 2 * time.Minute // of JVMs on a machine on which much else starts
	)
	hold := 10 * time.Second
	if os.Getenv("E2E_NIGHTLY") != "" {
		hold = 40 * time.Second // after an outage of a minute some libraries look for ZooKeeper every half minute
	}
	zookeeper := fixture.StartZooKeeper(t, fmt.Sprintf("minSessionTimeout=%[1]d\nmaxSessionTimeout=%[1]d", session.Milliseconds()))
	ours, theirs := fixture.StartGate(t, zookeeper.Addr), fixture.StartGate(t, zookeeper.Addr)
	tributary := fixture.StartTributary(t, fixture.ConfigSource{
		Name:    "dubbo",
		Address: "zookeeper://" + ours.Addr + "?session=4000",
	}.With("hold", hold.String()))
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)

	want := func(of func(*life) []string) map[string][]string {
		entries := map[string][]string{}
		for _, l := range all {
			endpoints := append([]string{}, of(l)...)
			slices.Sort(endpoints)
			entries[l.entry] = endpoints
		}
		return entries
	}
	holds := func(what string, within time.Duration, of func(*life) []string) {
		t.Helper()
		began := time.Now()
		awaitGreeters(t, istiod, what, within, want(of))
		t.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond))
	}
	both := func(l *life) []string { return []string{l.at(0, 100), l.at(1, 100)} }
	first := func(l *life) []string { return []string{l.at(0, 100)} }
	none := func(*life) []string { return nil }
	keeps := func(what string, f func()) {
		t.Helper()
		stays(t, func() error { return sameGreeters(t.Context(), istiod, what, want(both)) }, f)
	}
	each := func(f func(*life)) {
		for _, l := range all {
			f(l)
		}
	}

	each(func(l *life) {
		l.ports = [2]int{fixture.FreePort(t), fixture.FreePort(t)}
		l.one = l.start(t, l.kind, l.app(0), theirs.Addr, l.ports[0])
	})
	holds("one provider", start, first)
	each(func(l *life) { l.two = l.start(t, l.kind, l.app(1), theirs.Addr, l.ports[1]) })
	holds("two providers", start, both)

	admin := zookeeper.Client(t)
	var rules []string
	each(func(l *life) {
		rules = append(rules, admin.Configurator(t, l.iface, "override://0.0.0.0/"+l.iface+
			"?category=configurators&dynamic=false&enabled=true&group="+l.kind+"&weight=33"))
	})
	holds("a configurator sets the weight", dubboTime, func(l *life) []string { return []string{l.at(0, 33), l.at(1, 33)} })
	for _, rule := range rules {
		admin.Delete(t, rule)
	}
	holds("it is deleted", dubboTime, both)

	time.Sleep(hold) // so that nothing is in doubt any more: what is killed goes at once
	each(func(l *life) { l.two.Kill() })
	holds("one is killed", session+dubboTime, first)
	each(func(l *life) { l.two.Restart(t) })
	holds("it is back", start, both)

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
		registered := func() (left []string) {
			for _, l := range all {
				left = append(left, admin.Children(t, "/dubbo/"+l.iface+"/providers")...)
			}
			return left
		}
		zookeeper.WaitFor(t, 30*time.Second, func() error {
			if left := registered(); len(left) > 0 {
				return fmt.Errorf("sessions have not ended: %v", left)
			}
			return nil
		})
		ours.Open()
		time.Sleep(2 * time.Second)
		require.Empty(t, registered())
		theirs.Open()
		time.Sleep(hold + 3*time.Second)
	})

	each(func(l *life) { l.two.Terminate(t, 20*time.Second) })
	holds("one stops", session+hold+dubboTime, first)
	each(func(l *life) { l.one.Terminate(t, 20*time.Second) })
	holds("the last one stops", session+hold+dubboTime, none)
}
