package aggregate

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/aggregate/conflicts"
	"tributary/resource"
)

// object makes a resource of spec that was made minutes after all began.
func object(t *testing.T, kind resource.Kind, namespace, name string, minutes int, spec proto.Message) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{
		Key:     resource.Key{Kind: kind, Namespace: namespace, Name: name},
		Created: time.Date(2026, 1, 1, 0, minutes, 0, 0, time.UTC),
	}, spec)
	require.NoError(t, err)
	return r
}

func serviceEntry(host string, port uint32, exportTo ...string) *networking.ServiceEntry {
	return &networking.ServiceEntry{
		Hosts: []string{host}, ExportTo: exportTo, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: port, Name: "http", Protocol: "HTTP"}},
	}
}

// workload is an endpoint at address, with ports of its own.
func workload(address string, ports ...map[string]uint32) *networking.WorkloadEntry {
	return &networking.WorkloadEntry{Address: address, Ports: append(ports, nil)[0]}
}

// withEndpoints returns the entry with endpoints.
func withEndpoints(se *networking.ServiceEntry, endpoints ...*networking.WorkloadEntry) *networking.ServiceEntry {
	se.Endpoints = endpoints
	return se
}

// changed returns se with a change.
func changed(se *networking.ServiceEntry, change func(*networking.ServiceEntry)) *networking.ServiceEntry {
	change(se)
	return se
}

// outcome is a service as the golden files show it.
type outcome struct {
	Key      string
	Source   string
	Place    string
	Spec     json.RawMessage
	Made     Merged
	Conflict *conflicts.Conflict `json:",omitempty"`
}

// divided merges the entries of sources, given in order of precedence.
func divided(t *testing.T, members []*member) (outcomes []outcome) {
	t.Helper()
	for _, service := range joinMembers(groupKeyOf(members[0].res), members) {
		res := service.object()
		_, err := resource.Validate(res)
		require.NoError(t, err)
		spec, err := res.Spec()
		require.NoError(t, err)
		text, err := protojson.Marshal(spec)
		require.NoError(t, err)
		var e Explanation
		e.addMerged(service)
		o := outcome{Key: res.Key().String(), Source: res.Origin().Source, Place: res.Origin().Place, Spec: text, Made: *e.Merged}
		if c, ok := service.conflict(); ok {
			o.Conflict = &c
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

func memberOf(t *testing.T, source, name string, spec *networking.ServiceEntry) *member {
	t.Helper()
	return memberWith(t, source, name, Merge{}, spec)
}

func memberWith(t *testing.T, source, name string, merge Merge, spec *networking.ServiceEntry) *member {
	t.Helper()
	res := object(t, resource.ServiceEntry, "shop", name, 1, spec).WithOrigin(resource.Origin{Source: source, Place: source + " " + name})
	return &member{from: &contributor{name: source, merge: merge}, res: res, spec: decoded(res)}
}

// TestMergedEndpoints compares merged ServiceEntries of a host with golden files.
func TestMergedEndpoints(t *testing.T) {
	const host = "reviews.shop.example"
	entry := func(endpoints ...*networking.WorkloadEntry) *networking.ServiceEntry {
		return withEndpoints(serviceEntry(host, 80), endpoints...)
	}
	two := func(endpoints ...*networking.WorkloadEntry) *networking.ServiceEntry {
		return withEndpoints(changed(serviceEntry(host, 80), func(se *networking.ServiceEntry) {
			se.Ports = append(se.Ports, &networking.ServicePort{Number: 443, Name: "tls", Protocol: "TLS"})
		}), endpoints...)
	}
	located := func(address, locality string) *networking.WorkloadEntry {
		return &networking.WorkloadEntry{Address: address, Locality: locality, Labels: map[string]string{"version": "v1"}, Weight: 3}
	}
	for name, members := range map[string][]*member{
		"union": {
			memberOf(t, "consul", "reviews", entry(workload("10.0.0.2"), workload("10.0.0.10"))),
			memberOf(t, "nacos", "reviews-nacos", entry(workload("10.0.0.1"))),
			memberOf(t, "empty", "reviews", entry()),
		},
		"listed twice": { // in another form, and with an explicit default: the first one counts
			memberOf(t, "consul", "reviews", entry(located("10.0.0.1", "eu/a"), workload("fd00::1"))),
			memberOf(t, "nacos", "reviews", entry(located("10.0.0.1", "us/b"), workload("FD00:0::1", map[string]uint32{"http": 80}))),
		},
		"same address, other ports": {
			memberOf(t, "consul", "reviews", entry(workload("10.0.0.1", map[string]uint32{"http": 8080}))),
			memberOf(t, "nacos", "reviews", entry(workload("10.0.0.1", map[string]uint32{"http": 8081}))),
		},
		"ports of other names and targets": {
			memberOf(t, "consul", "reviews", entry(workload("10.0.0.1"), workload("10.0.0.2", map[string]uint32{"http": 9080}))),
			memberOf(t, "nacos", "reviews", changed(entry(workload("10.0.0.2"), workload("10.0.0.3"),
				workload("10.0.0.4", map[string]uint32{"web": 80})),
				func(se *networking.ServiceEntry) { se.Ports[0].Name, se.Ports[0].TargetPort = "web", 9080 })),
		},
		"locality": {
			memberWith(t, "consul", "reviews", Merge{Locality: "eu-1/b"}, entry(located("10.0.0.1", "eu/a"), workload("10.0.0.2"))),
			memberOf(t, "nacos", "reviews", entry(located("10.0.0.3", "us/c"))),
		},
		"priority": { // 10.0.0.1 is in use because consul has it in use
			memberWith(t, "nacos", "reviews", Merge{Priority: 1}, entry(workload("10.0.0.1"), workload("10.0.0.2"))),
			memberOf(t, "consul", "reviews", entry(workload("10.0.0.1"), workload("10.0.0.3"))),
		},
		"priority, the first has none": {
			memberOf(t, "consul", "reviews", entry()),
			memberWith(t, "nacos", "reviews", Merge{Priority: 1}, entry(workload("10.0.0.1"))),
			memberWith(t, "etcd", "reviews", Merge{Priority: 2}, entry(workload("10.0.0.2"))),
		},
		"disjoint ports are services of their own": {
			memberOf(t, "consul", "reviews", entry(workload("10.0.0.1"))),
			memberOf(t, "consul", "reviews-grpc", withEndpoints(serviceEntry(host, 9090), workload("10.0.0.1"))),
			memberOf(t, "nacos", "reviews", withEndpoints(serviceEntry(host, 9090), workload("10.0.0.2"))),
		},
		"other ports": {
			memberOf(t, "consul", "reviews", entry(workload("10.0.0.1"))),
			memberOf(t, "nacos", "reviews", two(workload("10.0.0.2"))),
			memberOf(t, "etcd", "reviews", entry(workload("10.0.0.3"))),
		},
		"one source, two entries": {
			memberOf(t, "consul", "reviews-v1", entry(workload("10.0.0.1"))),
			memberOf(t, "consul", "reviews-v2", entry(workload("10.0.0.2"), workload("10.0.0.1"))),
		},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "merged-"+dashed(name), divided(t, members))
		})
	}
}

