package mapping_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"
	"pgregory.net/rapid"

	"tributary/internal/golden"
	"tributary/resource"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
)

// example is a file of testdata: settings, and nodes as providers and administrators write them.
type example struct {
	Why           string
	Options       mapping.Options
	Nodes         []string
	Configurators []string
	Consumers     []string
}

func TestGolden(t *testing.T) {
	golden.Run(t, func(t *testing.T, g example) string {
		m, err := mapping.New(g.Options, golden.VIPs{})
		require.NoError(t, err)
		var all []provider.Provider
		for _, node := range g.Nodes {
			u, err := provider.ParseNode(node)
			require.NoError(t, err)
			p, ok, err := u.Provider()
			require.NoError(t, err)
			require.True(t, ok)
			all = append(all, p)
		}
		var rules []provider.Configurator
		for _, text := range g.Configurators {
			u, err := provider.ParseURL(text)
			require.NoError(t, err)
			rule, ok := u.Configurator()
			require.True(t, ok)
			rules = append(rules, rule)
		}
		return "# " + g.Why + "\n" + show(t, m, all, rules) + showConsumers(t, m, all, g.Consumers)
	})
}

// mapAll maps providers as the source does.
func mapAll(t require.TestingT, m *mapping.Mapper, all []provider.Provider, rules []provider.Configurator) (rs []*resource.Resource,
	warnings []string,
) {
	services := map[provider.ID]*mapping.Service{}
	for _, p := range provider.Configure(provider.Merge(all), rules) {
		id := m.ServiceOf(p.ID)
		s := services[id]
		if s == nil {
			s = &mapping.Service{ID: id, Place: "zookeeper /dubbo/" + id.Interface}
			services[id] = s
		}
		s.Protocols = append(s.Protocols, p.Protocol)
		e, ok, problem := m.Endpoint(p)
		if problem != "" {
			warnings = append(warnings, fmt.Sprintf("provider %s of %s: %s", p.Host, p.ID, problem))
		}
		if ok {
			s.Endpoints = append(s.Endpoints, e)
		}
	}
	ids := slices.Collect(func(yield func(provider.ID) bool) {
		for id := range services {
			if !yield(id) {
				return
			}
		}
	})
	names := m.Names(ids)
	slices.SortFunc(ids, provider.ID.Compare)
	for _, id := range ids {
		s := services[id]
		s.Name = names[id]
		made, warned, err := m.Entries(*s)
		if err != nil {
			warnings = append(warnings, "reject: "+err.Error())
		}
		rs, warnings = append(rs, made...), append(warnings, warned...)
		rule, err := m.Rule(*s)
		require.NoError(t, err)
		if rule != nil {
			rs = append(rs, rule)
		}
	}
	slices.Sort(warnings)
	requireValid(t, rs)
	return rs, warnings
}

// showConsumers shows what becomes of consumers of providers, by application.
func showConsumers(t *testing.T, m *mapping.Mapper, all []provider.Provider, consumers []string) string {
	var ids []provider.ID
	for _, p := range all {
		ids = append(ids, m.ServiceOf(p.ID))
	}
	names, hosts := m.Names(ids), map[string][]string{}
	for _, node := range consumers {
		u, err := provider.ParseNode(node)
		require.NoError(t, err)
		c, ok := u.Consumer()
		require.True(t, ok)
		c.ID = m.ServiceOf(c.ID)
		hosts[c.Application] = slices.Concat(hosts[c.Application])
		for id, n := range names {
			if c.Consumes(id) {
				hosts[c.Application] = append(hosts[c.Application], n.Host)
			}
		}
	}
	var rs []*resource.Resource
	for _, app := range slices.Sorted(maps.Keys(hosts)) {
		r, err := m.Sidecar(app, hosts[app])
		require.NoError(t, err)
		rs = append(rs, r)
		slices.Sort(hosts[app])
		if app == "short" {
			hosts[app] = []string{"*"}
		}
		require.Equal(t, slices.Compact(hosts[app]), m.Consumed([]*resource.Resource{r})[app])
	}
	requireValid(t, rs)
	return golden.Show(t, rs)
}

func show(t require.TestingT, m *mapping.Mapper, all []provider.Provider, rules []provider.Configurator) string {
	rs, warnings := mapAll(t, m, all, rules)
	return golden.Show(t, rs, warnings...)
}

