package mapping_test

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/resource"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
	"tributary/sources/sourcetest"
)

// example is a file of testdata: settings, and an answer of a Eureka.
type example struct {
	Why     string
	Options mapping.Options
	Answer  json.RawMessage
}

func TestGolden(t *testing.T) {
	sourcetest.RunGolden(t, func(t *testing.T, g example) string {
		mapper, err := mapping.New(g.Options, sourcetest.VIPs{})
		require.NoError(t, err)
		a, err := wire.Decode(g.Answer)
		require.NoError(t, err)
		rs, warnings := mapAll(t, mapper, a.Instances)
		return "# " + g.Why + "\n" + sourcetest.Show(t, rs, warnings...)
	})
}

// mapAll maps all instances, as a source does.
func mapAll(t require.TestingT, m *mapping.Mapper, instances []wire.Instance) (rs []*resource.Resource, warnings []string) {
	catalog := registry.Catalog[mapping.ID]{}
	for _, i := range instances {
		offers, warned, err := m.Offers(i)
		warnings = append(warnings, warned...)
		if err != nil {
			warnings = append(warnings, err.Error())
		}
		for _, o := range offers {
			catalog.Offer(o)
		}
	}
	rs, _ = sourcetest.Objects(m, catalog.Offers)
	return rs, warnings
}

// TestAnyEureka has any registrations: their objects must be valid, have distinct hosts and names, be the same in any
// order, and be restorable.
func TestAnyEureka(t *testing.T) {
	for _, template := range []string{"", "{vip}", "{app}", "{vip}.{app}.x"} {
		m, err := mapping.New(mapping.Options{MappingOptions: registry.MappingOptions{HostTemplate: template}}, sourcetest.VIPs{})
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			instances := rapid.SliceOfN(anyInstance(), 1, 20).Draw(t, "all")
			resources, _ := mapAll(t, m, instances)
			hosts, names := map[string]string{}, map[string]bool{}
			for _, r := range resources {
				_, err := resource.Validate(r)
				require.NoError(t, err)
				spec, err := r.Spec()
				require.NoError(t, err)
				se := spec.(*networking.ServiceEntry)
				base := strings.TrimSuffix(r.Key().Name, ".secure")
				require.Contains(t, []string{"", base}, hosts[se.Hosts[0]], "only the two ports of a service have one host")
				require.False(t, names[r.Key().Name], r.Key().Name)
				hosts[se.Hosts[0]], names[r.Key().Name] = base, true
				require.False(t, protocol.Parse(se.Ports[0].Protocol).IsUnsupported())
				for _, e := range se.Endpoints {
					require.Len(t, e.Ports, 1)
				}
			}
			require.Len(t, m.Restore(resources), len(resources))
			rand.Shuffle(len(instances), func(i, j int) { instances[i], instances[j] = instances[j], instances[i] })
			shuffled, _ := mapAll(t, m, instances)
			require.Len(t, shuffled, len(resources))
			for i := range resources {
				require.Equal(t, resources[i].Key(), shuffled[i].Key())
			}
		})
	}
}

func anyInstance() *rapid.Generator[wire.Instance] {
	text := rapid.OneOf(rapid.SampledFrom([]string{
		"", "a", "A", "a.b", "a-b", "a_b", "1", "a,b", "a:80", "${x}", "secure", "a.secure",
		strings.Repeat("x", 90), "grpc", "80",
	}), rapid.String())
	return rapid.Custom(func(t *rapid.T) wire.Instance {
		meta := map[string]string{}
		for _, key := range []string{"protocol", "version", "region", "zone", "service-port"} {
			if rapid.Bool().Draw(t, "has") {
				meta[key] = text.Draw(t, key)
			}
		}
		port := func(name string) wire.Port {
			n := rapid.IntRange(0, 65535).Draw(t, name)
			return wire.Port{Number: n, Enabled: n > 0 && rapid.Bool().Draw(t, name+" on")}
		}
		return wire.Instance{
			Key: wire.Key{App: strings.ToUpper(text.Filter(func(s string) bool { return s != "" }).Draw(t, "app")), ID: text.Draw(t, "id")},
			IP: rapid.SampledFrom([]string{
				"10.0.0.1", "10.0.0.2", "2001:db8::1", "host.example", "0.0.0.0", "a b", "fe80::1%eth0",
				"",
			}).Draw(t, "ip"),
			HostName: text.Draw(t, "host"), Status: rapid.SampledFrom([]string{wire.Up, wire.Down}).Draw(t, "status"), Port: port("port"),
			SecurePort: port("secure"),
			VIP:        text.Draw(t, "vip"), SecureVIP: text.Draw(t, "secureVip"), DataCenterZone: text.Draw(t, "zone"), Metadata: meta,
		}
	})
}

