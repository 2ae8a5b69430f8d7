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
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	"tributary/sources/dubbo/zookeeper"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/guard"
	"tributary/sources/nacos/nacostest"
	core "tributary/sources/registry"
)

// What the tests here have in common: something of the registry cannot be read, or is listed with a content that is not known. What was
// known of that stays, and of nothing else.

// awaitHeld waits until n endpoints stay for that reason only, and not since the connection was made.
func (b *rig) awaitHeld(n int) {
	b.t.Helper()
	b.await(fmt.Sprintf("%d stay", n), func() bool {
		m := b.status().Message
		return strings.Contains(m, words.Count(n, "endpoint is not listed and stays", "endpoints are not listed and stay")) &&
			!strings.Contains(m, "until")
	})
}

// awaitUnresolved waits until it was tried in vain to find out what an instance serves.
func (b *rig) awaitUnresolved() {
	b.t.Helper()
	before := b.source.counters.unresolved.Value()
	b.await("unresolved", func() bool { return b.source.counters.unresolved.Value() > before })
}

// TestWhatIsSwitchedOffGoesWhileMetadataAreUnknown has a configurator of a provider that is an instance, too, of which nobody knows what it
// serves.
func TestWhatIsSwitchedOffGoesWhileMetadataAreUnknown(t *testing.T) {
	s := zktest.New()
	s.Put(node("a", "10.0.0.1:20880", "", 1), leaf)
	s.Put(node("a", "10.0.0.2:20880", "", 1), leaf)
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	b := start(t, s, quickly())
	b.awaitAll("a 10.0.0.1:20880*100 10.0.0.2:20880*100")
	b.awaitUnresolved()
	s.Put("/dubbo/a/configurators/"+url.QueryEscape("override://10.0.0.1:20880/a?category=configurators&disabled=true"), leaf)
	b.awaitAll("a 10.0.0.2:20880*100")
}

// TestWhatIsSwitchedOffGoesInTheHold has a configurator while all that is not listed stays.
func TestWhatIsSwitchedOffGoesInTheHold(t *testing.T) {
	s := zktest.New()
	s.Put(node("a", "10.0.0.1:20880", "", 1), leaf)
	s.Put(node("a", "10.0.0.2:20880", "", 1), leaf)
	b := start(t, s, patiently())
	b.awaitAll("a 10.0.0.1:20880*100 10.0.0.2:20880*100")
	s.Expire()
	s.Reconnect()
	b.await("up again", func() bool { return b.source.counters.sessions.Value() > 0 })
	s.Put("/dubbo/a/configurators/"+url.QueryEscape("override://10.0.0.1:20880/a?category=configurators&disabled=true"), leaf)
	b.awaitAll("a 10.0.0.2:20880*100")
}

// TestWhatIsSwitchedOffInNacosGoesInTheHold has somebody take a provider out in Nacos' console, at both levels.
func TestWhatIsSwitchedOffInNacosGoesInTheHold(t *testing.T) {
	for level, of := range map[string]struct {
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
				i := nacostest.Instance("10.0.0.1", 20880, of.meta)
				i["enabled"] = enabled
				server.Put("DEFAULT_GROUP", of.service, "1", i)
			}
			put(true)
			b := startInNacos(t, server, patiently())
			b.awaitAll("a 10.0.0.1:20880*100")
			server.Stop()
			b.await("unreachable", func() bool { return b.status().State == sources.Unreachable })
			server.Restart()
			b.await("up again", func() bool { return b.source.counters.sessions.Value() > 0 })
			put(false)
			b.awaitAll("a")
		})
	}
}

