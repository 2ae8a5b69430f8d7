package dubbo

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/nacos/nacostest"
)

// withSidecars are settings with which applications have Sidecars, which keep a host for grace.
func withSidecars(grace time.Duration) Settings {
	s := patiently()
	s.Mapping.Sidecars, s.SidecarGrace = &mapping.Sidecars{Hosts: []string{"./*"}}, grace
	return s
}

// consumer is the path of a consumer.
func consumer(iface, application, params string) string {
	return "/dubbo/" + iface + "/consumers/" + url.QueryEscape("consumer://10.0.1.1/"+iface+"?application="+application+
		"&category=consumers&interface="+iface+"&side=consumer"+params)
}

func TestSidecarsOfConsumers(t *testing.T) {
	server := zktest.New()
	register(server, "x.a 10.0.0.1", "x.a 10.0.0.2 group=g1&version=1")
	server.Put(consumer("x.a", "shop", ""), leaf)
	b := start(t, server, withSidecars(time.Hour))
	services := []string{"x-a 10.0.0.1:20880*100", "x-a-g1-1 10.0.0.2:20880*100"}
	b.awaitAll(append(services, "shop sees ./* dubbo/x.a")...)
	server.Put(consumer("x.a", "shop", "&group=g1&version=1"), leaf)
	b.awaitAll(append(services, "shop sees ./* dubbo/x.a dubbo/x.a-g1-1")...)
	server.Put(consumer("x.b", "cart", ""), leaf)
	b.awaitAll(append(services, "cart sees ./*", "shop sees ./* dubbo/x.a dubbo/x.a-g1-1")...)
	register(server, "x.b 10.0.0.3")
	services = append(services, "x-b 10.0.0.3:20880*100")
	b.awaitAll(append(services, "cart sees ./* dubbo/x.b", "shop sees ./* dubbo/x.a dubbo/x.a-g1-1")...)

	server.Delete(consumer("x.a", "shop", ""))
	register(server, "x.b 10.0.0.4") // a mark
	services[2] += " 10.0.0.4:20880*100"
	b.awaitAll(append(services, "cart sees ./* dubbo/x.b", "shop sees ./* dubbo/x.a dubbo/x.a-g1-1")...)
	b.restart(withSidecars(time.Hour), func() { server.Delete("/dubbo/x.b/consumers") })
	b.AwaitState(sources.Healthy)
	require.Equal(t, append(services, "cart sees ./* dubbo/x.b", "shop sees ./* dubbo/x.a dubbo/x.a-g1-1"), b.show(), "it outlives a restart")
	b.restart(withSidecars(20*time.Millisecond), func() {})
	b.awaitAll(append(services, "shop sees ./* dubbo/x.a-g1-1")...)
	b.restart(patiently(), func() {})
	b.awaitAll(services...)
}

func TestSidecars_OffByDefault(t *testing.T) {
	s := zktest.New()
	register(s, "x.a 10.0.0.1")
	s.Put(consumer("x.a", "shop", ""), leaf)
	b := start(t, s, patiently())
	b.awaitAll("x-a 10.0.0.1:20880*100")
	require.Equal(t, 1, b.table.Snapshot().Len())
	require.ErrorContains(t, (&Settings{RegisterMode: "instance", Mapping: mapping.Options{Sidecars: &mapping.Sidecars{}}}).complete(),
		"sidecars: ")
}

// TestDeniedConsumers_DoNotBlockProviders denies the read of an interface's consumers.
func TestDeniedConsumers_DoNotBlockProviders(t *testing.T) {
	server := zktest.New()
	register(server, "x.a 10.0.0.1")
	server.Put(consumer("x.a", "shop", ""), leaf)
	server.Deny("/dubbo/x.a/consumers")
	b := start(t, server, withSidecars(time.Hour))
	b.awaitAll("x-a 10.0.0.1:20880*100")
	server.Allow("/dubbo/x.a/consumers")
	b.awaitAll("x-a 10.0.0.1:20880*100", "shop sees ./* dubbo/x.a")
}

func TestSidecarsOfConsumersInNacos(t *testing.T) {
	server := nacostest.Start(t)
	server.Put("DEFAULT_GROUP", "providers:a.B::", "1", nacostest.Instance("10.0.0.5", 20880,
		map[string]string{"category": "providers", "protocol": "dubbo", "path": "a.B"}))
	server.Put("DEFAULT_GROUP", "consumers:a.B::", "1", nacostest.Instance("10.0.1.5", 0,
		map[string]string{"category": "consumers", "protocol": "consumer", "path": "a.B", "application": "shop", "side": "consumer"}))
	b := startInNacos(t, server, withSidecars(time.Hour))
	b.awaitAll("a-b 10.0.0.5:20880*100", "shop sees ./* dubbo/a.b")
}

func TestRulesOfServices(t *testing.T) {
	server := zktest.New()
	register(server, "x.a 10.0.0.1 version=1")
	settings := patiently()
	settings.Mapping.HostTemplate, settings.Mapping.Subsets = "{interface}", "version"
	b := start(t, server, settings)
	b.awaitAll("x-a has 1", "x-a 10.0.0.1:20880*100")
	register(server, "x.a 10.0.0.2 version=2")
	b.awaitAll("x-a has 1 2", "x-a 10.0.0.1:20880*100 10.0.0.2:20880*100")
}