func requireValid(t require.TestingT, rs []*resource.Resource) {
	keys, owners := map[resource.Key]bool{}, map[string]string{}
	type host struct {
		resolution networking.ServiceEntry_Resolution
		ports      map[uint32]bool
		names      map[string]bool
	}
	hosts := map[string]*host{}
	for _, r := range rs {
		_, err := resource.Validate(r)
		require.NoError(t, err)
		require.False(t, keys[r.Key()], "two objects %s", r.Key())
		keys[r.Key()] = true
		spec, err := r.Spec()
		require.NoError(t, err)
		se, ok := spec.(*networking.ServiceEntry)
		if !ok {
			continue
		}
		require.Len(t, se.Hosts, 1)
		a := r.Annotations()
		owner := fmt.Sprintf("%q %q %q", a["tributary/dubbo-interface"], a["tributary/dubbo-group"], a["tributary/dubbo-version"])
		require.Contains(t, []string{"", owner}, owners[se.Hosts[0]], "two services have host %s", se.Hosts[0])
		owners[se.Hosts[0]] = owner
		h := hosts[se.Hosts[0]]
		if h == nil {
			h = &host{se.Resolution, map[uint32]bool{}, map[string]bool{}}
			hosts[se.Hosts[0]] = h
		}
		require.Equal(t, h.resolution, se.Resolution, "istiod merges only what has one resolution")
		require.Len(t, se.Ports, 1)
		p := se.Ports[0]
		require.False(t, h.ports[p.Number] || h.names[p.Name], "two ports of %s are one", se.Hosts[0])
		h.ports[p.Number], h.names[p.Name] = true, true
		require.False(t, protocol.Parse(p.Protocol).IsUnsupported())
		if se.Resolution == networking.ServiceEntry_DNS {
			require.NotEmpty(t, se.Endpoints)
		}
		for _, e := range se.Endpoints {
			require.Positive(t, e.Weight)
			require.Len(t, e.Ports, 1)
			require.Positive(t, e.Ports[p.Name], "a phantom endpoint")
		}
	}
}

// TestAnyRegistry maps whatever may be in a registry.
func TestAnyRegistry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := mapping.Options{
			HostTemplate: rapid.SampledFrom([]string{"", "{interface}.dubbo", "{group}.{version}.{interface}", "{interface}-{version}"}).Draw(t,
				"template"),
			VIPs:         rapid.SampledFrom([]string{"", "all", "none"}).Draw(t, "vips"),
			LabelParams:  []string{"env", "a/b"},
			Subsets:      rapid.SampledFrom([]string{"", "version", "group"}).Draw(t, "subsets"),
			WarmUp:       rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "warm-up"),
			ServicePorts: rapid.SampledFrom([]map[string]int{nil, {"dubbo": 50051}, {"weird": 20880, "tri": 1}}).Draw(t, "ports"),
		}
		m, err := mapping.New(o, golden.VIPs{})
		require.NoError(t, err)
		all := rapid.SliceOfN(anyProvider(), 1, 8).Draw(t, "providers")
		first := show(t, m, all, nil)
		shuffled := slices.Clone(all)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		require.Equal(t, first, show(t, m, shuffled, nil), "order matters")

		rs, _ := mapAll(t, m, all, nil)
		rs = slices.DeleteFunc(rs, func(r *resource.Resource) bool { return r.Key().Kind != resource.ServiceEntry })
		for i, one := range mapping.Restore(rs) {
			spec, err := rs[i].Spec()
			require.NoError(t, err)
			require.Len(t, one.Endpoints, len(spec.(*networking.ServiceEntry).Endpoints))
		}
	})
}

func anyProvider() *rapid.Generator[provider.Provider] {
	text := rapid.OneOf(rapid.SampledFrom([]string{
		"", "a", "A", "a-b", "a.b", "1", "1.0.0", "0", "-", ".", "..", "a/b", "com.acme.Demo", "com.acme.demo", "com-acme.Demo",
		"com.acme.Demo$Inner",
		"com.acme.Demo-g1", "g1", strings.Repeat("long.", 60) + "Name", strings.Repeat("x", 80), "größe", "中", "a b", "\xff", "*",
	}), rapid.String())
	return rapid.Custom(func(t *rapid.T) provider.Provider {
		p := provider.Provider{
			ID: provider.ID{
				Interface: text.Filter(func(s string) bool { return s != "" }).Draw(t, "interface"),
				Group:     text.Draw(t, "group"), Version: text.Draw(t, "version"),
			},
			Protocol: rapid.OneOf(rapid.SampledFrom([]string{"dubbo", "tri", "rest", "grpc", "weird", "we ird", "we-ird"}),
				rapid.StringN(1, 8, -1)).Draw(t, "protocol"),
			Host: rapid.OneOf(rapid.SampledFrom([]string{
				"10.0.0.5", "10.0.0.6", "::1", "::ffff:10.0.0.7", "fe80::1%eth0", "0.0.0.0",
				"demo-0.demo", "Demo", "localhost", "*.x", "300.1.1.1",
			}), rapid.String()).Draw(t, "host"),
			Port:        rapid.IntRange(1, 65535).Draw(t, "port"),
			Application: text.Draw(t, "application"),
			Timestamp:   int64(rapid.IntRange(0, 3).Draw(t, "timestamp")),
		}
		p.Params = rapid.MapOf(rapid.SampledFrom([]string{
			"weight", "disabled", "enabled", "env", "dubbo.tag", "region", "zone", "aeraki_meta_locality", "aeraki_meta_app_version",
			"aeraki_meta_app_service_account", "aeraki_meta_app_namespace",
		}), rapid.OneOf(text, rapid.SampledFrom([]string{"0", "5", "-1", "true", "false", "bj/800002", "a/b/c/d", "dubbo"}))).Draw(t, "params")
		return p
	})
}

