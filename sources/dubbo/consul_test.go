package dubbo

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources/consul"
	consulmapping "tributary/sources/consul/mapping"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
)

// inConsul is a mapper of Dubbo's services in Consul, its clock, and what it made of each.
type inConsul struct {
	t   *testing.T
	m   *consulMapper
	now time.Time
	had map[string][]*resource.Resource
}

func newInConsul(t *testing.T) *inConsul {
	c := &inConsul{t: t, now: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), had: map[string][]*resource.Resource{}}
	c.restart()
	return c
}

// restart is a mapper of a later run, which is told what the one before had made.
func (c *inConsul) restart() {
	m, err := mapping.New(mapping.Options{VIPs: "none"}, nil)
	require.NoError(c.t, err)
	c.m = newConsulMapper(m, time.Hour, func() time.Time { return c.now })
	for _, rs := range c.had {
		c.m.Restore(rs)
	}
}

// take has the mapper map interfaces, and returns which others it wants to map again.
func (c *inConsul) take(all map[string][]*api.ServiceEntry) (again []string) {
	in := map[string][]consulmapping.Service{}
	for name, entries := range all {
		in[name] = []consulmapping.Service{{Name: name, Datacenter: "dc1", Entries: entries}}
	}
	again = c.m.Prepare(in)
	for name := range in {
		rs, rejects, _ := c.m.Service(name, in[name])
		require.Empty(c.t, rejects)
		c.had[name] = rs
	}
	return again
}

