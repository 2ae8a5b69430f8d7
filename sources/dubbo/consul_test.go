package dubbo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/consul/consultest"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// inConsul is a source of the Consul of a test.
func inConsul(t testing.TB, server *consultest.Server, settings Settings, change ...func(*Source)) *Source {
	t.Helper()
	settings.Mapping.VIPs = "none"
	reading := consul.Settings{ResetHold: time.Hour, Grace: time.Millisecond}
	source, err := NewConsul("consul://"+server.Address()+"?kind=dubbo", reading, settings)
	require.NoError(t, err)
	source.asker = nil
	for _, c := range change {
		c(source)
	}
	return source
}

// startInConsul runs a source on a Consul of the test.
func startInConsul(t *testing.T, server *consultest.Server, settings Settings, change ...func(*Source)) *rig {
	t.Helper()
	return start(t, zktest.New(), settings, func(s *Source) { *s = *inConsul(t, server, settings, change...) })
}

// inService is an instance of an interface, as Java registers it.
func inService(iface, host, version, status string) *api.ServiceEntry {
	e := consultest.Instance(iface, host+version, host, 20880)
	e.Service.Tags = []string{"dubbo"}
	e.Service.Meta = map[string]string{"url": "dubbo://" + host + ":20880/" + iface + "?application=a&interface=" + iface + "&version=" +
		version}
	return checked(e, status, "")
}

// checked is an instance with the check that Dubbo has it have.
func checked(serviceEntry *api.ServiceEntry, status, output string) *api.ServiceEntry {
	id := serviceEntry.Service.ID
	serviceEntry.Checks = append(serviceEntry.Checks[:1:1], &api.HealthCheck{
		Node: "n1", ServiceID: id, CheckID: "service:" + id, Type: "ttl", Status: status,
		Output: output,
	})
	return serviceEntry
}

// ofShop is an instance of an application, as Dubbo 3.3.6 for Java registered it by its extension for Consul, 3.2.0.
func ofShop(id, host string, port int, revision, status, output string) *api.ServiceEntry {
	serviceEntry := consultest.Instance("shop", id, host, port)
	serviceEntry.Service.Tags = []string{
		fmt.Sprintf(`dubbo.metadata-service.url-params={"prefer.serialization":"hessian2,fastjson2","version":"2.0.0","dubbo":"2.0.2",`+
			`"release":"3.3.6","side":"provider","port":"%d","protocol":"tri"}`, port),
		fmt.Sprintf(`dubbo.endpoints=[{"port":%d,"protocol":"tri"}]`, port),
		"dubbo.metadata.revision=" + revision, "dubbo.metadata.storage-type=null", "meta-v=2.0.0", "timestamp=1795373296142",
	}
	return checked(serviceEntry, status, output)
}

// metadataOfShop is the metadata of such an instance.
const metadataOfShop = `{"app":"shop","revision":"r1","services":{"g1/com.acme.Demo:1.0.0:tri":{"name":"com.acme.Demo","group":"g1",` +
	`"version":"1.0.0","protocol":"tri","path":"com.acme.Demo","params":{}}}}`

func TestInterfacesInConsul(t *testing.T) {
	t.Parallel()
	s := consultest.New(t)
	first, second := inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing"), inService("com.acme.Demo", "10.0.0.6", "2.0.0", "passing")
	s.Put("com.acme.Demo", first, second)
	s.Put("com.acme.Demo.Plain", consultest.Instance("com.acme.Demo.Plain", "p", "10.0.0.7", 80))
	rig := startInConsul(t, s, patiently())
	rig.AwaitSync()
	rig.awaitAll("com-acme-demo-1-0-0 10.0.0.5:20880*100", "com-acme-demo-2-0-0 10.0.0.6:20880*100")
	s.Put("com.acme.Demo", inService("com.acme.Demo", "10.0.0.5", "1.0.0", "critical"), second)
	rig.awaitAll("com-acme-demo-1-0-0 10.0.0.5:20880*100", "com-acme-demo-2-0-0 10.0.0.6:20880*100")
	rig.awaitMessage("1 endpoint is not listed and stays")
	s.Put("com.acme.Demo", checked(inService("com.acme.Demo", "10.0.0.5", "1.0.0", ""), "critical", "TTL expired"), second)
	rig.awaitAll("com-acme-demo-1-0-0", "com-acme-demo-2-0-0 10.0.0.6:20880*100")
	s.Put("com.acme.Demo", inService("com.acme.Demo", "10.0.0.8", "1.0.0", "critical"), second)
	s.Put("com.acme.Last", inService("com.acme.Last", "10.0.0.9", "", "passing"))
	rig.awaitAll("com-acme-demo-1-0-0", "com-acme-demo-2-0-0 10.0.0.6:20880*100", "com-acme-last 10.0.0.9:20880*100")
	s.Remove("com.acme.Demo")
	rig.awaitAll("com-acme-demo-1-0-0", "com-acme-demo-2-0-0", "com-acme-last 10.0.0.9:20880*100")
}

