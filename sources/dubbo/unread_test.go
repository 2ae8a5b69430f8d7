package dubbo

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/zookeeper"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/nacos/nacostest"
	"tributary/sources/registry"
)

// The tests here have an unreadable part of the registry, or a node with unknown content. Its last known endpoints
// stay, and no others.

// awaitHeld waits until n endpoints stay for that reason only, and not since the connection was made.
func (b *rig) awaitHeld(n int) {
	b.T.Helper()
	b.Await(fmt.Sprintf("%d stay", n), func() bool {
		m := b.Status().Message
		return strings.Contains(m, words.Count(n, "endpoint is not listed and stays", "endpoints are not listed and stay")) &&
			!strings.Contains(m, "until")
	})
}

// awaitUnresolved waits until a lookup of an instance's services has failed.
func (b *rig) awaitUnresolved() {
	b.T.Helper()
	before := b.source.counters.unresolved.Value()
	b.Await("unresolved", func() bool { return b.source.counters.unresolved.Value() > before })
}

// TestNacosDisabledInstance_RemovedDuringHold disables a provider in Nacos' console, at both levels.
func TestNacosDisabledInstance_RemovedDuringHold(t *testing.T) {
	t.Parallel()
	for level, registration := range map[string]struct {
		service string
		meta    map[string]string
	}{
		"interface":   {"providers:a::", map[string]string{"category": "providers", "protocol": "dubbo", "path": "a", "interface": "a"}},
		"application": {"app", map[string]string{"dubbo.endpoints": `[{"port":20880,"protocol":"dubbo"}]`, "dubbo.metadata.revision": "r1"}},
	} {
		t.Run(level, func(t *testing.T) {
			server := nacostest.Start(t)
			server.Config("app", "r1", `{"app":"app","revision":"r1","services":{"a:dubbo":{"name":"a","protocol":"dubbo","port":20880,`+
				`"path":"a"}}}`)
			put := func(enabled bool) {
				i := nacostest.Instance("10.0.0.1", 20880, registration.meta)
				i["enabled"] = enabled
				server.Put("DEFAULT_GROUP", registration.service, "1", i)
			}
			put(true)
			rig := startInNacos(t, server, patiently())
			rig.awaitAll("a 10.0.0.1:20880*100")
			server.Stop()
			rig.AwaitState(sources.Unreachable)
			server.Restart()
			rig.Await("up again", func() bool { return rig.source.counters.sessions.Value() > 0 })
			put(false)
			rig.awaitAll("a")
		})
	}
}

// TestUnresolvedInstance_DisabledStops disables an instance in Nacos that has a new revision without metadata.
func TestUnresolvedInstance_DisabledStops(t *testing.T) {
	server := nacostest.Start(t)
	applicationInNacos(server, "app")
	rig := startInNacos(t, server, patiently())
	rig.awaitAll("a 10.0.0.1:20880*100")
	disabled := nacostest.Instance("10.0.0.1", 20880, map[string]string{
		"dubbo.endpoints": `[{"port":20880,"protocol":"dubbo"}]`, "dubbo.metadata.revision": "r2",
		"dubbo.metadata.storage-type": "remote",
	})
	server.Put("DEFAULT_GROUP", "app", "1", disabled)
	rig.awaitUnresolved()
	rig.requireAll("a 10.0.0.1:20880*100") // its earlier services stay
	disabled["enabled"] = false
	server.Put("DEFAULT_GROUP", "app", "1", disabled)
	rig.awaitAll("a")
}