func TestMergeConflicts(t *testing.T) {
	lead := func() *networking.ServiceEntry {
		return withEndpoints(serviceEntry("a.example", 80), workload("10.0.0.1"))
	}
	dns := func(se *networking.ServiceEntry) *networking.ServiceEntry {
		se.Resolution = networking.ServiceEntry_DNS
		return se
	}
	several := func(se *networking.ServiceEntry) *networking.ServiceEntry {
		se.Hosts = append(se.Hosts, "b.example")
		return se
	}
	for _, c := range []struct {
		lead, second *networking.ServiceEntry
		want         string
	}{
		{lead(), lead(), ""},
		{lead(), withEndpoints(serviceEntry("a.example", 80)), ""},
		{lead(), changed(lead(), func(se *networking.ServiceEntry) { se.ExportTo = []string{"*"} }), ""},
		{lead(), changed(lead(), func(se *networking.ServiceEntry) { se.Ports[0].Protocol = "http" }), ""},
		{lead(), changed(lead(), func(se *networking.ServiceEntry) { se.Ports[0].Protocol = "TCP" }), "ports differ: [80/TCP], not [80/HTTP]"},
		{lead(), dns(lead()), ""},
		{lead(), dns(withEndpoints(lead())), ""}, // the host itself is one more name
		{dns(withEndpoints(lead())), lead(), ""},
		{lead(), several(dns(withEndpoints(lead()))), "leaves several hosts to DNS"},
		{dns(lead()), withEndpoints(lead(), workload("unix:///run/a")), "mixes DNS names with the socket unix:///run/a"},
		{
			withEndpoints(lead(), &networking.WorkloadEntry{Network: "n"}), dns(lead()),
			"mixes DNS names with an endpoint without an address",
		},
		{
			dns(lead()), changed(lead(), func(se *networking.ServiceEntry) { se.Addresses = []string{"10.1.0.0/16"} }),
			"mixes DNS names with the network 10.1.0.0/16",
		},
		{
			lead(), changed(withEndpoints(lead()), func(se *networking.ServiceEntry) { se.Resolution = networking.ServiceEntry_NONE }),
			"mixes resolution NONE with others",
		},
		{
			lead(), changed(lead(), func(se *networking.ServiceEntry) { se.Location = networking.ServiceEntry_MESH_INTERNAL }),
			"location differs: MESH_INTERNAL, not MESH_EXTERNAL",
		},
		{lead(), changed(lead(), func(se *networking.ServiceEntry) { se.ExportTo = []string{"."} }), "exportTo differs: [.], not [*]"},
		{
			lead(), changed(lead(), func(se *networking.ServiceEntry) { se.SubjectAltNames = []string{"x"} }),
			"subjectAltNames differ: [x], not []",
		},
		{
			lead(), changed(lead(), func(se *networking.ServiceEntry) { se.WorkloadSelector = &networking.WorkloadSelector{} }),
			"endpoints are chosen by a workload selector",
		},
		{dns(lead()), dns(withEndpoints(lead())), ""},
		{dns(withEndpoints(lead())), dns(withEndpoints(lead())), ""},
		{
			changed(lead(), func(se *networking.ServiceEntry) { se.Resolution = networking.ServiceEntry_DNS_ROUND_ROBIN }),
			changed(lead(), func(se *networking.ServiceEntry) { se.Resolution = networking.ServiceEntry_DNS_ROUND_ROBIN }),
			"",
		},
		{lead(), nil, "it cannot be decoded"},
	} {
		s := newMergedEntry(groupKey{}, &member{spec: c.lead})
		require.Equal(t, c.want, s.mergeProblem(&member{spec: c.second}))
	}
}

