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

	"tributary/resource"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/registry"
	"tributary/sources/sourcetest"
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
	sourcetest.RunGolden(t, func(t *testing.T, g example) string {
		mapper, err := mapping.New(g.Options, "zookeeper /dubbo/", sourcetest.VIPs{})
		require.NoError(t, err)
		var providers []provider.Provider
		for _, node := range g.Nodes {
			u, err := provider.ParseNode(node)
			require.NoError(t, err)
			p, ok, err := u.Provider()
			require.NoError(t, err)
			require.True(t, ok)
			providers = append(providers, p)
		}
		var rules []provider.Configurator
		for _, text := range g.Configurators {
			u, err := provider.ParseURL(text)
			require.NoError(t, err)
			rule, ok := u.Configurator()
			require.True(t, ok)
			rules = append(rules, rule)
		}
		return "# " + g.Why + "\n" + show(t, mapper, providers, rules) + showConsumers(t, mapper, providers, g.Consumers)
	})
}

// mapAll maps providers as the source does.
func mapAll(t require.TestingT, m *mapping.Mapper, providers []provider.Provider, rules []provider.Configurator) (rs []*resource.Resource,
	warnings []string,
) {
	hosts := map[mapping.ID]map[mapping.ID]*registry.Service[mapping.ID]{}
	for _, p := range provider.Configure(provider.Merge(providers), rules) {
		id := mapping.ID{Service: m.ServiceOf(p.ID), Protocol: p.Protocol}
		host := m.Host(id)
		if hosts[host] == nil {
			hosts[host] = map[mapping.ID]*registry.Service[mapping.ID]{}
		}
		service := hosts[host][id]
		if service == nil {
			service = &registry.Service[mapping.ID]{ID: id}
			hosts[host][id] = service
		}
		endpoint, ok, problem := m.Endpoint(p)
		if problem != "" {
			warnings = append(warnings, fmt.Sprintf("provider %s of %s: %s", p.Host, p.ID, problem))
		}
		if ok && !slices.ContainsFunc(service.Endpoints, func(o registry.Endpoint) bool { return o.Compare(endpoint) == 0 }) {
			service.Endpoints = append(service.Endpoints, endpoint)
		}
	}
	names := m.Names(slices.Collect(maps.Keys(hosts)))
	for _, host := range slices.SortedFunc(maps.Keys(hosts), mapping.ID.Compare) {
		var services []registry.Service[mapping.ID]
		for _, id := range slices.SortedFunc(maps.Keys(hosts[host]), mapping.ID.Compare) {
			s := hosts[host][id]
			s.Name = names[host]
			slices.SortFunc(s.Endpoints, registry.Endpoint.Compare)
			services = append(services, *s)
		}
		entries, warned, err := m.Entries(services)
		if err != nil {
			warnings = append(warnings, "reject: "+err.Error())
		}
		rs, warnings = append(rs, entries...), append(warnings, warned...)
	}
	slices.Sort(warnings)
	requireValid(t, rs)
	return rs, warnings
}

// showConsumers shows the Sidecars of consumers of providers, by application.
func showConsumers(t *testing.T, mapper *mapping.Mapper, providers []provider.Provider, consumers []string) string {
	var ids []mapping.ID
	for _, p := range providers {
		ids = append(ids, mapping.ID{Service: mapper.ServiceOf(p.ID)})
	}
	names, hosts := mapper.Names(ids), map[string][]string{}
	for _, node := range consumers {
		u, err := provider.ParseNode(node)
		require.NoError(t, err)
		consumer, ok := u.Consumer()
		require.True(t, ok)
		consumer.ID = mapper.ServiceOf(consumer.ID)
		hosts[consumer.Application] = slices.Concat(hosts[consumer.Application])
		for id, n := range names {
			if consumer.Consumes(id.Service) {
				hosts[consumer.Application] = append(hosts[consumer.Application], n.Host)
			}
		}
	}
	var resources []*resource.Resource
	for _, app := range slices.Sorted(maps.Keys(hosts)) {
		r, err := mapper.Sidecar(app, hosts[app])
		require.NoError(t, err)
		resources = append(resources, r)
		slices.Sort(hosts[app])
		if app == "short" {
			hosts[app] = []string{"*"}
		}
		require.Equal(t, slices.Compact(hosts[app]), mapper.Consumed([]*resource.Resource{r})[app])
	}
	requireValid(t, resources)
	return sourcetest.Show(t, resources)
}