// holds returns what was made last of an interface: host, then endpoints.
func (c *inConsul) holds(name string) (all []string) {
	for _, r := range c.had[name] {
		spec, err := r.Spec()
		require.NoError(c.t, err)
		se := spec.(*networking.ServiceEntry)
		text := r.Key().Name + " " + se.Hosts[0]
		for _, e := range se.Endpoints {
			text += fmt.Sprintf(" %s*%d", e.Address, e.Weight)
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

func inService(iface, host, version, status string) *api.ServiceEntry {
	return &api.ServiceEntry{
		Node: &api.Node{Node: "n1", Address: "10.0.0.1"},
		Service: &api.AgentService{
			ID: host + version, Service: iface, Address: host, Port: 20880, Tags: []string{"dubbo"},
			Meta: map[string]string{"url": "dubbo://" + host + ":20880/" + iface + "?application=a&interface=" + iface + "&version=" + version},
		},
		Checks: api.HealthChecks{{Node: "n1", ServiceID: host + version, CheckID: "service:" + host + version, Status: status}},
	}
}

func TestServicesInConsul(t *testing.T) {
	c := newInConsul(t)
	one, two := inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing"), inService("com.acme.Demo", "10.0.0.6", "2.0.0", "passing")
	c.take(map[string][]*api.ServiceEntry{"com.acme.Demo": {one, two}})
	require.Equal(t, []string{"com-acme-demo-1-0-0 com.acme.demo-1-0-0 10.0.0.5*100", "com-acme-demo-2-0-0 com.acme.demo-2-0-0 10.0.0.6*100"}, c.holds("com.acme.Demo"))

	one.Checks[0].Status = "critical"
	c.take(map[string][]*api.ServiceEntry{"com.acme.Demo": {one, two}})
	require.Equal(t, []string{"com-acme-demo-1-0-0 com.acme.demo-1-0-0", "com-acme-demo-2-0-0 com.acme.demo-2-0-0 10.0.0.6*100"}, c.holds("com.acme.Demo"),
		"a version without a provider stays, without endpoints")
	c.now = c.now.Add(30 * time.Minute)
	c.restart()
	c.take(map[string][]*api.ServiceEntry{"com.acme.Demo": nil})
	require.Equal(t, []string{"com-acme-demo-1-0-0 com.acme.demo-1-0-0", "com-acme-demo-2-0-0 com.acme.demo-2-0-0"}, c.holds("com.acme.Demo"), "also over a restart")
	c.take(map[string][]*api.ServiceEntry{"com.acme.Demo": {two}})
	c.now = c.now.Add(time.Hour)
	c.take(map[string][]*api.ServiceEntry{"com.acme.Demo": {two}})
	require.Equal(t, []string{"com-acme-demo-2-0-0 com.acme.demo-2-0-0 10.0.0.6*100"}, c.holds("com.acme.Demo"), "for as long as it is kept")

	again := c.m.Prepare(map[string][]consulmapping.Service{"com.acme.Demo": {}})
	require.Empty(t, again)
	rs, rejects, warnings := c.m.Service("com.acme.Demo", nil)
	require.Empty(t, rs, "it is withdrawn")
	require.Empty(t, rejects)
	require.Empty(t, warnings)
	require.Empty(t, c.m.state.records)
	require.Empty(t, c.m.state.interfaces)
}

// TestProvidersThatAreSilentInConsul shows that who is known stays when an agent has begun anew and not heard of it yet, and who is not is none.
func TestProvidersThatAreSilentInConsul(t *testing.T) {
	c := newInConsul(t)
	one, two := inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing"), inService("com.acme.Demo", "10.0.0.6", "1.0.0", "critical")
	one.Checks[0].Type, two.Checks[0].Type = "ttl", "ttl"
	all := map[string][]*api.ServiceEntry{"com.acme.Demo": {one, two}}
	known, none := []string{"com-acme-demo-1-0-0 com.acme.demo-1-0-0 10.0.0.5*100"}, []string{"com-acme-demo-1-0-0 com.acme.demo-1-0-0"}
	c.take(all)
	require.Equal(t, known, c.holds("com.acme.Demo"), "two registered, and was not heard of")
	one.Checks[0].Status = "critical"
	c.take(all)
	require.Equal(t, known, c.holds("com.acme.Demo"), "the agent began anew")
	one.Checks[0].Output = "TTL expired"
	c.take(all)
	require.Equal(t, none, c.holds("com.acme.Demo"), "it was silent for too long")
}

func TestConfiguratorsInConsul(t *testing.T) {
	c := newInConsul(t)
	rule := inService("com.acme.Demo", "0.0.0.0", "", "passing")
	rule.Service.Meta["url"] = "override://0.0.0.0/com.acme.Demo?category=configurators&dynamic=false&enabled=true&version=1.0.0&weight=33"
	c.take(map[string][]*api.ServiceEntry{"com.acme.Demo": {inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing"), rule}})
	require.Equal(t, []string{"com-acme-demo-1-0-0 com.acme.demo-1-0-0 10.0.0.5*33"}, c.holds("com.acme.Demo"))
	silent := inService("com.acme.Demo", "0.0.0.0", "", "critical")
	silent.Service.Meta["url"], silent.Checks[0].Type = rule.Service.Meta["url"], "ttl"
	c.take(map[string][]*api.ServiceEntry{"com.acme.Demo": {inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing"), silent}})
	require.Equal(t, []string{"com-acme-demo-1-0-0 com.acme.demo-1-0-0 10.0.0.5*33"}, c.holds("com.acme.Demo"), "its agent began anew")
}

func TestWhatCannotBeReadInConsulHoldsUpNobody(t *testing.T) {
	c := newInConsul(t)
	odd := inService("com.acme.Demo", "10.0.0.6", "1.0.0", "passing")
	odd.Service.Meta["url"] = "nothing"
	c.take(map[string][]*api.ServiceEntry{"com.acme.Demo": {odd, inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing")}})
	require.Equal(t, []string{"com-acme-demo-1-0-0 com.acme.demo-1-0-0 10.0.0.5*100"}, c.holds("com.acme.Demo"))
	_, _, warnings := c.m.Service("com.acme.Demo", nil)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], `consul service com.acme.Demo: instance "10.0.0.61.0.0" on node "n1": "nothing"`)
}

// TestNamesInConsulThatAreAlike has the nearer one of two names take a host, and the other one published again.
func TestNamesInConsulThatAreAlike(t *testing.T) {
	c := newInConsul(t)
	require.Empty(t, c.take(map[string][]*api.ServiceEntry{"com.acme.DEMO": {inService("com.acme.DEMO", "10.0.0.5", "", "passing")}}))
	require.Equal(t, []string{"com-acme-demo com.acme.demo 10.0.0.5*100"}, c.holds("com.acme.DEMO"))
	again := c.take(map[string][]*api.ServiceEntry{"com.acme.demo": {inService("com.acme.demo", "10.0.0.6", "", "passing")}})
	require.Equal(t, []string{"com.acme.DEMO"}, again)
	require.Equal(t, []string{"com-acme-demo com.acme.demo 10.0.0.6*100"}, c.holds("com.acme.demo"))
	rs, _, _ := c.m.Service("com.acme.DEMO", nil)
	require.Len(t, rs, 1)
	require.NotEqual(t, "com-acme-demo", rs[0].Key().Name)
}

func TestAddressesOfConsul(t *testing.T) {
	for address, want := range map[string]string{
		"consul://h:8500?kind=dubbo":                                               "consul://h:8500",
		"consul://h:8500?kind=dubbo&dc=b&consul-watch-timeout=1000&ns=n":           "consul://h:8500?dc=b&ns=n",
		"consul+https:///?kind=dubbo&partition=p&registry-type=service&check=true": "consul+https:///?partition=p",
	} {
		got, err := consulAddress(address)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := consulAddress("consul://h:8500?kind=dubbo&token=verysecret")
	require.ErrorContains(t, err, "tokenFile")
	require.NotContains(t, err.Error(), "verysecret")
	for _, c := range []struct {
		settings ConsulSettings
		want     string
	}{
		{ConsulSettings{Reading: consul.Settings{Services: []string{""}}}, "interfaces: entry 1 is empty"},
		{ConsulSettings{Reading: consul.Settings{Skip: []string{"a", "a"}}}, "skipInterfaces: a is there twice"},
		{ConsulSettings{KeepEmpty: 48 * time.Hour}, "keepEmpty: want 1ms to 24h0m0s, got 48h0m0s"},
		{ConsulSettings{Mapping: mapping.Options{HostTemplate: "x"}}, `hostTemplate: "x" does not contain {interface}`},
	} {
		_, err := NewConsul("consul://h:8500?kind=dubbo", c.settings)
		require.EqualError(t, err, c.want)
	}
}

// TestSilenceInConsulSavesNoOtherPort has two providers of an application on one host, of which one fails and nothing is heard of the other.
func TestSilenceInConsulSavesNoOtherPort(t *testing.T) {
	c := newInConsul(t)
	on := func(port int) *api.ServiceEntry {
		e := inService("com.acme.Demo", "10.0.0.5", "1.0.0", "passing")
		e.Service.ID = fmt.Sprint(port)
		e.Service.Meta["url"] = fmt.Sprintf("dubbo://10.0.0.5:%d/com.acme.Demo?application=a&interface=com.acme.Demo&version=1.0.0", port)
		e.Checks[0].Type, e.Checks[0].ServiceID = "ttl", e.Service.ID
		return e
	}
	one, two := on(20880), on(20881)
	all := map[string][]*api.ServiceEntry{"com.acme.Demo": {one, two}}
	c.take(all)
	require.Equal(t, 2, c.m.state.endpoints())
	one.Checks[0].Status, one.Checks[0].Output = "critical", "TTL expired"
	two.Checks[0].Status = "critical"
	c.take(all)
	require.Equal(t, 1, c.m.state.endpoints())
	require.EqualValues(t, 20881, c.m.state.records["com.acme.Demo"][provider.ID{Interface: "com.acme.Demo", Version: "1.0.0"}].endpoints[0].Of.Port)
}
