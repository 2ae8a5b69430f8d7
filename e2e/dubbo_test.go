package e2e

import (
	"cmp"
	"context"
	"fmt"
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

// greeters returns the endpoints that istiod holds of Dubbo services, by the name of their ServiceEntry: ":port weight
// application".
func greeters(ctx context.Context, istiod *fixture.Istiod) (map[string][]string, error) {
	return heldIn(ctx, istiod, "dubbo", func(e *networking.WorkloadEntry, port uint32) string {
		return fmt.Sprintf(":%d %d %s", port, cmp.Or(e.Weight, 1), e.Labels["application"])
	})
}

// awaitGreeters waits until istiod holds exactly these endpoints.
func awaitGreeters(t *testing.T, istiod *fixture.Istiod, step string, timeout time.Duration, want map[string][]string) {
	t.Helper()
	istiod.WaitFor(t, timeout, sameGreeters(t.Context(), istiod, step, want))
}

func sameGreeters(ctx context.Context, istiod *fixture.Istiod, step string, want map[string][]string) func() error {
	return func() error {
		got, err := greeters(ctx, istiod)
		return sameEntries(step, got, want, err)
	}
}

// TestDubboJava shows that providers of every version, mode, protocol and place of metadata appear in istiod,
// unmodified.
func TestDubboJava(t *testing.T) {
	t.Parallel()
	zookeeper := fixture.StartZooKeeper(t)
	tributary := fixture.StartTributary(t, zookeeper.Source("dubbo"))
	istiod := tributary.StartIstiod(t)

	providers := []fixture.DubboJava{
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
	const most = 4 // JVMs at a time, and ZooKeeper's
	for len(providers) > 0 {
		now := providers[:min(most, len(providers))]
		providers = providers[len(now):]
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
	istiod := tributary.StartIstiod(t)
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
	entry, iface string // the name of its ServiceEntry, and of its interface
	start        func(t *testing.T, group, app, registry string, port int) *fixture.Process

	ports                  [2]int
	processOne, processTwo *fixture.Process
}

// endpoint is istiod's endpoint of a provider, the first or the second one.
func (l *life) endpoint(n, weight int) string {
	return fmt.Sprintf(":%d %d %s", l.ports[n], weight, l.app(n))
}

func (l *life) app(n int) string { return []string{"one", "two"}[n] + "-" + l.kind }

// TestDubboLifecycle shows that istiod has the right endpoints at each step of the life of providers and of their
// registry, and loses none meanwhile. The nightly run follows all kinds of providers at the same time, and the registry
// is down for a minute.
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
	if !isNightly {
		dubboLives(t, java("3.3.6"))
		return
	}
	dubboLives(t, java("3.3.6"), java("3.2.19"), java("2.7.23"), golang)
}

// dubboLives leads all of them through the same steps.
func dubboLives(t *testing.T, lives ...*life) {
	const (
		session = 8 * time.Second // of all, whatever they ask for
		start   = 2 * time.Minute // of JVMs on a machine on which much else starts
	)
	hold := byNight(10*time.Second, 40*time.Second) // after an outage of a minute some libraries look for ZooKeeper every half minute
	zookeeper := fixture.StartZooKeeper(t, fmt.Sprintf("minSessionTimeout=%[1]d\nmaxSessionTimeout=%[1]d", session.Milliseconds()))
	ours, theirs := fixture.StartGate(t, zookeeper.Addr), fixture.StartGate(t, zookeeper.Addr)
	tributary := fixture.StartTributary(t, fixture.ConfigSource{
		Name:    "dubbo",
		Address: "zookeeper://" + ours.Addr + "?session=4000",
	}.With("hold", hold.String()))
	istiod := tributary.StartIstiod(t)

	want := func(endpointsOf func(*life) []string) map[string][]string {
		entries := map[string][]string{}
		for _, l := range lives {
			endpoints := append([]string{}, endpointsOf(l)...)
			slices.Sort(endpoints)
			entries[l.entry] = endpoints
		}
		return entries
	}
	holds := func(step string, timeout time.Duration, endpointsOf func(*life) []string) {
		t.Helper()
		began := time.Now()
		awaitGreeters(t, istiod, step, timeout, want(endpointsOf))
		t.Logf("%s: after %v", step, time.Since(began).Round(100*time.Millisecond))
	}
	bothEndpoints := func(l *life) []string { return []string{l.endpoint(0, 100), l.endpoint(1, 100)} }
	first := func(l *life) []string { return []string{l.endpoint(0, 100)} }
	noEndpoint := func(*life) []string { return nil }
	keeps := func(step string, f func()) {
		t.Helper()
		stays(t, sameGreeters(t.Context(), istiod, step, want(bothEndpoints)), f)
	}
	each := func(f func(*life)) {
		for _, l := range lives {
			f(l)
		}
	}

	each(func(l *life) {
		l.ports = [2]int{fixture.FreePort(t), fixture.FreePort(t)}
		l.processOne = l.start(t, l.kind, l.app(0), theirs.Addr, l.ports[0])
	})
	holds("one provider", start, first)
	each(func(l *life) { l.processTwo = l.start(t, l.kind, l.app(1), theirs.Addr, l.ports[1]) })
	holds("two providers", start, bothEndpoints)

	admin := zookeeper.Client(t)
	var rules []string
	each(func(l *life) {
		rules = append(rules, admin.Configurator(t, l.iface, "override://0.0.0.0/"+l.iface+
			"?category=configurators&dynamic=false&enabled=true&group="+l.kind+"&weight=33"))
	})
	holds("a configurator sets the weight", dubboTime, func(l *life) []string { return []string{l.endpoint(0, 33), l.endpoint(1, 33)} })
	for _, rule := range rules {
		admin.Delete(t, rule)
	}
	holds("it is deleted", dubboTime, bothEndpoints)

	time.Sleep(hold) // so that every hold is over: a killed provider goes at once
	each(func(l *life) { l.processTwo.Kill() })
	holds("one is killed", session+dubboTime, first)
	each(func(l *life) { l.processTwo.Restart(t) })
	holds("it is back", start, bothEndpoints)

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
		registered := func() (nodes []string) {
			for _, l := range lives {
				nodes = append(nodes, admin.Children(t, "/dubbo/"+l.iface+"/providers")...)
			}
			return nodes
		}
		zookeeper.WaitFor(t, 30*time.Second, func() error {
			if nodes := registered(); len(nodes) > 0 {
				return fmt.Errorf("sessions are still open: %v", nodes)
			}
			return nil
		})
		ours.Open()
		time.Sleep(2 * time.Second)
		require.Empty(t, registered())
		theirs.Open()
		time.Sleep(hold + 3*time.Second)
	})

	each(func(l *life) { l.processTwo.Terminate(t, 20*time.Second) })
	holds("one stops", session+hold+dubboTime, first)
	each(func(l *life) { l.processOne.Terminate(t, 20*time.Second) })
	holds("the last one stops", session+hold+dubboTime, noEndpoint)
}