// TestPorts is the table of the rules for a service's port.
func TestPorts(t *testing.T) {
	mapper, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	offerAt := func(port int, vip string, meta ...string) registry.Offer[mapping.ID] {
		i := wire.Instance{
			Key: wire.Key{App: "A", ID: "a"}, IP: "10.0.0.1", Port: wire.Port{Number: port, Enabled: true}, VIP: vip,
			Metadata: map[string]string{},
		}
		for n := 0; n < len(meta); n += 2 {
			i.Metadata[meta[n]] = meta[n+1]
		}
		offers, _, err := mapper.Offers(i)
		require.NoError(t, err)
		return offers[0]
	}
	for _, c := range []struct {
		why    string
		offers []registry.Offer[mapping.ID]
		before registry.Port
		want   registry.Port
	}{
		{
			"that of most",
			[]registry.Offer[mapping.ID]{offerAt(81, "a"), offerAt(80, "a"), offerAt(80, "a")},
			registry.Port{},
			registry.Port{Number: 80, Protocol: "HTTP"},
		},
		{
			"that of most, whatever was before",
			[]registry.Offer[mapping.ID]{offerAt(81, "a"), offerAt(80, "a"), offerAt(81, "a")},
			registry.Port{Number: 80, Protocol: "HTTP"},
			registry.Port{Number: 81, Protocol: "HTTP"},
		},
		{
			"the lower one of two",
			[]registry.Offer[mapping.ID]{offerAt(81, "a"), offerAt(80, "a")},
			registry.Port{Number: 81, Protocol: "HTTP"},
			registry.Port{Number: 80, Protocol: "HTTP"},
		},
		{"as before, without any", nil, registry.Port{Number: 80, Protocol: "TCP"}, registry.Port{Number: 80, Protocol: "TCP"}},
		{
			"as the virtual address says",
			[]registry.Offer[mapping.ID]{offerAt(81, "a:7001")},
			registry.Port{},
			registry.Port{Number: 7001, Protocol: "HTTP"},
		},
		{
			"as they say",
			[]registry.Offer[mapping.ID]{offerAt(81, "a:7001", "service-port", "8000", "protocol", "grpc")},
			registry.Port{Number: 80, Protocol: "TCP"},
			registry.Port{Number: 8000, Protocol: "GRPC"},
		},
		{
			"of a protocol that Istio does not have",
			[]registry.Offer[mapping.ID]{offerAt(81, "a", "protocol", "dubbo", "service-port", "x")},
			registry.Port{},
			registry.Port{Number: 81, Protocol: "HTTP"},
		},
		{"none", nil, registry.Port{}, registry.Port{}},
	} {
		machine := registry.NewMachine(mapper, func(mapping.ID) time.Duration { return time.Hour }, nil)
		name := registry.Name{Host: "a", Object: "a"}
		rs, _, err := mapper.Entries([]registry.Service[mapping.ID]{{ID: mapping.ID{VIP: "a"}, Name: name, Port: c.before}})
		require.NoError(t, err)
		if rs[0] != nil {
			machine.Restore("a", rs, func(registry.Service[mapping.ID]) bool { return true })
		}
		machine.TakeAll(map[string]registry.Offers[mapping.ID]{"a": {All: c.offers}})
		got := registry.Port{}
		for _, content := range machine.Contents(time.Now()) {
			for _, r := range content.Resources {
				_, got, _ = registry.ReadEntry(r)
			}
		}
		require.Equal(t, c.want, got, c.why)
	}
	rs, _, err := mapper.Entries([]registry.Service[mapping.ID]{{ID: mapping.ID{VIP: "a"}}})
	require.NoError(t, err)
	require.Nil(t, rs[0], "one that never had an instance has no port")
}

// TestServes is the table of statuses.
func TestServes(t *testing.T) {
	m, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	for _, status := range []string{wire.Up, wire.Down, wire.Starting, wire.OutOfService, wire.Unknown} {
		for _, overridden := range []string{wire.Up, wire.Down, wire.Starting, wire.OutOfService, wire.Unknown} {
			want := status == wire.Up && overridden != wire.Down && overridden != wire.OutOfService
			require.Equal(t, want, m.Serves(wire.Instance{Status: status, Overridden: overridden}), "%s, overridden %s", status, overridden)
		}
	}
}