// TestUnresolvedInstance_DisabledStops disables an instance in Nacos that has a new revision without metadata.
func TestUnresolvedInstance_DisabledStops(t *testing.T) {
	server := nacostest.Start(t)
	applicationInNacos(server, "app")
	b := startInNacos(t, server, patiently())
	b.awaitAll("a 10.0.0.1:20880*100")
	disabled := nacostest.Instance("10.0.0.1", 20880, map[string]string{
		"dubbo.endpoints": `[{"port":20880,"protocol":"dubbo"}]`, "dubbo.metadata.revision": "r2",
		"dubbo.metadata.storage-type": "remote",
	})
	server.Put("DEFAULT_GROUP", "app", "1", disabled)
	b.awaitUnresolved()
	require.Equal(t, []string{"a 10.0.0.1:20880*100"}, b.show(), "its earlier services stay")
	disabled["enabled"] = false
	server.Put("DEFAULT_GROUP", "app", "1", disabled)
	b.awaitAll("a")
}

// TestAnUnknownInstanceSavesNoOtherPort has a provider deployed anew on another port of its host, of which nobody knows what it serves.
func TestAnUnknownInstanceSavesNoOtherPort(t *testing.T) {
	s := zktest.New()
	s.Put(node("a", "10.0.0.1:20880", "", 1), leaf)
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	b := start(t, s, quickly())
	b.awaitAll("a 10.0.0.1:20880*100")
	b.awaitUnresolved()
	s.Delete(node("a", "10.0.0.1:20880", "", 1))
	s.Delete("/services/app/10.0.0.1:20880")
	s.Put(node("a", "10.0.0.1:20881", "", 2), leaf)
	instanceOf(s, "app", "10.0.0.1:20881", "r2")
	b.awaitAll("a 10.0.0.1:20881*100")
}

// TestAnUnknownInstanceSavesNothingOfItsInterfaces has a provider that takes an interface back, and of which nobody knows what it serves as
// an instance.
func TestAnUnknownInstanceSavesNothingOfItsInterfaces(t *testing.T) {
	s := zktest.New()
	s.Put(node("a", "10.0.0.1:20880", "", 1), leaf)
	s.Put(node("b", "10.0.0.1:20880", "", 1), leaf)
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	settings := quickly()
	settings.KeepEmpty, settings.Grace = time.Hour, time.Hour
	b := start(t, s, settings)
	b.awaitAll("a 10.0.0.1:20880*100", "b 10.0.0.1:20880*100")
	b.awaitUnresolved()
	s.Delete(node("a", "10.0.0.1:20880", "", 1))
	b.awaitAll("a", "b 10.0.0.1:20880*100")
}

// TestAnUnknownInstanceKeepsWhatItServed has addresses and names of which the labels of endpoints do not say what they are: an IPv6 address
// as Java writes it in full, and an application whose name cannot be a label.
func TestAnUnknownInstanceKeepsWhatItServed(t *testing.T) {
	for application, address := range map[string]string{"app": "fd00:0:0:0:0:0:0:5", "订单": "10.0.0.1"} {
		s := zktest.New()
		s.Put("/services/"+application+"/"+address+":20880", fmt.Sprintf(
			`{"name":%q,"address":%q,"port":20880,"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":20880,\"protocol\":\"dubbo\"}]",`+
				`"dubbo.metadata.revision":"r1"}}}`,
			application, address))
		report(s, "/dubbo/metadata", application, "r1", "a")
		b := start(t, s, patiently())
		b.await("served", func() bool { return len(b.show()) == 1 && strings.HasSuffix(b.show()[0], ":20880*100") })
		before := b.show()
		b.restart(quickly(), func() { s.Delete("/dubbo/metadata") })
		b.awaitHeld(1)
		require.Equal(t, before, b.show())
	}
}