func show(t require.TestingT, m *mapping.Mapper, providers []provider.Provider, rules []provider.Configurator) string {
	rs, warnings := mapAll(t, m, providers, rules)
	return sourcetest.Show(t, rs, warnings...)
}

func requireValid(t require.TestingT, resources []*resource.Resource) {
	keys, owners := map[resource.Key]bool{}, map[string]string{}
	type host struct {
		resolution networking.ServiceEntry_Resolution
		ports      map[uint32]bool
		names      map[string]bool
	}
	hosts := map[string]*host{}
	for _, r := range resources {
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
		require.Equal(t, h.resolution, se.Resolution, "istiod merges only ServiceEntries with the same resolution")
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
		options := mapping.Options{
			HostTemplate: rapid.SampledFrom([]string{"", "{interface}.dubbo", "{group}.{version}.{interface}", "{interface}-{version}"}).Draw(t,
				"template"),
			VIPs:         rapid.SampledFrom([]string{"", "all", "none"}).Draw(t, "vips"),
			LabelParams:  []string{"env", "a/b"},
			Subsets:      rapid.SampledFrom([]string{"", "version", "group"}).Draw(t, "subsets"),
			WarmUp:       rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "warm-up"),
			ServicePorts: rapid.SampledFrom([]map[string]int{nil, {"dubbo": 50051}, {"weird": 20880, "tri": 1}}).Draw(t, "ports"),
		}
		mapper, err := mapping.New(options, "zookeeper /dubbo/", sourcetest.VIPs{})
		require.NoError(t, err)
		providers := rapid.SliceOfN(anyProvider(), 1, 8).Draw(t, "providers")
		first := show(t, mapper, providers, nil)
		shuffled := slices.Clone(providers)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		require.Equal(t, first, show(t, mapper, shuffled, nil), "order matters")

		rs, _ := mapAll(t, mapper, providers, nil)
		rs = slices.DeleteFunc(rs, func(r *resource.Resource) bool { return r.Key().Kind != resource.ServiceEntry })
		want, got := 0, 0
		for _, r := range rs {
			spec, err := r.Spec()
			require.NoError(t, err)
			want += len(spec.(*networking.ServiceEntry).Endpoints)
		}
		for _, service := range mapper.Restore(rs) {
			got += len(service.Endpoints)
		}
		require.Equal(t, want, got)
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

func TestHostNames_Clash(t *testing.T) {
	mapper, err := mapping.New(mapping.Options{}, "zookeeper /dubbo/", nil)
	require.NoError(t, err)
	ids := []mapping.ID{
		{Service: provider.ID{Interface: "com.acme.Demo"}},
		{Service: provider.ID{Interface: "com.acme.demo"}},
		{Service: provider.ID{Interface: "com.acme.DEMO"}},
		{Service: provider.ID{Interface: "com.acme_demo"}},
		{Service: provider.ID{Interface: "com.acme.Demo", Group: "a-1", Version: "2"}},
		{Service: provider.ID{Interface: "com.acme.Demo", Group: "a", Version: "1.2"}},
	}
	names := mapper.Names(ids)
	seen := map[string]bool{}
	for _, n := range names {
		require.False(t, seen[n.Host])
		seen[n.Host] = true
	}
	require.Equal(t, "com.acme.demo", names[ids[1]].Host, "the service with exactly this name")
	alone := mapper.Names(ids[:1])
	require.Equal(t, "com.acme.demo", alone[ids[0]].Host)
	target := mapping.ID{Service: provider.ID{Interface: "com.acme.Demo", Group: "g1", Version: "1.0.0"}}
	require.Equal(t, "com.acme.demo-g1-1-0-0", mapper.Names([]mapping.ID{target})[target].Host)
}

func TestOptions(t *testing.T) {
	for key, options := range map[string]mapping.Options{
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
		_, err := mapping.New(options, "zookeeper /dubbo/", nil)
		require.ErrorContains(t, err, key+": ")
	}
}

// TestProtocols_LimitedForService has more of them than there is room for.
func TestProtocols_LimitedForService(t *testing.T) {
	mapper, err := mapping.New(mapping.Options{}, "zookeeper /dubbo/", nil)
	require.NoError(t, err)
	id := provider.ID{Interface: "a"}
	var host []registry.Service[mapping.ID]
	for n := range 10_003 {
		protocol := map[int]string{0: "dubbo", 1: "tri"}[n]
		if protocol == "" {
			protocol = fmt.Sprintf("p%d", n-2)
		}
		host = append(host, registry.Service[mapping.ID]{
			ID: mapping.ID{Service: id, Protocol: protocol}, Name: registry.Name{Host: "a", Object: "a"},
		})
	}
	rs, warnings, err := mapper.Entries(host)
	require.NoError(t, err)
	require.Len(t, rs, 64)
	require.Equal(t, "a", rs[0].Key().Name, "those that Dubbo has come first")
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "9939 protocols are left out")
}

