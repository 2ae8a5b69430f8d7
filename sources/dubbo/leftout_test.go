package dubbo

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/consul/consultest"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/nacos/nacostest"
)

// awaitLeftOut waits until exactly that is left out, in any order.
func (b *rig) awaitLeftOut(want ...string) {
	b.T.Helper()
	slices.Sort(want)
	b.Await("providers that are left out are named", func() bool {
		texts := []string{}
		for _, l := range b.Status().LeftOut {
			texts = append(texts, l.String())
		}
		slices.Sort(texts)
		return slices.Equal(texts, want)
	})
}

// TestConsulFailingInstances_AreLeftOut has instances with failing checks at both levels, until the checks pass again.
func TestConsulFailingInstances_AreLeftOut(t *testing.T) {
	server := consultest.New(t)
	server.Set("shop:r1", metadataOfShop)
	const over = "TTL expired"
	odd := inService("com.acme.Demo 10.0.0.9 critical 1.0.0", over)
	odd.Service.Meta["url"] = "nothing"
	server.Put("com.acme.Demo", inService("com.acme.Demo 10.0.0.5 passing 1.0.0"),
		inService("com.acme.Demo 10.0.0.6 critical 1.0.0", over), odd)
	passing := ofShop("1 10.0.0.7 r1 passing")
	server.Put("shop", passing, ofShop("2 10.0.0.8 r1 critical", over))
	b := startInConsul(t, server, patiently())
	b.AwaitSync()
	b.awaitLeftOut(
		"10.0.0.6:20880 of com.acme.Demo:1.0.0 (checks are critical)",
		`a provider of com.acme.Demo (checks are critical; instance "10.0.0.91.0.0" on node "n1": "nothing": want `+
			`protocol://host:port/path?parameters)`,
		"10.0.0.8:50051 of shop (checks are critical)",
	)
	b.awaitAll("com-acme-demo-1-0-0 10.0.0.5:20880*100", "com-acme-demo-g1-1-0-0.tri 10.0.0.7:50051*100")
	require.Empty(t, b.Status().Warnings)
	server.Put("shop", passing, ofShop("2 10.0.0.8 r1 passing"))
	server.Put("com.acme.Demo", inService("com.acme.Demo 10.0.0.5 passing 1.0.0"))
	b.awaitAll("com-acme-demo-1-0-0 10.0.0.5:20880*100", "com-acme-demo-g1-1-0-0.tri 10.0.0.7:50051*100 10.0.0.8:50051*100")
	b.awaitLeftOut()
}

// TestNacosUnhealthyInstances_AreLeftOut has instances of both levels.
func TestNacosUnhealthyInstances_AreLeftOut(t *testing.T) {
	server := nacostest.Start(t)
	server.Config("app", "r1", `{"app":"app","revision":"r1","services":{"b:dubbo":{"name":"b","protocol":"dubbo","port":20880,"path":"b"}}}`)
	ofA := map[string]string{"category": "providers", "protocol": "dubbo", "path": "a", "interface": "a"}
	ofApp := map[string]string{"dubbo.endpoints": `[{"port":20880,"protocol":"dubbo"}]`, "dubbo.metadata.revision": "r1"}
	put := func(service, ip string, healthy bool, metadata map[string]string) {
		i := nacostest.Instance(ip, 20880, metadata)
		i["healthy"] = healthy
		server.Put("DEFAULT_GROUP", service, ip, i)
	}
	put("providers:a::", "10.0.0.1", true, ofA)
	put("providers:a::", "10.0.0.2", false, ofA)
	put("app", "10.0.0.3", true, ofApp)
	put("app", "10.0.0.4", false, ofApp)
	b := startInNacos(t, server, patiently())
	b.awaitAll("a 10.0.0.1:20880*100", "b 10.0.0.3:20880*100")
	b.awaitLeftOut("10.0.0.2:20880 of a (it is unhealthy)", "10.0.0.4:20880 of app (it is unhealthy)")
}

// TestInstancesWithoutServices_AreLeftOut has an instance that cannot be read, one without metadata, and one with a
// service that cannot be called or read.
func TestInstancesWithoutServices_AreLeftOut(t *testing.T) {
	t.Parallel()
	s := consultest.New(t)
	s.Set("shop:r1", `{"app":"shop","revision":"r1","services":{"a":{"name":"com.acme.Demo","protocol":"tri"},"b":{"name":"com.acme.Bad",`+
		`"protocol":"tri","port":99999},"y":{"name":"com.acme.Weird"}}}`)
	odd := ofShop("odd 10.0.0.6 r1 passing")
	odd.Service.Tags = []string{"dubbo.endpoints=nonsense"}
	s.Put("shop", ofShop("1 10.0.0.5 r1 passing"), odd, ofShop("2 10.0.0.7 r2 passing"))
	rig := startInConsul(t, s, patiently())
	rig.awaitAll("com-acme-demo.tri 10.0.0.5:50051*100")
	rig.awaitLeftOut(
		"10.0.0.5:50051 of shop (tri com.acme.Bad at 10.0.0.5: 99999 is no port to call)",
		`10.0.0.6:50051 of shop (dubbo.endpoints: want a list in JSON of protocols and ports, got "nonsense")`,
		"10.0.0.7:50051 of shop (metadata cannot be read: metadata report: not found)",
		`revision "r1" of shop (service "y" of "com.acme.Weird": it has no name and protocol)`,
	)
	s.Set("shop:r2", metadataOfShop)
	rig.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.7:50051*100", "com-acme-demo.tri 10.0.0.5:50051*100")
}