// TestWhatMayNotBeReadStaysThroughARestart has applications and interfaces hidden from us while we are away.
func TestWhatMayNotBeReadStaysThroughARestart(t *testing.T) {
	s := zktest.New()
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	report(s, "/dubbo/metadata", "app", "r1", "a")
	instanceOf(s, "other", "10.0.0.2:20880", "r1")
	report(s, "/dubbo/metadata", "other", "r1", "b")
	s.Put(node("c", "10.0.0.3:20880", "", 1), leaf)
	b := start(t, s, patiently())
	all := []string{"a 10.0.0.1:20880*100", "b 10.0.0.2:20880*100", "c 10.0.0.3:20880*100"}
	b.awaitAll(all...)
	settings := quickly()
	settings.KeepEmpty = time.Hour
	b.restart(settings, func() {
		s.Deny("/services/app")
		s.Deny("/dubbo/c")
	})
	b.awaitHeld(2)
	require.Equal(t, all, b.show())
	s.Delete("/services/app/10.0.0.1:20880")
	s.Delete(node("c", "10.0.0.3:20880", "", 1))
	s.Allow("/services/app")
	s.Allow("/dubbo/c")
	b.awaitAll("a", "b 10.0.0.2:20880*100", "c")
}

// TestAnInstanceThatCannotBeReadStaysThroughARestart has a node change to what is no instance while we are away.
func TestAnInstanceThatCannotBeReadStaysThroughARestart(t *testing.T) {
	s := zktest.New()
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	report(s, "/dubbo/metadata", "app", "r1", "a")
	b := start(t, s, patiently())
	b.awaitAll("a 10.0.0.1:20880*100")
	settings := quickly()
	settings.KeepEmpty = time.Hour
	b.restart(settings, func() { s.Put("/services/app/10.0.0.1:20880", "no JSON") })
	b.awaitHeld(1)
	require.Equal(t, []string{"a 10.0.0.1:20880*100"}, b.show())
	s.Delete("/services/app/10.0.0.1:20880")
	b.awaitAll("a")
}

// TestAnApplicationThatNacosRefusesStaysThroughARestart has Nacos answer with an error.
func TestAnApplicationThatNacosRefusesStaysThroughARestart(t *testing.T) {
	server := nacostest.Start(t)
	applicationInNacos(server, "app")
	server.Put("DEFAULT_GROUP", "z", "1", nacostest.Instance("10.0.0.2", 80, nil))
	settings := quickly()
	settings.KeepEmpty = time.Hour
	b := startInNacos(t, server, settings)
	b.awaitAll("a 10.0.0.1:20880*100")
	of := b.source.registry
	server.Refuse("DEFAULT_GROUP", "app", "no")
	require.NoError(t, b.supervisor.Reconfigure([]sources.Spec{{
		Name: "dubbo", Table: b.table, Source: idle{}, Partial: true, Guard: guard.Settings{Off: true},
	}}))
	b.source = sourceOf(t, b.server, settings)
	b.source.registry = of
	require.NoError(t, b.supervisor.Reconfigure([]sources.Spec{{
		Name: "dubbo", Table: b.table, Source: b.source, Partial: true, Guard: guard.Settings{Off: true},
	}}))
	b.awaitHeld(1)
	require.Equal(t, []string{"a 10.0.0.1:20880*100"}, b.show())
}

// applicationInNacos registers one that serves interface a.
func applicationInNacos(server *nacostest.Server, name string) {
	server.Config(name, "r1", `{"app":"app","revision":"r1","services":{"a:dubbo":{"name":"a","protocol":"dubbo","port":20880,"path":"a",`+
		`"params":{}}}}`)
	server.Put("DEFAULT_GROUP", name, "1", nacostest.Instance("10.0.0.1", 20880, map[string]string{
		"dubbo.endpoints": `[{"port":20880,"protocol":"dubbo"}]`, "dubbo.metadata.revision": "r1", "dubbo.metadata.storage-type": "remote",
	}))
}

