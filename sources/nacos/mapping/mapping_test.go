package mapping_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"
	"pgregory.net/rapid"

	_ "tributary/internal/fixedseed" // of the property tests
	"tributary/internal/golden"
	"tributary/resource"
	"tributary/sources/nacos/client"
	"tributary/sources/nacos/mapping"
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
	golden.Run(t, func(t *testing.T, g example) string {
		m, err := mapping.New(g.Options, g.Namespace, golden.VIPs{})
		require.NoError(t, err)
		return "# " + g.Why + "\n" + golden.Show(t, mapAll(t, m, g.Instances))
	})
}

// mapAll maps all instances that are to be served, as the source does.
func mapAll(t require.TestingT, m *mapping.Mapper, all []registered) (rs []*resource.Resource) {
	services := map[mapping.ID]*mapping.Service{}
	instances := map[mapping.ID][]client.Instance{}
	var ids []mapping.ID
	for _, i := range all {
		id := m.IDOf(i.Group, i.Service, i.Instance)
		if services[id] == nil {
			services[id] = &mapping.Service{ID: id, Place: "nacos " + i.Group + " " + i.Service}
			ids = append(ids, id)
		}
		instances[id] = append(instances[id], i.Instance)
		if e, err := m.Endpoint(i.Instance); err == nil && e.Weight > 0 {
			services[id].Endpoints = append(services[id].Endpoints, e)
		}
	}
	names := m.Names(ids)
	slices.SortFunc(ids, mapping.ID.Compare)
	for _, id := range ids {
		services[id].Name, services[id].Port = names[id], m.PortOf(instances[id], mapping.Port{})
		r, _, err := m.Entry(*services[id])
		require.NoError(t, err)
		if r != nil {
			rs = append(rs, r)
		}
	}
	return rs
}

// TestAnyNacos has anything registered, of which all that is made must be valid, with hosts and names of their own, the same in any order,
// and readable again.
func TestAnyNacos(t *testing.T) {
	for _, template := range []string{"", "{service}.{group}.{namespace}.{cluster}.x"} {
		m, err := mapping.New(mapping.Options{HostTemplate: template}, "5f3B-id_", golden.VIPs{})
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			all := rapid.SliceOfN(anyInstance(), 1, 20).Draw(t, "all")
			rs := mapAll(t, m, all)
			hosts, names := map[string]bool{}, map[string]bool{}
			for _, r := range rs {
				_, err := resource.Validate(r)
				require.NoError(t, err)
				spec, err := r.Spec()
				require.NoError(t, err)
				se := spec.(*networking.ServiceEntry)
				require.False(t, hosts[se.Hosts[0]], se.Hosts[0])
				require.False(t, names[r.Key().Name], r.Key().Name)
				hosts[se.Hosts[0]], names[r.Key().Name] = true, true
				require.False(t, protocol.Parse(se.Ports[0].Protocol).IsUnsupported())
				for _, e := range se.Endpoints {
					require.Positive(t, e.Weight)
					require.Len(t, e.Ports, 1)
				}
			}
			restored := mapping.Restore(rs)
			require.Len(t, restored, len(rs))
			rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			again := mapAll(t, m, all)
			require.Len(t, again, len(rs))
			for i := range rs {
				require.Equal(t, rs[i].Key(), again[i].Key())
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

// TestPorts is the table of what gives a service its port.
func TestPorts(t *testing.T) {
	m, err := mapping.New(mapping.Options{}, "public", nil)
	require.NoError(t, err)
	at := func(port int, meta ...string) client.Instance {
		i := client.Instance{Port: port, Metadata: map[string]string{}}
		for n := 0; n < len(meta); n += 2 {
			i.Metadata[meta[n]] = meta[n+1]
		}
		return i
	}
	for _, c := range []struct {
		why    string
		all    []client.Instance
		before mapping.Port
		want   mapping.Port
	}{
		{"that of most", []client.Instance{at(81), at(80), at(80)}, mapping.Port{}, mapping.Port{Number: 80, Protocol: "TCP"}},
		{
			"that of most, whatever was before",
			[]client.Instance{at(81), at(80), at(81)},
			mapping.Port{Number: 80, Protocol: "TCP"},
			mapping.Port{Number: 81, Protocol: "TCP"},
		},
		{
			"the lower one of two",
			[]client.Instance{at(81), at(80)},
			mapping.Port{Number: 81, Protocol: "TCP"},
			mapping.Port{Number: 80, Protocol: "TCP"},
		},
		{"as before, without any", nil, mapping.Port{Number: 80, Protocol: "HTTP"}, mapping.Port{Number: 80, Protocol: "HTTP"}},
		{
			"as they say",
			[]client.Instance{at(81, "service-port", "8000", "protocol", "grpc")},
			mapping.Port{Number: 80, Protocol: "TCP"},
			mapping.Port{Number: 8000, Protocol: "GRPC"},
		},
		{
			"of Spring Cloud",
			[]client.Instance{at(81, "preserved.register.source", "SPRING_CLOUD")},
			mapping.Port{},
			mapping.Port{Number: 81, Protocol: "HTTP"},
		},
		{
			"of Spring Cloud with TLS",
			[]client.Instance{at(81, "preserved.register.source", "SPRING_CLOUD", "secure", "TRUE")},
			mapping.Port{},
			mapping.Port{Number: 81, Protocol: "HTTPS"},
		},
		{"of Spring Cloud with TLS that names its protocol", []client.Instance{at(81, "preserved.register.source", "SPRING_CLOUD", "secure",
			"true", "protocol", "tls")}, mapping.Port{}, mapping.Port{Number: 81, Protocol: "TLS"}},
		{
			"of Spring Cloud without TLS",
			[]client.Instance{at(81, "preserved.register.source", "SPRING_CLOUD", "secure", "no")},
			mapping.Port{},
			mapping.Port{Number: 81, Protocol: "HTTP"},
		},
		{
			"of what Istio does not know",
			[]client.Instance{at(81, "protocol", "dubbo", "service-port", "x")},
			mapping.Port{},
			mapping.Port{Number: 81, Protocol: "TCP"},
		},
		{"none", nil, mapping.Port{}, mapping.Port{}},
	} {
		require.Equal(t, c.want, m.PortOf(c.all, c.before), c.why)
	}
	r, _, err := m.Entry(mapping.Service{ID: mapping.ID{Group: "g", Service: "s"}})
	require.NoError(t, err)
	require.Nil(t, r, "one that never had an instance has no port")
}

func TestWeights(t *testing.T) {
	m, err := mapping.New(mapping.Options{}, "public", nil)
	require.NoError(t, err)
	for weight, want := range map[float64]uint32{1: 100, 0.5: 50, 0.001: 1, 0: 0, -1: 0, 10000: 1_000_000, 1e30: 1_000_000} {
		e, err := m.Endpoint(client.Instance{IP: "10.0.0.1", Port: 1, Weight: weight})
		require.NoError(t, err)
		require.Equal(t, want, e.Weight, fmt.Sprint(weight))
	}
}
