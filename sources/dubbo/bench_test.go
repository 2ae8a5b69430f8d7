package dubbo

import (
	"fmt"
	"testing"

	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// BenchmarkKnows has 2,000 interfaces of 5 providers, each of an application of its own, whose instances have metadata that cannot be had:
// of each it is asked whether anything is known of what it serves, as at each try to find out.
func BenchmarkKnows(b *testing.B) {
	const interfaces, of = 2000, 5
	r := newRun(sourceOf(b, zktest.New(), quickly()), nil)
	var names []string
	for n := range interfaces {
		names = append(names, fmt.Sprintf("com.acme.I%d", n))
	}
	r.Parts(partsOf(names...), nil)
	var instances []*instance
	for n, name := range names {
		var all []registry.Registration
		for p := range of {
			host := fmt.Sprintf("10.%d.%d.%d", n/250, n%250, p+1)
			app := fmt.Sprintf("app%d", n)
			u, err := provider.ParseURL(fmt.Sprintf("dubbo://%s:20880/%s?application=%s", host, name, app))
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, registry.Registration{URL: u})
			instances = append(instances, &instance{
				application: app, readResult: readResult{succeeded: true},
				Instance: provider.Instance{Application: app, Host: host, Port: 20880},
			})
		}
		r.Registered(registry.Part{Interface: name, Category: registry.Providers, Node: name}, all, nil)
	}
	for b.Loop() {
		for _, i := range instances {
			if !r.hasServices(i) {
				b.Fatal("it is not known")
			}
		}
	}
}