// TestUnresolvedInstance_KeepsServices has an address and a name that labels of endpoints cannot hold: an IPv6 address
// as Java writes it in full, and an application with Chinese letters.
func TestUnresolvedInstance_KeepsServices(t *testing.T) {
	for application, address := range map[string]string{"app": "fd00:0:0:0:0:0:0:5", "订单": "10.0.0.1"} {
		server := zktest.New()
		server.Put("/services/"+application+"/"+address+":20880", fmt.Sprintf(
			`{"name":%q,"address":%q,"port":20880,"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":20880,\"protocol\":\"dubbo\"}]",`+
				`"dubbo.metadata.revision":"r1"}}}`,
			application, address))
		report(server, "/dubbo/metadata", application, "r1", "a")
		rig := start(t, server, patiently())
		rig.Await("served", func() bool { return len(rig.show()) == 1 && strings.HasSuffix(rig.show()[0], ":20880*100") })
		before := rig.show()
		rig.restart(quickly(), func() { server.Delete("/dubbo/metadata") })
		rig.awaitHeld(1)
		rig.requireAll(before...)
	}
}

// TestNacosRefusedApplication_StaysAcrossRestart has Nacos answer with an error.
func TestNacosRefusedApplication_StaysAcrossRestart(t *testing.T) {
	server := nacostest.Start(t)
	applicationInNacos(server, "app")
	server.Put("DEFAULT_GROUP", "z", "1", nacostest.Instance("10.0.0.2", 80, nil))
	settings := quickly()
	settings.KeepEmpty = time.Hour
	rig := startInNacos(t, server, settings)
	rig.awaitAll("a 10.0.0.1:20880*100")
	server.Refuse("DEFAULT_GROUP", "app", "no")
	source := sourceOf(t, rig.server, settings)
	source.registry = rig.source.registry
	rig.restartWith(source, func() {})
	rig.awaitHeld(1)
	rig.requireAll("a 10.0.0.1:20880*100")
}

// applicationInNacos registers one that serves interface a.
func applicationInNacos(server *nacostest.Server, name string) {
	server.Config(name, "r1", `{"app":"app","revision":"r1","services":{"a:dubbo":{"name":"a","protocol":"dubbo","port":20880,"path":"a",`+
		`"params":{}}}}`)
	server.Put("DEFAULT_GROUP", name, "1", nacostest.Instance("10.0.0.1", 20880, map[string]string{
		"dubbo.endpoints": `[{"port":20880,"protocol":"dubbo"}]`, "dubbo.metadata.revision": "r1", "dubbo.metadata.storage-type": "remote",
	}))
}

// TestNacosUnlistedApplication_Stays has it missing from the list of names, while its own answer has all that it had.
func TestNacosUnlistedApplication_Stays(t *testing.T) {
	server := nacostest.Start(t)
	applicationInNacos(server, "app")
	settings := quickly()
	settings.KeepEmpty = time.Hour
	rig := startInNacos(t, server, settings)
	rig.awaitAll("a 10.0.0.1:20880*100")
	lists := func() int { return server.Requests("ServiceListRequest") }
	listed := func() {
		before := lists()
		rig.Await("it is listed again, and again", func() bool { return lists() >= before+2 })
	}
	listed() // the doubt of the start is over
	server.Hide("DEFAULT_GROUP", "app")
	listed()
	// a mark
	server.Put("DEFAULT_GROUP", "providers:b::", "1", nacostest.Instance("10.0.0.3", 20880,
		map[string]string{"category": "providers", "protocol": "dubbo", "path": "b"}))
	rig.awaitAll("a 10.0.0.1:20880*100", "b 10.0.0.3:20880*100")
	server.Show("DEFAULT_GROUP", "app")
	listed()
	rig.requireAll("a 10.0.0.1:20880*100", "b 10.0.0.3:20880*100")
	server.Hide("DEFAULT_GROUP", "app")
	server.Delete("DEFAULT_GROUP", "app", "1")
	rig.awaitAll("a", "b 10.0.0.3:20880*100")
}

// TestNacosRefusedVersion_DoesNotBlockOthers has two versions of an interface.
func TestNacosRefusedVersion_DoesNotBlockOthers(t *testing.T) {
	server := nacostest.Start(t)
	for version, host := range map[string]string{"1.0": "10.0.0.1", "2.0": "10.0.0.2"} {
		server.Put("DEFAULT_GROUP", "providers:a:"+version+":", host, nacostest.Instance(host, 20880, map[string]string{
			"category": "providers", "protocol": "dubbo", "path": "a", "interface": "a", "version": version,
		}))
	}
	server.Refuse("DEFAULT_GROUP", "providers:a:2.0:", "no")
	b := startInNacos(t, server, quickly())
	b.awaitAll("a-1-0 10.0.0.1:20880*100")
	require.Equal(t, sources.Degraded, b.Status().State)
}