func TestNamesThatClash(t *testing.T) {
	m, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	ids := []provider.ID{
		{Interface: "com.acme.Demo"},
		{Interface: "com.acme.demo"},
		{Interface: "com.acme.DEMO"},
		{Interface: "com.acme_demo"},
		{Interface: "com.acme.Demo", Group: "a-1", Version: "2"},
		{Interface: "com.acme.Demo", Group: "a", Version: "1.2"},
	}
	names := m.Names(ids)
	seen := map[string]bool{}
	for _, n := range names {
		require.False(t, seen[n.Host])
		seen[n.Host] = true
	}
	require.Equal(t, "com.acme.demo", names[ids[1]].Host, "the one whose name it is")
	alone := m.Names(ids[:1])
	require.Equal(t, "com.acme.demo", alone[ids[0]].Host)
	target := provider.ID{Interface: "com.acme.Demo", Group: "g1", Version: "1.0.0"}
	require.Equal(t, "com.acme.demo-g1-1-0-0", m.Names([]provider.ID{target})[target].Host)
}

func TestOptions(t *testing.T) {
	for key, o := range map[string]mapping.Options{
		"hostTemplate": {HostTemplate: "{service}.x"},
		"namespace":    {Namespace: "No"},
		"vips":         {VIPs: "some"},
		"labelParams":  {LabelParams: []string{"a b"}},
		"subsets":      {Subsets: "zone"},
		"warmUp":       {WarmUp: -time.Second},

		"sidecars.namespace": {Sidecars: &mapping.Sidecars{Namespace: "No"}},
		"sidecars.label":     {Sidecars: &mapping.Sidecars{Label: "a b"}},
		"sidecars.hosts":     {Sidecars: &mapping.Sidecars{Hosts: []string{"everything"}}},

		"servicePorts": {ServicePorts: map[string]int{"dubbo": 1, "tri": 1}},
	} {
		_, err := mapping.New(o, nil)
		require.ErrorContains(t, err, key+": ")
	}
}

// TestAServiceHasNotEveryProtocol has more of them than there is room for.
func TestAServiceHasNotEveryProtocol(t *testing.T) {
	m, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	id := provider.ID{Interface: "a"}
	s := mapping.Service{ID: id, Name: m.Names([]provider.ID{id})[id], Protocols: []string{"dubbo", "tri"}}
	for n := range 10_001 {
		s.Protocols = append(s.Protocols, fmt.Sprintf("p%d", n))
	}
	rs, warnings, err := m.Entries(s)
	require.NoError(t, err)
	require.Len(t, rs, 64)
	require.Equal(t, "a", rs[0].Key().Name, "those that Dubbo has come first")
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "9939 protocols are left out")
}

// TestRestoredEndpointsHaveTheirApplications has names that no label can have.
func TestRestoredEndpointsHaveTheirApplications(t *testing.T) {
	m, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	id := provider.ID{Interface: "a"}
	s := mapping.Service{ID: id, Name: m.Names([]provider.ID{id})[id]}
	applications := []string{"", "订单", "订单", "a b*2", "demo"}
	for n, a := range applications {
		p := provider.Provider{ID: id, Protocol: "dubbo", Host: fmt.Sprintf("10.0.0.%d", n+1), Port: 20880, Application: a}
		e, ok, _ := m.Endpoint(p)
		require.True(t, ok)
		s.Endpoints = append(s.Endpoints, e)
	}
	rs, _, err := m.Entries(s)
	require.NoError(t, err)
	var got []string
	for _, e := range mapping.Restore(rs)[0].Endpoints {
		got = append(got, e.Application)
	}
	require.Equal(t, applications, got)
}