func TestConfiguratorsInConsul(t *testing.T) {
	s := consultest.New(t)
	rule := inService("com.acme.Demo", "0.0.0.0", "", "passing")
	rule.Service.Meta["url"] = "override://0.0.0.0/com.acme.Demo?category=configurators&dynamic=false&enabled=true&version=1.0.0&weight=33"
	s.Put("com.acme.Demo", inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing"), rule)
	rig := startInConsul(t, s, patiently())
	rig.awaitAll("com-acme-demo-1-0-0 10.0.0.5:20880*33")
	silent := *rule
	s.Put("com.acme.Demo", inService("com.acme.Demo", "10.0.0.6", "1.0.0", "passing"), checked(&silent, "critical", ""))
	rig.awaitAll("com-acme-demo-1-0-0 10.0.0.6:20880*33")
}

func TestConsulMalformedProvider_DoesNotBlockOthers(t *testing.T) {
	server := consultest.New(t)
	odd := inService("com.acme.Demo", "10.0.0.6", "1.0.0", "passing")
	odd.Service.Meta["url"] = "nothing"
	server.Put("com.acme.Demo", odd, inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing"))
	b := startInConsul(t, server, patiently())
	b.awaitAll("com-acme-demo-1-0-0 10.0.0.5:20880*100")
	b.Await("warned", func() bool { return len(b.Status().Warnings) > 0 })
}

// TestConsulUnheardCheck_SavesNoOtherPort has two providers of an application on one host: one fails, the other has no
// check result.
func TestConsulUnheardCheck_SavesNoOtherPort(t *testing.T) {
	on := func(port int, status, output string) *api.ServiceEntry {
		e := inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing")
		e.Service.ID = fmt.Sprint(port)
		e.Service.Meta["url"] = fmt.Sprintf("dubbo://10.0.0.5:%d/com.acme.Demo?application=a&interface=com.acme.Demo&version=1.0.0", port)
		return checked(e, status, output)
	}
	server := consultest.New(t)
	server.Put("com.acme.Demo", on(20880, "passing", ""), on(20881, "passing", ""))
	b := startInConsul(t, server, patiently())
	b.awaitAll("com-acme-demo-1-0-0 10.0.0.5:20880*100 10.0.0.5:20881*100")
	server.Put("com.acme.Demo", on(20880, "critical", "TTL expired"), on(20881, "critical", ""))
	b.awaitAll("com-acme-demo-1-0-0 10.0.0.5:20881*100")
}

// TestApplicationsInConsul has instances registered at application level only, with a metadata report as Dubbo's
// extension writes it.
func TestApplicationsInConsul(t *testing.T) {
	t.Parallel()
	server := consultest.New(t)
	server.Set("shop:r1", metadataOfShop)
	server.Put("shop", ofShop("65992aa", "10.0.0.5", 50051, "r1", "passing", ""))
	server.Put("plain", consultest.Instance("plain", "p", "10.0.0.7", 80))
	b := startInConsul(t, server, patiently())
	b.AwaitSync()
	b.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100")
	require.Equal(t, "shop by the metadata report", b.Status().Message)
	require.Empty(t, server.Asked("/v1/health/service/plain"), "others are not read")

	serviceEntry := ofShop("77e9684e", "10.0.0.6", 50051, "r1", "passing", "")
	server.Put("shop", ofShop("65992aa", "10.0.0.5", 50051, "r1", "passing", ""), serviceEntry)
	b.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100 10.0.0.6:50051*100")
	server.Put("shop", ofShop("65992aa", "10.0.0.5", 50051, "r1", "critical", ""), serviceEntry)
	b.awaitMessage("1 endpoint is not listed and stays")
	b.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100 10.0.0.6:50051*100")
	server.Put("shop", ofShop("65992aa", "10.0.0.5", 50051, "r1", "critical", "TTL expired"), serviceEntry)
	b.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.6:50051*100")
	server.Remove("shop")
	b.awaitAll("com-acme-demo-g1-1-0-0.tri")
}

// TestConsulBothLevels_MakeOneEndpoint has a provider at both levels, by default, and a second one of the same host at
// one.
func TestConsulBothLevels_MakeOneEndpoint(t *testing.T) {
	s := consultest.New(t)
	s.Set("shop:r1", metadataOfShop)
	e := inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing")
	e.Service.Meta["url"] = "tri://10.0.0.5:50051/com.acme.Demo?application=shop&interface=com.acme.Demo&version=1.0.0&group=g1&weight=30"
	s.Put("com.acme.Demo", e)
	s.Put("shop", ofShop("1", "10.0.0.5", 50051, "r1", "passing", ""), ofShop("2", "10.0.0.6", 50051, "r1", "passing", ""))
	b := startInConsul(t, s, patiently())
	b.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*30 10.0.0.6:50051*100")
}

// TestModesInConsul has one level left out, which is not read then.
func TestModesInConsul(t *testing.T) {
	server := consultest.New(t)
	server.Set("shop:r1", metadataOfShop)
	server.Put("com.acme.Other", inService("com.acme.Other", "10.0.0.7", "", "passing"))
	server.Put("shop", ofShop("1", "10.0.0.5", 50051, "r1", "passing", ""))
	for mode, want := range map[string]string{
		modeInterface: "com-acme-other 10.0.0.7:20880*100",
		modeInstance:  "com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100",
	} {
		settings := patiently()
		settings.RegisterMode = mode
		b := startInConsul(t, server, settings)
		b.AwaitSync()
		b.awaitAll(want)
	}
}

// TestConsulMapping_ServesWithoutMetadata has an instance that keeps its metadata itself and cannot be asked, and the
// mapping that Dubbo's extension writes.
func TestConsulMapping_ServesWithoutMetadata(t *testing.T) {
	s := consultest.New(t)
	s.Set("dubbo:mapping:com.acme.Demo", "stock,shop")
	s.Put("shop", ofShop("1", "10.0.0.5", 50051, "r1", "passing", ""))
	b := startInConsul(t, s, patiently())
	b.awaitAll("com-acme-demo.tri 10.0.0.5:50051*100")
	b.awaitMessage(`shop revision "r1" by the interfaces mapped to them, without group and version`)
}

// TestConsulUnresolvedApplication_DegradesStatus has an instance without readable metadata: the source is degraded, and
// the other interface is served.
func TestConsulUnresolvedApplication_DegradesStatus(t *testing.T) {
	t.Parallel()
	s := consultest.New(t)
	s.Put("shop", ofShop("1", "10.0.0.5", 50051, "r1", "passing", ""))
	s.Put("com.acme.Other", inService("com.acme.Other", "10.0.0.7", "", "passing"))
	rig := startInConsul(t, s, patiently())
	rig.AwaitSync()
	rig.awaitAll("com-acme-other 10.0.0.7:20880*100")
	rig.AwaitState(sources.Degraded)
	require.Contains(t, rig.Status().Message,
		`application "shop": nothing is served, its metadata cannot be read: metadata report: not found`)
}

// TestConsulDataLoss_KeepsEndpoints wipes Consul's data, also across a restart of the source: endpoints of both levels
// stay.
func TestConsulDataLoss_KeepsEndpoints(t *testing.T) {
	t.Parallel()
	s := consultest.New(t)
	s.Set("shop:r1", metadataOfShop)
	s.Put("shop", ofShop("1", "10.0.0.5", 50051, "r1", "passing", ""))
	s.Put("com.acme.Other", inService("com.acme.Other", "10.0.0.7", "", "passing"))
	settings := patiently()
	rig := startInConsul(t, s, settings)
	served := []string{"com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100", "com-acme-other 10.0.0.7:20880*100"}
	rig.AwaitSync()
	rig.awaitAll(served...)
	s.Wipe()
	rig.awaitMessage("lost its data")
	rig.requireAll(served...)
	rig.restartInConsul(s, settings)
	rig.awaitMessage("lost its data")
	rig.requireAll(served...) // over a restart
	s.Misbehave(consultest.NoLeader)
	rig.restartInConsul(s, settings)
	rig.AwaitState(sources.Unreachable)
	s.Misbehave(consultest.Fine)
	rig.restartInConsul(s, settings)
	rig.awaitMessage("2 endpoints are not listed and stay")
	rig.requireAll(served...) // over a restart after a run that read no names
	s.Put("shop", ofShop("3", "10.0.0.5", 50051, "r1", "passing", ""), ofShop("4", "10.0.0.6", 50051, "r1", "passing", ""))
	rig.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100 10.0.0.6:50051*100", "com-acme-other 10.0.0.7:20880*100")
}

// TestRestartInConsul removes an instance while the token may not read: the endpoint stays until a read confirms its
// removal.
func TestRestartInConsul(t *testing.T) {
	t.Parallel()
	server := consultest.New(t)
	server.Set("shop:r1", metadataOfShop)
	first, second := ofShop("1", "10.0.0.5", 50051, "r1", "passing", ""), ofShop("2", "10.0.0.6", 50051, "r1", "passing", "")
	server.Put("shop", first, second)
	server.Put("com.acme.Other", inService("com.acme.Other", "10.0.0.7", "", "passing"))
	settings := patiently()
	rig := startInConsul(t, server, settings)
	rig.AwaitSync()
	served := []string{"com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100 10.0.0.6:50051*100", "com-acme-other 10.0.0.7:20880*100"}
	rig.awaitAll(served...)
	server.Misbehave(consultest.Hidden)
	rig.restartInConsul(server, settings)
	rig.AwaitState(sources.Denied)
	rig.requireAll(served...)
	server.Put("shop", second)
	server.Misbehave(consultest.Fine)
	rig.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.6:50051*100", "com-acme-other 10.0.0.7:20880*100")
}

// restartInConsul runs a new source on the state that the old one published.
func (b *rig) restartInConsul(server *consultest.Server, settings Settings) {
	b.T.Helper()
	b.restartWith(inConsul(b.T, server, settings), func() {})
}

// TestConsulInstances_ServeTheirMetadata has an instance that keeps its metadata itself, on the port and by the
// protocol that its tags name.
func TestConsulInstances_ServeTheirMetadata(t *testing.T) {
	s := consultest.New(t)
	s.Put("shop", ofShop("1", "10.0.0.5", 50051, "r1", "passing", ""))
	requests := make(chan provider.Instance, 1)
	rig := startInConsul(t, s, patiently(), func(s *Source) {
		s.asker = asks(func(_ context.Context, i provider.Instance) (provider.Metadata, string, error) {
			requests <- i
			m, _, err := provider.ParseMetadata([]byte(metadataOfShop))
			return m, "their own metadata (http)", err
		})
	})
	rig.awaitAll("com-acme-demo-g1-1-0-0.tri 10.0.0.5:50051*100")
	require.Equal(t, &provider.MetadataService{Protocol: "tri", Port: 50051, Version: "2.0.0", V2: true}, (<-requests).Service)
}

// asks is an asker.
type asks func(ctx context.Context, i provider.Instance) (provider.Metadata, string, error)

func (a asks) Ask(ctx context.Context, i provider.Instance) (provider.Metadata, string, error) {
	return a(ctx, i)
}

func TestSettingsOfConsul(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		want     string
	}{
		{Settings{Interfaces: []string{""}}, `interfaces: "" is no name or pattern`},
		{Settings{KeepEmpty: -time.Hour}, "keepEmpty: want 1ms to 8760h0m0s, got -1h0m0s"},
		{Settings{RegisterMode: "both"}, `registerMode: want all, interface or instance, got "both"`},
		{Settings{Mapping: mapping.Options{HostTemplate: "x"}}, `hostTemplate: "x" does not contain {interface}`},
	} {
		_, err := NewConsul("consul://h:8500?kind=dubbo", consul.Settings{}, c.settings)
		require.EqualError(t, err, c.want)
	}
}

// TestConsulStatus_ExplainsEmptyRegistry has a Consul without anything to serve: without any service, without Dubbo's,
// and with those that no setting selects.
func TestConsulStatus_ExplainsEmptyRegistry(t *testing.T) {
	server := consultest.New(t)
	b := startInConsul(t, server, patiently())
	says := func(message string) {
		t.Helper()
		b.Await("it says "+message, func() bool { return b.Status().State == sources.Healthy && b.Status().Message == message })
	}
	says("no Dubbo provider in consul, and no other service: check dc, ns and partition in the address, and that the token may read services")
	server.Put("plain", consultest.Instance("plain", "p", "10.0.0.7", 80))
	server.Put("other", consultest.Instance("other", "o", "10.0.0.8", 80))
	says("no Dubbo provider in consul, but 2 other services: Dubbo's interfaces have the tag dubbo, applications " +
		"tags like dubbo.metadata.revision=…")
	server.Remove("other")
	says("no Dubbo provider in consul, but 1 other services: Dubbo's interfaces have the tag dubbo, applications " +
		"tags like dubbo.metadata.revision=…")

	server.Put("com.acme.Demo", inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing"))
	server.Put("shop", ofShop("1", "10.0.0.5", 50051, "r1", "passing", ""))
	unselecting := patiently()
	unselecting.Interfaces, unselecting.Applications = []string{"com.nothing.*"}, []string{"nobody"}
	b = startInConsul(t, server, unselecting)
	b.AwaitSync()
	says("nothing is served: none of 1 interfaces and 1 applications has a provider that the settings select")
	require.Empty(t, b.show())
}