// odd is a connection on which one path has an error of the server's own.
type odd struct {
	zookeeper.Conn
	path string
}

func (o odd) ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error) {
	if path == o.path {
		return nil, nil, nil, zk.ErrUnknown // the library's error for an unknown code
	}
	return o.Conn.ChildrenW(path)
}

// TestNodeWithError_DoesNotBlockOthers has a server that says something else of it than that we may not read it.
func TestNodeWithError_DoesNotBlockOthers(t *testing.T) {
	server := zktest.New()
	register(server, "a 10.0.0.1", "b 10.0.0.1")
	dial := func(ctx context.Context, state func(backend.Connection)) (zookeeper.Conn, error) {
		c, err := server.Dial(ctx, state)
		return odd{c, "/dubbo/b/providers"}, err
	}
	rig := start(t, server, quickly(), func(source *Source) {
		source.registry = zookeeper.WithDial(dial, zookeeper.Address{Group: "dubbo"}, time.Minute)
	})
	rig.awaitAll("a 10.0.0.1:20880*100")
	require.Contains(t, rig.Status().Message, "/dubbo/b/providers")
}

// TestNodeSpelling_DoesNotRemoveProviders has a consumer that does not encode the name of an interface as Dubbo does.
func TestNodeSpelling_DoesNotRemoveProviders(t *testing.T) {
	server := zktest.New()
	put := func(spelling, host string) {
		text := fmt.Sprintf("dubbo://%s:20880/x.Demo$Inner?application=app&interface=x.Demo$Inner", host)
		server.Put("/dubbo/"+spelling+"/providers/"+url.QueryEscape(text), leaf)
	}
	put("x.Demo%24Inner", "10.0.0.1")
	settings := quickly()
	settings.Grace, settings.KeepEmpty = time.Hour, time.Hour
	b := start(t, server, settings)
	serves := func(hosts ...string) {
		b.Await(fmt.Sprintf("%v", hosts), func() bool {
			lines := b.show()
			return len(lines) == 1 && strings.Count(lines[0], ":20880*100") == len(hosts) &&
				!slices.ContainsFunc(hosts, func(h string) bool { return !strings.Contains(lines[0], h) })
		})
	}
	serves("10.0.0.1")
	server.Put("/dubbo/x.Demo$Inner/consumers/x", leaf)
	put("x.Demo%24Inner", "10.0.0.2") // a mark
	serves("10.0.0.1", "10.0.0.2")
	put("x.Demo$Inner", "10.0.0.3")
	serves("10.0.0.1", "10.0.0.2", "10.0.0.3")
	server.Delete("/dubbo/x.Demo%24Inner")
	serves("10.0.0.3")
}

// endpoints returns how many are believed.
func (s *state) endpoints() (n int) {
	s.Endpoints(func(mapping.ID, registry.Known) { n++ })
	return n
}

// TestRules_RemovedWithInterface has ZooKeeper lose an interface, with the reads of its nodes in any order.
func TestRules_RemovedWithInterface(t *testing.T) {
	run := emptyRun(t)
	rule, err := provider.ParseURL("override://0.0.0.0/b?category=configurators&disabled=true")
	require.NoError(t, err)
	run.Connection(backend.Connection{Up: true, Fresh: true})
	run.Applications(nil, nil)
	parts := partsOf("b")
	run.Parts(parts, nil)
	run.Registered(parts[0], nil, nil)
	run.Registered(parts[1], []backend.Registration{{URL: rule}}, nil)
	now := time.Now()
	run.gather(now)
	run.Registered(parts[0], nil, backend.ErrAbsent)
	run.Parts(nil, nil) // which stops the watch of its rules
	now = now.Add(time.Hour)
	run.gather(now)
	run.gather(now)
	u, err := provider.ParseURL("dubbo://10.0.0.1:20880/b?application=app&interface=b")
	require.NoError(t, err)
	p, _, err := u.Provider()
	require.NoError(t, err)
	run.serve(&instance{id: "1"}, []provider.Provider{p})
	run.gather(now.Add(time.Minute))
	require.Equal(t, 1, run.endpoints(), "no node in the registry disables it")
}

