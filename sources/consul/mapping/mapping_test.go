package mapping_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/mapping"
	"tributary/sources/registry"
	"tributary/sources/sourcetest"
)

func newMapper(t *testing.T, o mapping.Options) *mapping.Mapper {
	t.Helper()
	m, err := mapping.New(o, sourcetest.VIPs{})
	require.NoError(t, err)
	return m
}

// http returns a service with an instance on each port.
func http(name string, ports ...int) []mapping.Service {
	service := mapping.Service{Name: name, Datacenter: "dc1"}
	for _, port := range ports {
		entry := consultest.Instance(name, name, "10.0.0.1", port)
		entry.Service.Meta = map[string]string{"protocol": "http"}
		service.Entries = append(service.Entries, entry)
	}
	return []mapping.Service{service}
}

func hostOf(t *testing.T, rs []*resource.Resource) string {
	t.Helper()
	require.NotEmpty(t, rs)
	return spec(t, rs[0]).(*networking.ServiceEntry).Hosts[0]
}

func portOf(t *testing.T, rs []*resource.Resource) uint32 {
	t.Helper()
	require.NotEmpty(t, rs)
	return spec(t, rs[0]).(*networking.ServiceEntry).Ports[0].Number
}

// The first name of each row has the host, in any order of names; the others have hosts with a suffix.
func TestHosts_Clash(t *testing.T) {
	for _, names := range [][]string{
		{"web-api", "web.api", "web_api"}, {"Web-API", "web.api", "web_api"}, {"a.b", "a_b"}, {"x", "-x"},
	} {
		forward, backward := map[string]string{}, map[string]string{}
		for got, order := range map[*map[string]string][]string{&forward: names, &backward: reversed(names)} {
			m := newMapper(t, mapping.Options{})
			m.Names(order)
			for _, name := range order {
				rs, rejects, warnings := mapped(m, name, http(name, 80))
				require.Empty(t, rejects)
				(*got)[name] = hostOf(t, rs)
				if name == names[0] {
					require.Empty(t, warnings)
				} else {
					require.Len(t, warnings, 1)
					require.Contains(t, warnings[0], `would be that of "`+names[0]+`"`)
				}
			}
		}
		require.Equal(t, forward, backward)
		hosts := map[string]bool{}
		for _, h := range forward {
			hosts[h] = true
		}
		require.Len(t, hosts, len(names))
		require.NotContains(t, strings.TrimSuffix(forward[names[0]], ".service.consul"), ".")
	}
}

// Names that differ by case only are one service to Consul, which answers for each with the instances of all (seen:
// Consul 1.22.7).
func TestServiceNames_DifferByCase(t *testing.T) {
	mapper := newMapper(t, mapping.Options{})
	mapper.Names([]string{"SHOP", "Shop", "shop"})
	for _, name := range []string{"Shop", "SHOP"} {
		rs, rejects, warnings := mapped(mapper, name, http(name, 80, 81))
		require.Empty(t, rs)
		require.Empty(t, rejects)
		require.Equal(t, []string{"consul service " + name + `: to Consul it is the same as "shop", and is served as that`}, warnings)
	}
	resources, _, warnings := mapped(mapper, "shop", http("shop", 80, 81))
	require.Equal(t, "shop.service.consul", hostOf(t, resources))
	require.Empty(t, warnings)

	require.Equal(t, []string{"SHOP"}, mapper.Names([]string{"SHOP", "Shop"}), "that name has gone")
	resources, _, _ = mapped(mapper, "SHOP", http("SHOP", 80))
	require.Equal(t, "shop.service.consul", hostOf(t, resources))

	mapper.Names([]string{"a-b", "A_b", "a_B"})
	resources, _, _ = mapped(mapper, "A_b", http("A_b", 80))
	require.Regexp(t, `^a-b-[0-9a-f]{16}\.service\.consul$`, hostOf(t, resources))
	resources, _, _ = mapped(mapper, "a_B", http("a_B", 80))
	require.Empty(t, resources)
	require.Equal(t, []string{"a_B"}, mapper.Names([]string{"a-b", "a_B"}), "the one that stood for it has gone")
	resources, _, _ = mapped(mapper, "a_B", http("a_B", 80))
	require.Regexp(t, `^a-b-[0-9a-f]{16}\.service\.consul$`, hostOf(t, resources))
}