// TestAnApplicationThatNacosDoesNotListStays has it missing from the list of names, while its own answer has all that it had.
func TestAnApplicationThatNacosDoesNotListStays(t *testing.T) {
	server := nacostest.Start(t)
	applicationInNacos(server, "app")
	settings := quickly()
	settings.KeepEmpty = time.Hour
	b := startInNacos(t, server, settings)
	b.awaitAll("a 10.0.0.1:20880*100")
	lists := func() int { return server.Requests("ServiceListRequest") }
	listed := func() {
		before := lists()
		b.await("it is listed again, and again", func() bool { return lists() >= before+2 })
	}
	listed() // the doubt of the start is over
	server.Hide("DEFAULT_GROUP", "app")
	listed()
	// a mark
	server.Put("DEFAULT_GROUP", "providers:b::", "1", nacostest.Instance("10.0.0.3", 20880,
		map[string]string{"category": "providers", "protocol": "dubbo", "path": "b"}))
	b.awaitAll("a 10.0.0.1:20880*100", "b 10.0.0.3:20880*100")
	server.Show("DEFAULT_GROUP", "app")
	listed()
	require.Equal(t, []string{"a 10.0.0.1:20880*100", "b 10.0.0.3:20880*100"}, b.show())
	server.Hide("DEFAULT_GROUP", "app")
	server.Delete("DEFAULT_GROUP", "app", "1")
	b.awaitAll("a", "b 10.0.0.3:20880*100")
}

// TestOneVersionThatNacosRefusesHoldsUpNoOther has two versions of an interface.
func TestOneVersionThatNacosRefusesHoldsUpNoOther(t *testing.T) {
	server := nacostest.Start(t)
	for version, host := range map[string]string{"1.0": "10.0.0.1", "2.0": "10.0.0.2"} {
		server.Put("DEFAULT_GROUP", "providers:a:"+version+":", host, nacostest.Instance(host, 20880, map[string]string{
			"category": "providers", "protocol": "dubbo", "path": "a", "interface": "a", "version": version,
		}))
	}
	server.Refuse("DEFAULT_GROUP", "providers:a:2.0:", "no")
	b := startInNacos(t, server, quickly())
	b.awaitAll("a-1-0 10.0.0.1:20880*100")
	require.Equal(t, sources.Degraded, b.status().State)
}

// TestAnInterfaceThatMayNotBeReadIsServedByInstances has its providers register at both levels.
func TestAnInterfaceThatMayNotBeReadIsServedByInstances(t *testing.T) {
	s := zktest.New()
	s.Put(node("a", "10.0.0.9:20880", "", 1), leaf)
	s.Put(node("other", "10.0.0.9:20880", "", 1), leaf)
	s.Deny("/dubbo/a")
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	report(s, "/dubbo/metadata", "app", "r1", "a")
	b := start(t, s, quickly())
	b.awaitAll("a 10.0.0.1:20880*100", "other 10.0.0.9:20880*100")
}

// odd is a connection on which one path has an error of the server's own.
type odd struct {
	zookeeper.Conn
	path string
}

func (o odd) ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error) {
	if path == o.path {
		return nil, nil, nil, zk.ErrUnknown // what the library makes of a code that it does not know
	}
	return o.Conn.ChildrenW(path)
}

// TestOneNodeWithAnErrorHoldsUpNoOther has a server that says something else of it than that we may not read it.
func TestOneNodeWithAnErrorHoldsUpNoOther(t *testing.T) {
	s := zktest.New()
	s.Put(node("a", "10.0.0.1:20880", "", 1), leaf)
	s.Put(node("b", "10.0.0.1:20880", "", 1), leaf)
	dial := func(ctx context.Context, state func(registry.Connection)) (zookeeper.Conn, error) {
		c, err := s.Dial(ctx, state)
		return odd{c, "/dubbo/b/providers"}, err
	}
	b := start(t, s, quickly(), func(source *Source) {
		source.registry = zookeeper.WithDial(dial, zookeeper.Address{Group: "dubbo"}, time.Minute)
	})
	b.awaitAll("a 10.0.0.1:20880*100")
	require.Contains(t, b.status().Message, "/dubbo/b/providers")
}

