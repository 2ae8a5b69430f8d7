package mapping_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/resource"
	"tributary/sources/nacos/client"
	"tributary/sources/nacos/mapping"
	"tributary/sources/registry"
	"tributary/sources/sourcetest"
)

// example is a file of testdata: settings, and instances.
type example struct {
	Why       string
	Namespace string
	Options   mapping.Options
	Instances []registered
}

type registered struct {
	Group, Service string
	client.Instance
}

func TestGolden(t *testing.T) {
	sourcetest.RunGolden(t, func(t *testing.T, g example) string {
		m, err := mapping.New(g.Options, g.Namespace, sourcetest.VIPs{})
		require.NoError(t, err)
		return "# " + g.Why + "\n" + sourcetest.Show(t, mapAll(t, m, g.Instances))
	})
}

// mapAll maps all instances, as a source does that has them be listed.
func mapAll(t require.TestingT, mapper *mapping.Mapper, instances []registered) (rs []*resource.Resource) {
	services := map[mapping.ID][]client.Instance{}
	for _, i := range instances {
		i.Healthy, i.Enabled = true, true
		id := mapping.ID{NacosGroup: i.Group, Service: i.Service}
		services[id] = append(services[id], i.Instance)
	}
	offers := map[string]registry.Offers[mapping.ID]{}
	for id, instances := range services {
		offers[id.Group()] = mapper.Offers(id.NacosGroup, id.Service, instances, nil)
	}
	rs, rejects := sourcetest.Objects(mapper, offers)
	require.Empty(t, rejects)
	return rs
}

// TestAnyNacos has any registrations: their objects must be valid, have distinct hosts and names, be the same in any
// order, and be restorable.
func TestAnyNacos(t *testing.T) {
	for _, template := range []string{"", "{service}.{group}.{namespace}.{cluster}.x"} {
		m, err := mapping.New(mapping.Options{MappingOptions: registry.MappingOptions{HostTemplate: template}}, "5f3B-id_", sourcetest.VIPs{})
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			registrations := rapid.SliceOfN(anyInstance(), 1, 20).Draw(t, "all")
			resources := mapAll(t, m, registrations)
			hosts, names := map[string]bool{}, map[string]bool{}
			for _, r := range resources {
				_, err := resource.Validate(r)
				require.NoError(t, err)
				spec, err := r.Spec()
				require.NoError(t, err)
				serviceEntry := spec.(*networking.ServiceEntry)
				require.False(t, hosts[serviceEntry.Hosts[0]], serviceEntry.Hosts[0])
				require.False(t, names[r.Key().Name], r.Key().Name)
				hosts[serviceEntry.Hosts[0]], names[r.Key().Name] = true, true
				require.False(t, protocol.Parse(serviceEntry.Ports[0].Protocol).IsUnsupported())
				for _, e := range serviceEntry.Endpoints {
					require.Positive(t, e.Weight)
					require.Len(t, e.Ports, 1)
				}
			}
			restored := map[mapping.ID]bool{}
			for _, s := range m.Restore(resources) {
				restored[s.ID] = true
			}
			require.Len(t, restored, len(resources))
			rand.Shuffle(len(registrations), func(i, j int) { registrations[i], registrations[j] = registrations[j], registrations[i] })
			shuffled := mapAll(t, m, registrations)
			require.Len(t, shuffled, len(resources))
			for i := range resources {
				require.Equal(t, resources[i].Key(), shuffled[i].Key())
			}
		})
	}
}

func anyInstance() *rapid.Generator[registered] {
	text := rapid.OneOf(rapid.SampledFrom([]string{
		"", "a", "A", "a.b", "a-b", "a_b", "1", "DEFAULT", "public", strings.Repeat("x", 90),
		"grpc", "http", "80",
	}), rapid.String())
	return rapid.Custom(func(t *rapid.T) registered {
		meta := map[string]string{}
		for _, key := range []string{"protocol", "version", "region", "zone", "service-port", "preserved.register.source"} {
			if rapid.Bool().Draw(t, "has") {
				meta[key] = text.Draw(t, key)
			}
		}
		return registered{
			Group: text.Filter(utf8Only).Draw(t, "group"), Service: text.Filter(func(s string) bool { return s != "" && utf8Only(s) }).Draw(t,
				"service"),
			Instance: client.Instance{
				IP: rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "2001:db8::1", "host.example", "0.0.0.0", "a b", "fe80::1%eth0"}).Draw(t,
					"ip"),
				Port: rapid.IntRange(0, 65535).Draw(t, "port"), Weight: rapid.Float64().Draw(t, "weight"), Cluster: text.Draw(t, "cluster"),
				Metadata: meta,
			},
		}
	})
}

func utf8Only(s string) bool { return strings.ToValidUTF8(s, "") == s }

