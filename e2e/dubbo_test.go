package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
)

// dubboTime is within which a change in ZooKeeper shows in istiod. It takes 0.2 s on an idle machine.
const dubboTime = 10 * time.Second

// greeters returns the endpoints that istiod holds of demo.GreetService, by the name of their ServiceEntry: ":port weight application".
func greeters(ctx context.Context, istiod *fixture.Istiod) (map[string][]string, error) {
	all, err := istiod.Configs(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for key, object := range all {
		se, ok := object.Message().(*networking.ServiceEntry)
		if !ok || !strings.HasPrefix(key.Name, "demo-greetservice") {
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
