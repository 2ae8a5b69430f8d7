package nacos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
	"tributary/sources/nacos/client"
)

// heard records the calls of a listener, as text.
type heard struct {
	backend.Listener
	calls      []string
	registered map[string][]backend.Registration // by node
	instances  map[string]provider.Instance
}

func newHeard() *heard {
	return &heard{registered: map[string][]backend.Registration{}, instances: map[string]provider.Instance{}}
}

func (h *heard) say(format string, args ...any) {
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
}

func (h *heard) Parts(parts []backend.Part, err error) {
	var nodes []string
	for _, p := range parts {
		nodes = append(nodes, p.Node)
	}
	h.say("parts %v %v", nodes, err)
}

func (h *heard) Applications(names []string, err error) { h.say("applications %v %v", names, err) }

func (h *heard) Registered(part backend.Part, registrations []backend.Registration, err error) {
	h.say("%s %d %v", part.Node, len(registrations), err)
	h.registered[part.Node] = registrations
}

func (h *heard) Instances(application string, ids []string, err error) {
	h.say("instances %s %v %v", application, ids, err)
}

func (h *heard) Instance(application, id string, i provider.Instance, dubbo bool, err error) {
	h.say("instance %s %s %v %v", application, id, dubbo, err)
	h.instances[id] = i
}
func (h *heard) Connection(c backend.Connection) { h.say("connection %v %v", c.Up, c.Denied) }
func (h *heard) CountOthers(count int)           { h.say("%d others", count) }
func (h *heard) Healed(path string)              { h.say("healed %s", path) }

// newCalls returns the calls since the last newCalls.
func (h *heard) newCalls() []string {
	calls := h.calls
	h.calls = nil
	return calls
}

// captured reads the instances that a real Nacos 2.3.2 lists for a service.
func captured(t *testing.T, file string) (service string, instances []client.Instance) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	var doc struct {
		Service string
		Hosts   []json.RawMessage
	}
	require.NoError(t, json.Unmarshal(text, &doc))
	for _, raw := range doc.Hosts {
		i, err := client.ParseInstance(raw)
		require.NoError(t, err)
		instances = append(instances, i)
	}
	require.NotEmpty(t, instances)
	return doc.Service, instances
}

func follow() (*listener, *heard) {
	h := newHeard()
	return &listener{h}, h
}

// TestRegistrations_OfJavaAndGo has the registrations of Dubbo 3.3.6 for Java and dubbo-go 3.3.2.
func TestRegistrations_OfJavaAndGo(t *testing.T) {
	listener, heard := follow()
	listener.Connection(nil)
	java, javas := captured(t, "java-interface.json")
	golang, instances := captured(t, "go-interface.json")
	app, apps := captured(t, "java-application.json")
	goApp, goApps := captured(t, "go-application.json")
	listener.Services("", []string{java, golang, app, goApp, "consumers:demo.GreetService::"}, nil)
	listener.Instances("", java, javas, nil, nil)
	listener.Instances("", golang, instances, nil, nil)
	listener.Instances("", app, apps, nil, nil)
	listener.Instances("", goApp, goApps, nil, nil)

	p, ok, err := heard.registered[java][0].Provider()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, provider.ID{Interface: "demo.GreetService"}, p.ID)
	require.Equal(t, []any{"dubbo", "192.0.2.2", "all-local", uint32(100)}, []any{p.Protocol, p.Host, p.Application, p.Weight()})
	p, ok, err = heard.registered[golang][0].Provider()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, provider.ID{Interface: "com.acme.Greeter", Group: "g1", Version: "1.0.0"}, p.ID)
	require.Equal(t, []any{"tri", "127.0.0.1", "com.acme.Greeter", uint32(100)}, []any{p.Protocol, p.Host, p.Path, p.Weight()})
	require.EqualValues(t, 1795327368000, p.Timestamp)

	i := heard.instances["192.0.2.2:23442"]
	require.Equal(t, "all-local", i.Application)
	require.Equal(t, &provider.MetadataService{Protocol: "dubbo", Port: 23442, Version: "1.0.0"}, i.Service)
	require.Equal(t, []provider.Endpoint{{Protocol: "tri", Port: 23451}}, heard.instances["127.0.0.1:23451"].Endpoints)
}

// TestAddressesInBrackets has the registrations of Dubbo 3.3.6 for Java on IPv6, at both levels.
func TestAddressesInBrackets(t *testing.T) {
	listener, heard := follow()
	const iface = "providers:com.acme.Demo::"
	bracketed, err := client.ParseInstance([]byte(`{"ip":"[0:0:0:0:0:0:0:1]","port":20880,"metadata":{"dubbo.metadata.revision":"x"}}`))
	require.NoError(t, err)
	listener.Services("", []string{iface, "shop"}, nil)
	listener.Instances("", iface, []client.Instance{bracketed}, nil, nil)
	listener.Instances("", "shop", []client.Instance{bracketed}, nil, nil)
	require.Equal(t, "::1", heard.registered[iface][0].Host)
	require.Equal(t, "::1", heard.instances["[::1]:20880"].Host)
}

func instance(ip string, meta ...string) client.Instance {
	i := client.Instance{IP: ip, Port: 20880, Weight: 1, Healthy: true, Enabled: true, Metadata: map[string]string{}}
	for n := 0; n < len(meta); n += 2 {
		i.Metadata[meta[n]] = meta[n+1]
	}
	return i
}