// TestRestoredEndpoints_KeepApplications has names that no label can have.
func TestRestoredEndpoints_KeepApplications(t *testing.T) {
	mapper, err := mapping.New(mapping.Options{}, "zookeeper /dubbo/", nil)
	require.NoError(t, err)
	id := provider.ID{Interface: "a"}
	s := registry.Service[mapping.ID]{ID: mapping.ID{Service: id, Protocol: "dubbo"}, Name: registry.Name{Host: "a", Object: "a"}}
	applications := []string{"", "订单", "订单", "a b*2", "demo"}
	for n, a := range applications {
		p := provider.Provider{ID: id, Protocol: "dubbo", Host: fmt.Sprintf("10.0.0.%d", n+1), Port: 20880, Application: a}
		e, ok, _ := mapper.Endpoint(p)
		require.True(t, ok)
		s.Endpoints = append(s.Endpoints, e)
	}
	rs, _, err := mapper.Entries([]registry.Service[mapping.ID]{s})
	require.NoError(t, err)
	var got []string
	for _, s := range mapper.Restore(rs) {
		got = append(got, s.Endpoints[0].Instance)
	}
	require.Equal(t, applications, got)
}

// TestEntries_ClusterHost has providers of an interface that is the host of a Kubernetes Service.
func TestEntries_ClusterHost(t *testing.T) {
	for _, interfaceName := range []string{"payments.prod.svc.cluster.local", "Payments.Prod.SVC.cluster.local", "payments.prod.svc"} {
		for _, hosts := range []string{"", registry.AnyHosts} {
			m, err := mapping.New(mapping.Options{Hosts: hosts}, "zookeeper /dubbo/", sourcetest.VIPs{})
			require.NoError(t, err)
			id := provider.ID{Interface: interfaceName}
			rs, warnings := mapAll(t, m, []provider.Provider{{ID: id, Protocol: "dubbo", Host: "10.0.0.1", Port: 20880}}, nil)
			if hosts == registry.AnyHosts {
				require.NotEmpty(t, rs)
				continue
			}
			require.Empty(t, rs)
			require.Contains(t, strings.Join(warnings, "\n"), "reject: zookeeper /dubbo/"+interfaceName+": its host "+strings.ToLower(interfaceName))
		}
	}
}