// TestConsulInstance_NotReplacedAtSharedAddress has others registered at the host and port of one: something else, and
// something newer that cannot be read.
func TestConsulInstance_NotReplacedAtSharedAddress(t *testing.T) {
	server := consultest.New(t)
	server.Set("shop:r1", metadataOfShop)
	odd := ofShop("odd 10.0.0.5 r1 passing")
	odd.Service.Tags = []string{"dubbo.endpoints=nonsense", "timestamp=1995373296142"}
	spring := consultest.Instance("shop", "spring", "10.0.0.5", 50051)
	server.Put("shop", ofShop("good 10.0.0.5 r1 passing"), odd, spring)
	b := startInConsul(t, server, patiently())
	const served = "com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100"
	b.awaitAll(served)
	b.awaitLeftOut(`10.0.0.5:50051 "odd" of shop (dubbo.endpoints: want a list in JSON of protocols and ports, got "nonsense")`)
	server.Put("shop", ofShop("good 10.0.0.5 r1 critical"), spring) // its agent restarted
	server.Put("com.acme.Other", inService("com.acme.Other 10.0.0.9 passing"))
	b.awaitAll(served, "com-acme-other 10.0.0.9:20880*100")
	b.awaitLeftOut()
}

// The agent of a new instance has no heartbeat of it yet.
func TestConsulInstance_AddedAfterHeartbeat(t *testing.T) {
	server := consultest.New(t)
	server.Set("shop:r1", metadataOfShop)
	server.Put("shop", ofShop("good 10.0.0.5 r1 passing"))
	b := startInConsul(t, server, patiently())
	const served = "com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100"
	b.awaitAll(served)
	server.Put("shop", ofShop("good 10.0.0.5 r1 passing"), ofShop("new 10.0.0.6 r1 critical"))
	server.Put("com.acme.Other", inService("com.acme.Other 10.0.0.9 passing"))
	b.awaitAll(served, "com-acme-other 10.0.0.9:20880*100")
	server.Put("shop", ofShop("good 10.0.0.5 r1 passing"), ofShop("new 10.0.0.6 r1 passing"))
	b.awaitAll(served+" 10.0.0.6:50051*100", "com-acme-other 10.0.0.9:20880*100")
}

// TestNacosInstance_NotReplacedAtSharedAddress has the same there: instances of another cluster at the ip and port of
// one.
func TestNacosInstance_NotReplacedAtSharedAddress(t *testing.T) {
	server := nacostest.Start(t)
	server.Config("shop", "r1", metadataOfShop)
	server.Put("DEFAULT_GROUP", "shop", "1", nacostest.Instance("10.0.0.5", 50051, map[string]string{
		"dubbo.endpoints": `[{"port":50051,"protocol":"tri"}]`, "dubbo.metadata.revision": "r1", "timestamp": "1795373296142",
	}))
	for cluster, meta := range map[string]map[string]string{
		"spring": {"preserved.register.source": "SPRING_CLOUD"}, "odd": {"dubbo.endpoints": "nonsense"},
	} {
		instance := nacostest.Instance("10.0.0.5", 50051, meta)
		instance["clusterName"] = cluster
		server.Put("DEFAULT_GROUP", "shop", cluster, instance)
	}
	b := startInNacos(t, server, patiently())
	b.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100")
	b.awaitLeftOut(`10.0.0.5:50051 "odd" of shop (dubbo.endpoints: want a list in JSON of protocols and ports, got "nonsense")`)
}

// TestLeftOut_CountsProvidersWithCommonPrefix has malformed providers with long names that differ only near the end.
func TestLeftOut_CountsProvidersWithCommonPrefix(t *testing.T) {
	server := zktest.New()
	register(server, "com.acme.Demo 10.0.0.1")
	for n := range 3 {
		server.Put(node("com.acme.Demo", "10.0.0."+strings.Repeat("x", 120)+strconv.Itoa(n)+":99999", "", 1), leaf)
	}
	b := start(t, server, patiently())
	b.Await("each is left out", func() bool { return len(b.Status().LeftOut) == 3 })
}