// TestInterfaceVersions_ReadApart has it beside an application.
func TestInterfaceVersions_ReadApart(t *testing.T) {
	listener, h := follow()
	listener.Connection(nil)
	first, second := "providers:a.B:1:", "providers:a.B:2:"
	listener.Services("", []string{first, second, "app"}, nil)
	require.Equal(t, []string{"connection true false", "parts [" + first + " " + second + "] <nil>", "applications [app] <nil>"}, h.newCalls())
	listener.Instances("", first, []client.Instance{instance("10.0.0.1")}, nil, nil)
	listener.Instances("", second, []client.Instance{instance("10.0.0.2")}, []string{"an instance: no"}, nil)
	listener.Instances("", "app", []client.Instance{instance("10.0.0.3", "dubbo.metadata.revision", "r1")}, nil, nil)
	require.Equal(t, []string{
		first + " 1 <nil>", second + " 2 <nil>", "instances app [10.0.0.3:20880] <nil>",
		"instance app 10.0.0.3:20880 true <nil>",
	}, h.newCalls())
	require.Error(t, h.registered[second][1].Err)
	listener.Instances("", second, nil, nil, nil)
	listener.Instances("", "app", nil, nil, nil)
	require.Equal(t, []string{second + " 0 <nil>", "instances app [] <nil>"}, h.newCalls())
	listener.Services("", []string{first}, nil)
	require.Equal(t, []string{"parts [" + first + "] <nil>", "applications [] <nil>"}, h.newCalls())
	listener.Connection(errors.New("no"))
	require.Equal(t, []string{"connection false false"}, h.newCalls())
}

// TestConfigurators_Read has the rules that an administrator registers by Dubbo 3.3.6 for Java and by 2.7.23, as a real
// Nacos 2.3.2 lists them.
func TestConfigurators_Read(t *testing.T) {
	listener, heard := follow()
	listener.Connection(nil)
	everywhere, rules := captured(t, "java-2.7.23-override.json")
	versioned, versionedRules := captured(t, "java-3.3.6-override.json")
	listener.Services("", []string{"providers:demo.Seven::", everywhere, versioned}, nil)
	heard.newCalls()
	listener.Instances("", everywhere, rules, nil, nil)
	listener.Instances("", versioned, versionedRules, nil, nil)
	require.Equal(t, []string{everywhere + " 1 <nil>", versioned + " 1 <nil>"}, heard.newCalls())
	rule, ok := heard.registered[everywhere][0].Configurator()
	require.True(t, ok)
	target := provider.Provider{ID: provider.ID{Interface: "demo.Seven"}, Host: "10.0.0.5", Port: 20880}
	require.EqualValues(t, 33, provider.Configure([]provider.Provider{target}, []provider.Configurator{rule})[0].Weight())
	rule, ok = heard.registered[versioned][0].Configurator()
	require.True(t, ok)
	target.Group, target.Version = "g1", "1.0.0"
	require.Zero(t, provider.Configure([]provider.Provider{target}, []provider.Configurator{rule})[0].Weight(), "it is disabled")
	target.Group = "g2"
	require.EqualValues(t, 100, provider.Configure([]provider.Provider{target}, []provider.Configurator{rule})[0].Weight())

	listener.Services("", []string{"providers:demo.Seven::", versioned}, nil)
	listener.Instances("", everywhere, nil, nil, nil)
	require.Empty(t, heard.registered[everywhere])
}

func TestErrors_Forwarded(t *testing.T) {
	listener, h := follow()
	denied := fmt.Errorf("%w: no", client.ErrDenied)
	listener.Connection(denied)
	listener.Connection(nil)
	listener.Services("", nil, denied)
	listener.Services("", []string{"providers:a.B::", "app"}, nil)
	h.newCalls()
	listener.Instances("", "providers:a.B::", nil, nil, denied)
	listener.Instances("", "app", nil, nil, errors.New("no"))
	require.Equal(t, []string{"providers:a.B:: 0 access denied: access denied: no", "instances app [] no"}, h.newCalls())
}

func TestForeignInstances_NotDubbo(t *testing.T) {
	listener, heard := follow()
	listener.Connection(nil)
	listener.Services("", []string{"orders"}, nil)
	heard.newCalls()
	off, ill, weightless := instance("10.0.0.2"), instance("10.0.0.3"), instance("10.0.0.4")
	off.Enabled, ill.Healthy, weightless.Weight = false, false, 0
	listener.Instances("", "orders", []client.Instance{
		instance("10.0.0.1"), off, ill, weightless,
		instance("10.0.0.5", "dubbo.endpoints", "{"),
	}, nil, nil)
	calls := heard.newCalls()
	require.Equal(t, "instances orders [10.0.0.1:20880 10.0.0.2:20880 10.0.0.3:20880 10.0.0.4:20880 10.0.0.5:20880] <nil>", calls[0])
	require.Equal(t, "instance orders 10.0.0.1:20880 false <nil>", calls[1])
	require.Contains(t, calls[5], "instance orders 10.0.0.5:20880 true dubbo.endpoints")
	for name, want := range map[string][2]string{
		"providers:a.B:1.0:g": {"providers", "a.B"}, "providers:a.B": {"providers", "a.B"}, "providers:": {"providers", ""},
		"configurators:a.B::": {"configurators", "a.B"}, "consumers:a.B::": {"consumers", "a.B"}, "routers:x": {"routers", "x"}, "orders": {},
	} {
		part := partOf(name)
		require.Equal(t, want, [2]string{string(part.Category), part.Interface}, name)
	}
}
