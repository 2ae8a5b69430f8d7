package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestDubboInNacos shows that unmodified providers in Java and Go in a Nacos appear in istiod, and that istiod has the
// right endpoints while they come, go and are killed, and while Nacos is down and comes back empty.
func TestDubboInNacos(t *testing.T) {
	t.Parallel()
	versions := nacosVersions
	if !isNightly {
		versions = versions[len(versions)-1:] // TestNacosServices has both, and reads them by the same client
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) { dubboInNacos(t, version) })
	}
}

func dubboInNacos(t *testing.T, version string) {
	const hold = 20 * time.Second
	n := fixture.StartNacos(t, version)
	tributary := fixture.StartTributary(t, n.Source("dubbo").With("hold", hold.String()))
	istiod := tributary.StartIstiod(t)

	want := map[string][]string{}
	var java, golang []*fixture.Process
	var ports []string
	for _, d := range []fixture.DubboJava{
		{App: "all-local", Mode: "all", Metadata: "local"},
		{App: "instance-local", Mode: "instance", Metadata: "local", Protocol: "tri"},
		{App: "all-remote", Mode: "all", Metadata: "remote", Group: "g1", Service: "1.0.0", Weight: "30", IPv6: true},
	} {
		d.Version, d.Nacos, d.Ports = "3.3.6", n, []string{fmt.Sprint(fixture.FreePort(t))}
		java, ports = append(java, d.Start(t)), append(ports, d.Ports[0])
		entry, weight := "demo-greetservice", "100"
		if d.Group != "" {
			entry, weight = "demo-greetservice-g1-1-0-0", d.Weight
		}
		if d.Protocol != "" {
			entry += ".tri"
		}
		want[entry] = []string{fmt.Sprintf(":%s %s %s", d.Ports[0], weight, d.App)}
	}
	for _, p := range java {
		fixture.AwaitReady(t, p)
	}
	awaitGreeters(t, istiod, "providers in Java", 4*nacosTime, want)
	for _, d := range []fixture.DubboGo{
		{App: "go-interface", Mode: "interface", Protocol: "tri"},
		{App: "go-instance-local", Mode: "instance", Protocol: "tri"},
		{App: "go-instance-remote", Mode: "instance", Protocol: "dubbo", Remote: true},
		{App: "go-all", Mode: "all", Protocol: "tri", Group: "g1", Version: "1.0.0"},
	} {
		d.Nacos, d.Port = n, fixture.FreePort(t)
		golang = append(golang, d.Start(t))
		entry := "com-acme-greeter"
		if d.Group != "" {
			entry += "-g1-1-0-0"
		}
		if d.Protocol != "dubbo" {
			entry += ".tri"
		}
		want[entry] = append(want[entry], fmt.Sprintf(":%d 100 %s", d.Port, d.App))
		slices.Sort(want[entry])
		// One after the other: those that write the mapping of one interface at the same time end, as the one that was slower is refused.
		awaitGreeters(t, istiod, "a provider in Go", 4*nacosTime, want)
	}

	weighted := func(weight string) {
		t.Helper()
		want["demo-greetservice"] = []string{fmt.Sprintf(":%s %s all-local", ports[0], weight)}
		want["demo-greetservice.tri"] = []string{fmt.Sprintf(":%s %s instance-local", ports[1], weight)}
	}
	// Dubbo 3 registers services with a side in Nacos, and only providers.
	admin := fixture.DubboJava{
		Version: "3.3.6", App: "admin", Nacos: n,
		Rule: "override://0.0.0.0/demo.GreetService?category=configurators&side=provider&dynamic=false&enabled=true&weight=33",
	}.Start(t)
	weighted("33")
	awaitGreeters(t, istiod, "a configurator sets the weight", 4*nacosTime, want)

	// The services of instances are not requested, and there is the mapping: of dubbo-go, as this Nacos may refuse that of
	// Java.
	mapped := fixture.StartTributary(t, n.Source("dubbo").With("registerMode", "instance").With("applications",
		[]string{"go-instance-local"}).With("askProviders", false))
	mapped.WaitFor(t, 2*nacosTime, func() error {
		entries, err := servedEntries(t.Context(), mapped)
		if err == nil && (len(entries) != 1 || len(entries["dubbo/com-acme-greeter.tri"].GetEndpoints()) != 1) {
			err = fmt.Errorf("by the mapping alone: %v: %s", entries, mapped.Ask(t, "status"))
		}
		return err
	})
	require.Contains(t, mapped.Ask(t, "status"), "by the interfaces mapped to them, without group and version, because: ")
	mapped.Kill()

	first := want["demo-greetservice"]
	java[0].Kill()
	want["demo-greetservice"] = []string{}
	awaitGreeters(t, istiod, "one is killed", 2*nacosTime, want)
	java[0].Restart(t)
	want["demo-greetservice"] = first
	awaitGreeters(t, istiod, "it is back", 4*nacosTime, want)

	stays(t, sameGreeters(t.Context(), istiod, "Nacos is killed, and comes back empty", want), func() {
		n.Kill()
		time.Sleep(awayFor())
		n.Restart(t)
		n.AwaitServing(t)
		time.Sleep(hold + 5*time.Second)
	})

	admin.Terminate(t, 20*time.Second)
	weighted("100")
	awaitGreeters(t, istiod, "the configurator goes", 2*nacosTime, want)
	for _, p := range slices.Concat(java, golang) {
		p.Kill()
	}
	for entry := range want {
		want[entry] = []string{}
	}
	awaitGreeters(t, istiod, "all are killed", 2*nacosTime, want)
}