// TestMergedNames checks that the name follows from hosts and ports, is valid, and is unique.
func TestMergedNames(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 62)+".", 4)
	seen := make(map[string][]string)
	for _, hosts := range [][]string{
		{"a.example"},
		{"b.example"},
		{"*.example"},
		{"any.example"},
		{"a.example", "b.example"},
		{"a.example", "c.example"},
		{long[:250]},
		{long[:249]},
		{long[:239]},
	} {
		se := serviceEntry("", 80)
		se.Hosts = hosts
		key := groupKeyOf(object(t, resource.ServiceEntry, "n", "x", 1, se)).key(65535)
		_, err := resource.Validate(object(t, resource.ServiceEntry, key.Namespace, key.Name, 1, withEndpoints(serviceEntry("a.example", 80))))
		require.NoError(t, err, "%s", key.Name)
		require.NotContains(t, seen, key.Name)
		seen[key.Name] = hosts

		mixed := proto.CloneOf(se)
		slices.Reverse(mixed.Hosts)
		mixed.Hosts[0] = strings.ToUpper(mixed.Hosts[0])
		mixed.Hosts = append(mixed.Hosts, mixed.Hosts[0])
		require.Equal(t, key, groupKeyOf(object(t, resource.ServiceEntry, "n", "y", 1, mixed)).key(65535))
	}
	require.Contains(t, seen, "a.example-65535")
	require.Contains(t, seen, "any.example-65535-6faac07d", "a host that is not plain has a hash at the place of a plain host's port")
}

// TestEndpointMove_ChangesNoByte checks that an endpoint which moves from one source to another changes no byte.
func TestEndpointMove_ChangesNoByte(t *testing.T) {
	entry := func(addresses ...string) *networking.ServiceEntry {
		se := serviceEntry("a.example", 80)
		for _, address := range addresses {
			se.Endpoints = append(se.Endpoints, workload(address))
		}
		return se
	}
	var versions []string
	for _, lists := range [][2]*networking.ServiceEntry{
		{entry("10.0.0.1", "10.0.0.2"), entry()},
		{entry("10.0.0.2", "10.0.0.1"), entry("10.0.0.1", "10.0.0.2")},
		{entry(), entry("10.0.0.2", "10.0.0.1")},
		{entry("10.0.0.2"), entry("10.0.0.1", "10.0.0.1")},
	} {
		members := []*member{memberOf(t, "a", "x", lists[0]), memberOf(t, "b", "y", lists[1])}
		services := joinMembers(groupKeyOf(members[0].res), members)
		require.Len(t, services, 1)
		res := services[0].object()
		versions = append(versions, res.Version())
	}
	require.Len(t, slices.Compact(versions), 1)
}

// dashed makes a file's name of that of a test.
func dashed(name string) string { return strings.NewReplacer(" ", "-", ",", "").Replace(name) }