// TestANodeInAnotherSpellingTakesNothingAway has a consumer that does not encode the name of an interface as Dubbo does.
func TestANodeInAnotherSpellingTakesNothingAway(t *testing.T) {
	s := zktest.New()
	put := func(spelling, host string) {
		text := fmt.Sprintf("dubbo://%s:20880/x.Demo$Inner?application=app&interface=x.Demo$Inner", host)
		s.Put("/dubbo/"+spelling+"/providers/"+url.QueryEscape(text), leaf)
	}
	put("x.Demo%24Inner", "10.0.0.1")
	settings := quickly()
	settings.Grace, settings.KeepEmpty = time.Hour, time.Hour
	b := start(t, s, settings)
	serves := func(hosts ...string) {
		b.await(fmt.Sprintf("%v", hosts), func() bool {
			all := b.show()
			return len(all) == 1 && strings.Count(all[0], ":20880*100") == len(hosts) &&
				!slices.ContainsFunc(hosts, func(h string) bool { return !strings.Contains(all[0], h) })
		})
	}
	serves("10.0.0.1")
	s.Put("/dubbo/x.Demo$Inner/consumers/x", leaf)
	put("x.Demo%24Inner", "10.0.0.2") // a mark
	serves("10.0.0.1", "10.0.0.2")
	put("x.Demo$Inner", "10.0.0.3")
	serves("10.0.0.1", "10.0.0.2", "10.0.0.3")
	s.Delete("/dubbo/x.Demo%24Inner")
	serves("10.0.0.3")
}

// TestAnInterfaceThatIsSkippedIsServedAtNoLevel has it registered at both, as Dubbo 3 does by default.
func TestAnInterfaceThatIsSkippedIsServedAtNoLevel(t *testing.T) {
	s := zktest.New()
	s.Put(node("x.secret", "10.0.0.1:20880", "", 1), leaf)
	s.Put(node("a", "10.0.0.1:20880", "", 1), leaf)
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	report(s, "/dubbo/metadata", "app", "r1", "a", "x.secret")
	b := start(t, s, patiently())
	b.awaitAll("a 10.0.0.1:20880*100", "x-secret 10.0.0.1:20880*100")
	settings := patiently()
	settings.SkipInterfaces = []string{"x.*"}
	b.restart(settings, func() {})
	b.awaitAll("a 10.0.0.1:20880*100")
	s.Put(node("a", "10.0.0.2:20880", "", 1), leaf) // a mark
	b.awaitAll("a 10.0.0.1:20880*100 10.0.0.2:20880*100")
}

// endpoints returns how many are believed.
func (s *state) endpoints() (n int) {
	s.Endpoints(func(mapping.ID, core.Known) { n++ })
	return n
}

// TestRulesGoWithTheirInterface has ZooKeeper lose an interface, of which the reads of several nodes come in any order.
func TestRulesGoWithTheirInterface(t *testing.T) {
	r := newRun(sourceOf(t, zktest.New(), quickly()), nil)
	rule, err := provider.ParseURL("override://0.0.0.0/b?category=configurators&disabled=true")
	require.NoError(t, err)
	r.Connection(registry.Connection{Up: true, Fresh: true})
	r.Applications(nil, nil)
	of := partsOf("b")
	r.Parts(of, nil)
	r.Registered(of[0], nil, nil)
	r.Registered(of[1], []registry.Registration{{URL: rule}}, nil)
	now := time.Now()
	r.gather(now)
	r.Registered(of[0], nil, registry.ErrAbsent)
	r.Parts(nil, nil) // which ends what follows its rules
	now = now.Add(time.Hour)
	r.gather(now)
	r.gather(now)
	u, err := provider.ParseURL("dubbo://10.0.0.1:20880/b?application=app&interface=b")
	require.NoError(t, err)
	p, _, err := u.Provider()
	require.NoError(t, err)
	r.serve(&instance{id: "1"}, []provider.Provider{p})
	r.gather(now.Add(time.Minute))
	require.Equal(t, 1, r.endpoints(), "nothing in the registry says that it is disabled")
}