func TestLocality(t *testing.T) {
	for _, c := range []struct{ region, zone, amazon, standard, want string }{
		{"", "", "", "", ""},
		{"", "", "", "r", ""},
		{"", "z", "", "", "z"},
		{"", "z", "", "r", "r/z"},
		{"e", "z", "", "r", "e/z"},
		{"e", "", "", "r", "e"},
		{"", "", "us-east-1c", "", "us-east-1/us-east-1c"},
		{"", "z", "us-east-1c", "", "z"},
		{"a b", "z/", "eu-west-2a", "", "eu-west-2/eu-west-2a"},
	} {
		m, err := mapping.New(mapping.Options{Region: c.standard}, nil)
		require.NoError(t, err)
		offers, _, err := m.Offers(wire.Instance{
			Key: wire.Key{App: "A", ID: "a"}, IP: "10.0.0.1", Port: wire.Port{Number: 80, Enabled: true}, DataCenterZone: c.amazon,
			Metadata: map[string]string{"region": c.region, "zone": c.zone},
		})
		require.NoError(t, err)
		require.Equal(t, c.want, offers[0].Endpoint.Locality, c)
	}
}

// TestUncallableInstances_Refused says why, and takes the host's name if the address is none.
func TestUncallableInstances_Refused(t *testing.T) {
	mapper, err := mapping.New(mapping.Options{}, nil)
	require.NoError(t, err)
	good := wire.Instance{Key: wire.Key{App: "A", ID: "a"}, IP: "10.0.0.1", HostName: "h.example", Port: wire.Port{Number: 80, Enabled: true}}
	for why, change := range map[string]func(*wire.Instance){
		"none of its ports is enabled": func(i *wire.Instance) { i.Port.Enabled = false },
		`address "": neither`:          func(i *wire.Instance) { i.IP, i.HostName = "", "" },
		`address "0.0.0.0": no`:        func(i *wire.Instance) { i.IP, i.HostName = "0.0.0.0", "a b" },
	} {
		i := good
		change(&i)
		_, _, err := mapper.Offers(i)
		require.ErrorContains(t, err, why)
	}
	good.IP = "unknown host"
	offers, warnings, err := mapper.Offers(good)
	require.NoError(t, err)
	require.Equal(t, "h.example", offers[0].Endpoint.Address)
	require.Equal(t, []string{`address "unknown host": neither an IP address nor a host: it is called at h.example instead`}, warnings)
	good.IP = ""
	_, warnings, err = mapper.Offers(good)
	require.NoError(t, err)
	require.Empty(t, warnings, "an instance with only a host name is valid")
	good.VIP = "a, A,,a"
	for n := range 100 {
		good.VIP += ",x" + strconv.Itoa(n)
	}
	offers, warnings, err = mapper.Offers(good)
	require.NoError(t, err)
	require.Len(t, offers, 32)
	require.Len(t, warnings, 1)
}

func TestOptions(t *testing.T) {
	for message, options := range map[string]mapping.Options{
		"hostTemplate: \"x\" must contain":    {MappingOptions: registry.MappingOptions{HostTemplate: "x"}},
		"hostTemplate: unknown {service}":     {MappingOptions: registry.MappingOptions{HostTemplate: "{vip}.{service}"}},
		"hostTemplate: \"{vip}.-\" makes no":  {MappingOptions: registry.MappingOptions{HostTemplate: "{vip}.-"}},
		"namespace:":                          {MappingOptions: registry.MappingOptions{Namespace: "A"}},
		"addressFrom: want ip or hostname":    {AddressFrom: "x"},
		"statuses: want some of UP":           {Statuses: []string{"up"}},
		"defaultProtocol:":                    {MappingOptions: registry.MappingOptions{DefaultProtocol: "dubbo"}},
		"servicePort: want 1 to 65535":        {MappingOptions: registry.MappingOptions{ServicePort: -1}},
		"secureServicePort: 80 is the":        {MappingOptions: registry.MappingOptions{ServicePort: 80}, SecureServicePort: 80},
		"vips: want tcp, all or none":         {MappingOptions: registry.MappingOptions{VIPs: "x"}},
		"region: \"a b\" is none":             {Region: "a b"},
		"labelMeta: \"-\" cannot be the key ": {MappingOptions: registry.MappingOptions{LabelMeta: []string{"-"}}},
	} {
		_, err := mapping.New(options, nil)
		require.ErrorContains(t, err, message)
	}
}
