package e2e

import (
	"fmt"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
)

// TestDubboSidecars shows that istiod has a Sidecar for each application that calls services, with the hosts that it
// calls, and drops hosts without calls after a while; and a DestinationRule for each service.
func TestDubboSidecars(t *testing.T) {
	t.Parallel()
	zookeeper := fixture.StartZooKeeper(t)
	tributary := fixture.StartTributary(t, zookeeper.Source("dubbo").
		With("sidecars", map[string]any{"namespace": "shop", "hosts": []string{"./*"}, "grace": "5s"}).With("subsets", "version").With("warmUp",
		"10m"))
	istiod := tributary.StartIstiod(t)
	holds := func(step string, want map[string][]string) {
		t.Helper()
		istiod.WaitFor(t, 6*dubboTime, func() error {
			configs, err := istiod.Configs(t.Context())
			got := map[string][]string{}
			for key, object := range configs {
				switch of := object.Message().(type) {
				case *networking.Sidecar:
					got[key.Name] = of.Egress[0].Hosts
				case *networking.DestinationRule:
					subsets := []string{fmt.Sprint(of.TrafficPolicy.LoadBalancer.Warmup.Duration.AsDuration())}
					for _, s := range of.Subsets {
						subsets = append(subsets, s.Name)
					}
					got[key.Name] = subsets
				}
			}
			if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
				err = fmt.Errorf("%s: istiod holds\n%v, want\n%v", step, got, want)
			}
			return err
		})
	}
	fixture.DubboGo{
		App: "provider", Mode: "all", Protocol: "tri", Group: "g1", Version: "1.0.0", Registry: zookeeper.Addr,
		Port: fixture.FreePort(t),
	}.Start(t)
	fixture.DubboJava{Version: "2.7.23", App: "old-caller", Registry: zookeeper.Addr, Consumer: true, Group: "g2", Service: "2.0.0"}.Start(t)
	java := fixture.DubboJava{Version: "3.3.6", App: "java-caller", Mode: "all", Registry: zookeeper.Addr, Consumer: true}.Start(t)
	rule := []string{"10m0s", "1-0-0"}
	holds("callers, and a service that is not there yet", map[string][]string{
		"com-acme-greeter-g1-1-0-0": rule, "old-caller": {"./*"}, "java-caller": {"./*"},
	})
	fixture.DubboJava{
		Version: "2.7.23", App: "java-provider", Registry: zookeeper.Addr,
		Ports: []string{fmt.Sprint(fixture.FreePort(t))},
	}.Start(t)
	want := map[string][]string{
		"com-acme-greeter-g1-1-0-0": rule, "demo-greetservice": rule[:1],
		"old-caller": {"./*"}, "java-caller": {"./*", "dubbo/demo.greetservice"},
	}
	holds("it is there", want)
	java.Kill()
	delete(want, "java-caller")
	holds("one calls no more", want)
}