// TestInterfacesAreForgotten has a thousand come and go.
func TestInterfacesAreForgotten(t *testing.T) {
	r := newRun(sourceOf(t, zktest.New(), quickly()), nil)
	r.Connection(registry.Connection{Up: true, Fresh: true})
	r.Applications(nil, nil)
	r.Parts(nil, nil)
	now := time.Now()
	r.gather(now)
	for n := range 1000 {
		of := partsOf(fmt.Sprintf("tmp.I%d", n))
		r.Parts(of, nil)
		r.Registered(of[0], nil, nil)
		r.Registered(of[1], nil, nil)
		now = now.Add(time.Minute)
		r.gather(now)
	}
	r.Parts(nil, nil)
	for range 5 {
		now = now.Add(time.Hour)
		r.gather(now)
	}
	r.Parts(partsOf("b"), nil)
	require.LessOrEqual(t, len(r.gather(now).Contents), 1, "those that are gone are not published again")
	require.Len(t, r.interfaces, 1)
}

// TestIPv6InstancesInAGroup has addresses as Java writes them, with colons and without brackets, where interfaces and applications are in
// one place.
func TestIPv6InstancesInAGroup(t *testing.T) {
	s := zktest.New()
	s.Put("/g/app/fd00:0:0:0:0:0:0:5:20880",
		`{"name":"app","address":"fd00:0:0:0:0:0:0:5","port":20880,"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":20880,`+
			`\"protocol\":\"dubbo\"}]","dubbo.metadata.revision":"r1"}}}`)
	s.Put("/g/metadata/app/r1", `{"app":"app","revision":"r1","services":{"b:dubbo":{"name":"b","protocol":"dubbo","port":20880}}}`)
	b := start(t, s, patiently(), func(source *Source) { source.registry = inGroup(s, "g") })
	b.awaitAll("b fd00::5:20880*100")
}

// TestMoreServicesThanAreTakenAreRefused has an instance with more than there is room for.
func TestMoreServicesThanAreTakenAreRefused(t *testing.T) {
	s := newRun(sourceOf(t, zktest.New(), quickly()), nil).state
	s.maxServices = 3
	services := func(names ...string) (all []provider.Provider) {
		for _, n := range names {
			all = append(all, provider.Provider{ID: provider.ID{Interface: n}})
		}
		return all
	}
	one, two := &instance{id: "1", application: "app"}, &instance{id: "2", application: "app"}
	s.serve(one, services("a", "b"))
	s.serve(two, services("a"))
	s.serve(two, services("a", "b"))
	require.Equal(t, 1, two.serviceCount, "what it served stays")
	require.EqualError(t, two.failure, "instance 2 of app: its 2 services are over the limit of 3 services of all instances")
	s.drop(one)
	s.serve(two, services("a", "b", "c"))
	require.Equal(t, 3, two.serviceCount)
	require.Equal(t, 3, s.serviceCount)
}

// TestRestore_UnparsedContentStays has content of an earlier run without objects, while the interfaces may not be read.
func TestRestore_UnparsedContentStays(t *testing.T) {
	r := newRun(sourceOf(t, zktest.New(), quickly()), nil)
	services := func(at time.Time) int {
		r.gather(at)
		r.gather(at)
		count, _ := r.Services()
		return count
	}
	r.restore("a", nil)
	r.Connection(registry.Connection{Up: true, Certain: true})
	r.Parts(nil, registry.ErrDenied)
	r.Applications([]string{"app"}, nil)
	r.Instances("app", nil, nil)
	now := time.Now()
	require.Equal(t, 1, services(now))
	require.Equal(t, 1, services(now.Add(time.Hour)))
	r.Parts(nil, nil)
	require.Zero(t, services(now.Add(2*time.Hour)))
}
