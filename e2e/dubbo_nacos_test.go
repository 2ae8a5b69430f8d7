package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"tributary/e2e/fixture"
)

// TestDubboInNacos shows that providers in Java and Go that register in a Nacos appear in istiod, unmodified, and that istiod holds what is right while
// they come, go and are killed, and while Nacos is away and comes back empty.
func TestDubboInNacos(t *testing.T) {
	t.Parallel()
	versions := nacosVersions
	if os.Getenv("E2E_NIGHTLY") == "" {
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
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)

	want := map[string][]string{}
	var java, golang []*fixture.Process
	for _, d := range []fixture.DubboJava{
		{App: "all-local", Mode: "all", Metadata: "local"},
		{App: "instance-local", Mode: "instance", Metadata: "local", Protocol: "tri"},
		{App: "all-remote", Mode: "all", Metadata: "remote", Group: "g1", Service: "1.0.0", Weight: "30"},
	} {
		d.Version, d.Nacos, d.Ports = "3.3.6", n, []string{fmt.Sprint(fixture.FreePort(t))}
		java = append(java, d.Start(t))
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

	first := want["demo-greetservice"]
	java[0].Kill()
	want["demo-greetservice"] = []string{}
	awaitGreeters(t, istiod, "one is killed", 2*nacosTime, want)
	java[0].Restart(t)
	want["demo-greetservice"] = first
	awaitGreeters(t, istiod, "it is back", 4*nacosTime, want)

	stays(t, func() error { return sameGreeters(t.Context(), istiod, "Nacos is killed, and comes back empty", want) }, func() {
		n.Kill()
		time.Sleep(awayFor())
		n.Restart(t)
		n.AwaitServing(t)
		time.Sleep(hold + 5*time.Second)
	})

	for _, p := range slices.Concat(java, golang) {
		p.Kill()
	}
	for entry := range want {
		want[entry] = []string{}
	}
	awaitGreeters(t, istiod, "all are killed", 2*nacosTime, want)
}