// A name that comes later and fits better takes the host over, and the one that had it is to be mapped again.
func TestHosts_LaterNameTakesOver(t *testing.T) {
	mapper := newMapper(t, mapping.Options{})
	require.Empty(t, mapper.Names([]string{"web_api"}))
	resources, _, _ := mapped(mapper, "web_api", http("web_api", 80))
	require.Equal(t, "web-api.service.consul", hostOf(t, resources))

	require.Equal(t, []string{"web_api"}, mapper.Names([]string{"web_api", "web-api"}))
	require.Empty(t, mapper.Names([]string{"web-api", "web_api"}), "an unchanged list changes no host")
	resources, _, _ = mapped(mapper, "web-api", http("web-api", 80))
	require.Equal(t, "web-api.service.consul", hostOf(t, resources))
	resources, _, _ = mapped(mapper, "web_api", http("web_api", 80))
	require.NotEqual(t, "web-api.service.consul", hostOf(t, resources))

	require.Equal(t, []string{"web_api"}, mapper.Names([]string{"web_api"}))
	resources, _, warnings := mapped(mapper, "web_api", http("web_api", 80))
	require.Equal(t, "web-api.service.consul", hostOf(t, resources))
	require.Empty(t, warnings)
}

// After a restart the ports are those that were published, not those that would be chosen now.
func TestRestore(t *testing.T) {
	mapper := newMapper(t, mapping.Options{})
	published, _, _ := mapped(mapper, "reviews", http("reviews", 9080))

	mapper = newMapper(t, mapping.Options{})
	mapper.Restore(published)
	resources, rejects, _ := mapped(mapper, "reviews", http("reviews", 9090))
	require.Empty(t, rejects)
	require.EqualValues(t, 9080, portOf(t, resources))

	mapper = newMapper(t, mapping.Options{})
	mapper.Restore(published)
	resources, rejects, _ = mapped(mapper, "reviews", http("reviews"))
	require.Empty(t, rejects)
	require.EqualValues(t, 9080, portOf(t, resources), "without instances the ports are kept")

	resources, _, _ = mapped(mapper, "reviews", nil)
	require.Empty(t, resources)
	resources, _, _ = mapped(mapper, "reviews", http("reviews", 9090))
	require.EqualValues(t, 9090, portOf(t, resources), "a service that was gone is a new one")
}

// Ports of several ServiceEntries are restored with their order and all.
func TestRestoreOfSplitPorts(t *testing.T) {
	services := http("reviews", 80, 81)
	services[0].Entries[1].Service.Ports = api.ServicePorts{{Name: "Main_Port", Port: 81, Default: true}, {Name: "http", Port: 82}}
	mapper := newMapper(t, mapping.Options{})
	published, _, _ := mapped(mapper, "reviews", services)
	require.Greater(t, len(published), 1)
	mapper = newMapper(t, mapping.Options{})
	mapper.Restore(published)
	restored, _, _ := mapped(mapper, "reviews", services)
	require.Equal(t, show(t, published, nil, nil), show(t, restored, nil, nil))
}

func TestOptions_Validated(t *testing.T) {
	for option, options := range map[string]mapping.Options{
		`hostTemplate: "consul"`:              {MappingOptions: registry.MappingOptions{HostTemplate: "consul"}},
		"hostTemplate: unknown {name};":       {MappingOptions: registry.MappingOptions{HostTemplate: "{service}.{name}.x"}},
		`hostTemplate: "a.b" has no {service`: {MappingOptions: registry.MappingOptions{HostTemplate: "a.b"}},
		`hostTemplate: "{service}.1"`:         {MappingOptions: registry.MappingOptions{HostTemplate: "{service}.1"}},
		`hostTemplate: "{service}.a_b.c"`:     {MappingOptions: registry.MappingOptions{HostTemplate: "{service}.a_b.c"}},
		`hostTemplate: "a.{service}"`:         {MappingOptions: registry.MappingOptions{HostTemplate: "a.{service}"}},
		`hostTemplate: "{service}-{peer}.x"`:  {MappingOptions: registry.MappingOptions{HostTemplate: "{service}-{peer}.x"}},
		`namespace: "A"`:                      {MappingOptions: registry.MappingOptions{Namespace: "A"}},
		`defaultProtocol: `:                   {MappingOptions: registry.MappingOptions{DefaultProtocol: "dubbo"}},
		"servicePort: want 1 to 65535":        {MappingOptions: registry.MappingOptions{ServicePort: 70000}},
		"tagSeparators: ":                     {TagSeparators: []string{"=", ""}},
		`labelPrefix: "a/b/"`:                 {LabelPrefix: "a/b/"},
		`labelTags: "a b"`:                    {Tags: []string{"a b"}},
		`localityFrom: "none" stands`:         {LocalityFrom: []string{"meta", "none"}},
		`localityFrom: "zone" is none of`:     {LocalityFrom: []string{"zone"}},
		`strictChecks: "ok" is none of`:       {StrictChecks: []string{"ok"}},
		`endpoints: "x" is none of`:           {Endpoints: "x"},
		"vips: want tcp, all or none, got":    {MappingOptions: registry.MappingOptions{VIPs: "x"}},
		`aliases: "x" is none of`:             {Aliases: "x"},
	} {
		_, err := mapping.New(options, nil)
		require.ErrorContains(t, err, option)
	}
}

func reversed(names []string) []string {
	names = slices.Clone(names)
	slices.Reverse(names)
	return names
}