// TestPorts is the table of the rules for a service's port.
func TestPorts(t *testing.T) {
	m, err := mapping.New(mapping.Options{}, "public", nil)
	require.NoError(t, err)
	port := func(instances []client.Instance, before registry.Port) (published registry.Port) {
		id := mapping.ID{NacosGroup: "g", Service: "s"}
		machine := registry.NewMachine(m, func(mapping.ID) time.Duration { return time.Hour }, nil)
		if before.Number != 0 {
			rs, _, err := m.Entries([]registry.Service[mapping.ID]{{ID: id, Name: registry.Name{Host: "s", Object: "s"}, Port: before}})
			require.NoError(t, err)
			machine.Restore(id.Group(), rs, func(registry.Service[mapping.ID]) bool { return true })
		}
		machine.Take(id.Group(), m.Offers("g", "s", instances, nil))
		for _, c := range machine.Contents(time.Now()) {
			for _, r := range c.Resources {
				_, published, _ = registry.ReadEntry(r)
			}
		}
		return published
	}
	instanceAt := func(port int, meta ...string) client.Instance {
		i := client.Instance{IP: "10.0.0.1", Port: port, Metadata: map[string]string{}}
		for n := 0; n < len(meta); n += 2 {
			i.Metadata[meta[n]] = meta[n+1]
		}
		return i
	}
	for _, c := range []struct {
		why       string
		instances []client.Instance
		before    registry.Port
		want      registry.Port
	}{
		{
			"that of most",
			[]client.Instance{instanceAt(81), instanceAt(80), instanceAt(80)},
			registry.Port{},
			registry.Port{Number: 80, Protocol: "TCP"},
		},
		{
			"that of most, whatever was before",
			[]client.Instance{instanceAt(81), instanceAt(80), instanceAt(81)},
			registry.Port{Number: 80, Protocol: "TCP"},
			registry.Port{Number: 81, Protocol: "TCP"},
		},
		{
			"the lower one of two",
			[]client.Instance{instanceAt(81), instanceAt(80)},
			registry.Port{Number: 81, Protocol: "TCP"},
			registry.Port{Number: 80, Protocol: "TCP"},
		},
		{"as before, without any", nil, registry.Port{Number: 80, Protocol: "HTTP"}, registry.Port{Number: 80, Protocol: "HTTP"}},
		{
			"as they say",
			[]client.Instance{instanceAt(81, "service-port", "8000", "protocol", "grpc")},
			registry.Port{Number: 80, Protocol: "TCP"},
			registry.Port{Number: 8000, Protocol: "GRPC"},
		},
		{
			"of Spring Cloud",
			[]client.Instance{instanceAt(81, "preserved.register.source", "SPRING_CLOUD")},
			registry.Port{},
			registry.Port{Number: 81, Protocol: "HTTP"},
		},
		{
			"of Spring Cloud with TLS",
			[]client.Instance{instanceAt(81, "preserved.register.source", "SPRING_CLOUD", "secure", "TRUE")},
			registry.Port{},
			registry.Port{Number: 81, Protocol: "HTTPS"},
		},
		{"of Spring Cloud with TLS that names its protocol", []client.Instance{instanceAt(81, "preserved.register.source",
			"SPRING_CLOUD", "secure",
			"true", "protocol", "tls")}, registry.Port{}, registry.Port{Number: 81, Protocol: "TLS"}},
		{
			"of Spring Cloud without TLS",
			[]client.Instance{instanceAt(81, "preserved.register.source", "SPRING_CLOUD", "secure", "no")},
			registry.Port{},
			registry.Port{Number: 81, Protocol: "HTTP"},
		},
		{
			"of a protocol that Istio does not have",
			[]client.Instance{instanceAt(81, "protocol", "dubbo", "service-port", "x")},
			registry.Port{},
			registry.Port{Number: 81, Protocol: "TCP"},
		},
		{"none", nil, registry.Port{}, registry.Port{}},
	} {
		require.Equal(t, c.want, port(c.instances, c.before), c.why)
	}
	rs, _, err := m.Entries([]registry.Service[mapping.ID]{{ID: mapping.ID{NacosGroup: "g", Service: "s"}}})
	require.NoError(t, err)
	require.Nil(t, rs[0], "one that never had an instance has no port")
}

func TestWeights(t *testing.T) {
	m, err := mapping.New(mapping.Options{}, "public", nil)
	require.NoError(t, err)
	for weight, want := range map[float64]uint32{1: 100, 0.5: 50, 0.001: 1, 0: 0, -1: 0, 10000: 1_000_000, 1e30: 1_000_000} {
		offers := m.Offers("g", "s", []client.Instance{{IP: "10.0.0.1", Port: 1, Weight: weight}}, nil)
		require.Equal(t, want, offers.All[0].Endpoint.Weight, fmt.Sprint(weight))
	}
}
