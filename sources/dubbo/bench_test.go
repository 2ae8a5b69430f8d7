package dubbo

import (
	"fmt"
	"testing"

	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// BenchmarkKnows has 2,000 interfaces of 5 providers, each in its application, and their instances have no readable
// metadata. It checks every instance for services at interface level, as each metadata read does.
func BenchmarkKnows(b *testing.B) {
	const interfaces, providersEach = 2000, 5
	run := newRun(sourceOf(b, zktest.New(), quickly()), nil)
	var names []string
	for n := range interfaces {
		names = append(names, fmt.Sprintf("com.acme.I%d", n))
	}
	run.Parts(partsOf(names...), nil)
	var instances []*instance
	for n, name := range names {
		var registrations []backend.Registration
		for p := range providersEach {
			host := fmt.Sprintf("10.%d.%d.%d", n/250, n%250, p+1)
			app := fmt.Sprintf("app%d", n)
			url, err := provider.ParseURL(fmt.Sprintf("dubbo://%s:20880/%s?application=%s", host, name, app))
			if err != nil {
				b.Fatal(err)
			}
			registrations = append(registrations, backend.Registration{URL: url})
			instances = append(instances, &instance{
				application: app, readResult: readResult{succeeded: true},
				Instance: provider.Instance{Application: app, Host: host, Port: 20880},
			})
		}
		run.Registered(backend.Part{Interface: name, Category: backend.Providers, Node: name}, registrations, nil)
	}
	for b.Loop() {
		for _, i := range instances {
			if !run.hasServices(i) {
				b.Fatal("it is not known")
			}
		}
	}
}