// TestRemovedInterfaces_FreeState has a thousand come and go.
func TestRemovedInterfaces_FreeState(t *testing.T) {
	run := emptyRun(t)
	run.Connection(backend.Connection{Up: true, Fresh: true})
	run.Applications(nil, nil)
	run.Parts(nil, nil)
	now := time.Now()
	run.gather(now)
	for n := range 1000 {
		parts := partsOf(fmt.Sprintf("tmp.I%d", n))
		run.Parts(parts, nil)
		run.Registered(parts[0], nil, nil)
		run.Registered(parts[1], nil, nil)
		now = now.Add(time.Minute)
		run.gather(now)
	}
	run.Parts(nil, nil)
	for range 5 {
		now = now.Add(time.Hour)
		run.gather(now)
	}
	run.Parts(partsOf("b"), nil)
	require.LessOrEqual(t, len(run.gather(now).Contents), 1, "those that are gone are not published again")
	require.Len(t, run.interfaces, 1)
}

// TestIPv6InstancesInAGroup has addresses as Java writes them, with colons and without brackets, where interfaces and
// applications are in one place.
func TestIPv6InstancesInAGroup(t *testing.T) {
	s := zktest.New()
	s.Put("/g/app/fd00:0:0:0:0:0:0:5:20880",
		`{"name":"app","address":"fd00:0:0:0:0:0:0:5","port":20880,"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":20880,`+
			`\"protocol\":\"dubbo\"}]","dubbo.metadata.revision":"r1"}}}`)
	s.Put("/g/metadata/app/r1", `{"app":"app","revision":"r1","services":{"b:dubbo":{"name":"b","protocol":"dubbo","port":20880}}}`)
	b := start(t, s, patiently(), func(source *Source) { source.registry = inGroup(s, "g") })
	b.awaitAll("b fd00::5:20880*100")
}

// TestServicesOverLimit_Refused has an instance with more than there is room for.
func TestServicesOverLimit_Refused(t *testing.T) {
	state := emptyRun(t).state
	state.maxServices = 3
	services := func(names ...string) (providers []provider.Provider) {
		for _, n := range names {
			providers = append(providers, provider.Provider{ID: provider.ID{Interface: n}})
		}
		return providers
	}
	first, second := &instance{id: "1", application: "app"}, &instance{id: "2", application: "app"}
	state.serve(first, services("a", "b"))
	state.serve(second, services("a"))
	state.serve(second, services("a", "b"))
	require.Equal(t, 1, second.serviceCount, "its services stay")
	require.EqualError(t, second.failure, "instance 2 of app: its 2 services are over the limit of 3 services of all instances")
	state.drop(first)
	state.serve(second, services("a", "b", "c"))
	require.Equal(t, 3, second.serviceCount)
	require.Equal(t, 3, state.serviceCount)
}

// TestRestore_UnparsedContentStays has content of an earlier run without objects, while the interfaces may not be read.
func TestRestore_UnparsedContentStays(t *testing.T) {
	run := emptyRun(t)
	services := func(now time.Time) int {
		run.gather(now)
		run.gather(now)
		count, _ := run.Services()
		return count
	}
	run.restore("a", nil)
	run.Connection(backend.Connection{Up: true, Certain: true})
	run.Parts(nil, backend.ErrDenied)
	run.Applications([]string{"app"}, nil)
	run.Instances("app", nil, nil)
	now := time.Now()
	require.Equal(t, 1, services(now))
	require.Equal(t, 1, services(now.Add(time.Hour)))
	run.Parts(nil, nil)
	require.Zero(t, services(now.Add(2*time.Hour)))
}
