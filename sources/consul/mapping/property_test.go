package mapping_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/resource"
	"tributary/sources/consul/mapping"
	"tributary/sources/registry"
	"tributary/sources/sourcetest"
)

// TestAnyCatalog maps histories of catalogs with everything in them that Consul's API takes, and more.
func TestAnyCatalog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		mapper, err := mapping.New(o, sourcetest.VIPs{})
		require.NoError(t, err)
		shuffled, err := mapping.New(o, sourcetest.VIPs{})
		require.NoError(t, err)
		names := rapid.SliceOfNDistinct(anyName(), 1, 3, rapid.ID).Draw(t, "names")
		published := map[string][]*resource.Resource{}
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			services := anyServices(t, name)
			mapper.Names(names)
			shuffled.Names(names)
			resources, rejects, warnings := mapped(mapper, name, services)
			requireValid(t, resources)
			requireNoPhantoms(t, resources)
			for _, r := range rejects {
				require.Empty(t, r.Key)
				require.Error(t, r.Err)
			}
			if len(rejects) == 0 {
				published[name] = resources
			}

			reordered := shuffle(services)
			rs2, rejects2, warnings2 := mapped(shuffled, name, reordered)
			require.Equal(t, show(t, resources, rejects, warnings), show(t, rs2, rejects2, warnings2), "order matters")
			same, _, _ := mapped(mapper, name, services)
			require.Equal(t, show(t, resources, nil, nil), show(t, same, nil, nil), "the same again is not the same")
		}
		var everyObject []*resource.Resource
		for _, rs := range published {
			everyObject = append(everyObject, rs...)
		}
		requireValid(t, everyObject) // no two services have an object in common
		owners := map[string]string{}
		for name, rs := range published {
			for _, r := range rs {
				if se, ok := spec(t, r).(*networking.ServiceEntry); ok {
					for _, host := range se.Hosts {
						require.Contains(t, []string{"", name}, owners[host], "two services have host %s", host)
						owners[host] = name
					}
				}
			}
		}
	})
}

func spec(t require.TestingT, r *resource.Resource) any {
	s, err := r.Spec()
	require.NoError(t, err)
	return s
}

// requireNoPhantoms checks that no endpoint has a port by Istio's own lights only: one that it does not name, or an
// endpoint made of the host. It also checks that ServiceEntries of one host are such that istiod merges them.
func requireNoPhantoms(t require.TestingT, resources []*resource.Resource) {
	type host struct {
		first   *networking.ServiceEntry
		numbers map[uint32]bool
		names   map[string]bool
	}
	hosts := map[string]*host{}
	var workloads []*networking.WorkloadEntry
	for _, r := range resources {
		if we, ok := spec(t, r).(*networking.WorkloadEntry); ok {
			workloads = append(workloads, we)
		}
	}
	for _, r := range resources {
		serviceEntry, ok := spec(t, r).(*networking.ServiceEntry)
		if !ok {
			continue
		}
		require.NotEmpty(t, serviceEntry.Ports)
		endpoints := serviceEntry.Endpoints
		for _, we := range workloads {
			if serviceEntry.WorkloadSelector != nil && selects(serviceEntry.WorkloadSelector.Labels, we.Labels) {
				endpoints = append(endpoints, we)
			}
		}
		if serviceEntry.Resolution == networking.ServiceEntry_DNS {
			require.NotEmpty(t, endpoints)
		}
		for _, workloadEntry := range endpoints {
			require.Positive(t, workloadEntry.Weight)
			require.Empty(t, workloadEntry.ServiceAccount)
			require.Len(t, workloadEntry.Ports, len(serviceEntry.Ports))
			for _, p := range serviceEntry.Ports {
				require.Positive(t, workloadEntry.Ports[p.Name], "endpoint %s has no port %s", workloadEntry.Address, p.Name)
			}
		}
		for _, p := range serviceEntry.Ports {
			require.False(t, protocol.Parse(p.Protocol).IsUnsupported())
		}
		for _, name := range serviceEntry.Hosts {
			h := hosts[name]
			if h == nil {
				h = &host{first: serviceEntry, numbers: map[uint32]bool{}, names: map[string]bool{}}
				hosts[name] = h
			}
			require.Equal(t, h.first.Resolution, serviceEntry.Resolution)
			require.Equal(t, h.first.Addresses, serviceEntry.Addresses)
			require.Equal(t, h.first.WorkloadSelector.GetLabels(), serviceEntry.WorkloadSelector.GetLabels())
			for _, p := range serviceEntry.Ports {
				require.False(t, h.numbers[p.Number], "port %d twice on %s", p.Number, name)
				require.False(t, h.names[p.Name], "port %s twice on %s", p.Name, name)
				h.numbers[p.Number], h.names[p.Name] = true, true
			}
		}
	}
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func shuffle(services []mapping.Service) []mapping.Service {
	random := rand.New(rand.NewPCG(1, 2))
	services = slices.Clone(services)
	for i := range services {
		services[i].Entries = slices.Clone(services[i].Entries)
		random.Shuffle(len(services[i].Entries), func(a, b int) {
			services[i].Entries[a], services[i].Entries[b] = services[i].Entries[b], services[i].Entries[a]
		})
	}
	random.Shuffle(len(services), func(a, b int) { services[a], services[b] = services[b], services[a] })
	return services
}

func anyOptions(t *rapid.T) mapping.Options {
	pick := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label) }
	return mapping.Options{
		MappingOptions: registry.MappingOptions{
			HostTemplate: pick("template", "", "{service}.mesh", "{service}.{datacenter}.mesh",
				"s-{service}.{namespace}.{partition}.{peer}.mesh.internal"),
			ServicePort: rapid.SampledFrom([]int{0, 80}).Draw(t, "port"),
			VIPs:        pick("vips", "", "all", "none"), DefaultProtocol: pick("protocol", "", "http"),
		},
		Aliases: pick("aliases", "", "none"),
		Tags:    []string{"canary"}, LabelPrefix: pick("prefix", "", "x.y/"),
		TaggedAddress: pick("tagged", "", "wan"), Endpoints: pick("endpoints", "", "workloadEntries"),
	}
}

// anyName draws names that are as they should be, that are nearly the same, and that are anything.
func anyName() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"web-api", "web_api", "Web-API", "web.api", "web-api-", "日本", "", " ", "consul", "a/b?c#d", "x.dc1.dc"}),
		rapid.StringMatching(`[a-zA-Z0-9_.-]{1,70}`), rapid.String())
}

func anyServices(t *rapid.T, name string) []mapping.Service {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) mapping.Service {
		oneOf := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label) }
		return mapping.Service{
			Name: name, Datacenter: oneOf("dc", "dc1", "dc_2", "dc-2", "DC1", "", "default"), Namespace: oneOf("ns", "", "default", "team", "Team"),
			Partition: oneOf("ap", "", "p1"), Peer: oneOf("peer", "", "local", "p.1"),
			Entries: rapid.SliceOfN(rapid.Custom(anyEntry), 0, 4).Draw(t, "entries"),
		}
	}), 0, 3).Draw(t, "in")
}

func anyEntry(t *rapid.T) *api.ServiceEntry {
	pick := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label) }
	address := func(label string) string {
		return pick(label, "", "10.0.0.1", "10.0.0.2", "::1", "[::1]", "fe80::1%e", "0.0.0.0", "host", "Host.example.com", "1.2.3", "bad_host",
			"unix:///x", "a b")
	}
	port := rapid.SampledFrom([]int{0, 80, 80, 81, 8080, -1, 65536, 65535})
	meta := rapid.MapOfN(rapid.OneOf(rapid.SampledFrom([]string{"protocol", "service-port", "protocol-http", "version"}), rapid.String()),
		rapid.OneOf(rapid.SampledFrom([]string{"http", "tcp", "GRPC", "dubbo", "80", "v1"}), rapid.String()), 0, 3)
	e := &api.ServiceEntry{
		Node: &api.Node{
			Node: pick("node", "n1", "N_2", ""), Address: address("node address"), Meta: meta.Draw(t, "node meta"),
			TaggedAddresses: map[string]string{"wan": address("node wan")},
		},
		Service: &api.AgentService{
			Kind: api.ServiceKind(pick("kind", "", "", "", "", "connect-proxy")), ID: pick("id", "a", "b", ""),
			Address: address("address"), Port: port.Draw(t, "port"), Meta: meta.Draw(t, "meta"),
			Tags: rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]string{"version=v1", "canary", "a:b=c"}), rapid.String()), 0, 3).Draw(t,
				"tags"),
			TaggedAddresses: map[string]api.ServiceAddress{"wan": {Address: address("wan"), Port: port.Draw(t, "wan port")}},
			Weights: api.AgentWeights{
				Passing: rapid.IntRange(-1, 70000).Draw(t, "passing"),
				Warning: rapid.IntRange(-1, 2).Draw(t, "warning"),
			},
		},
	}
	for range rapid.IntRange(0, 3).Draw(t, "ports") {
		e.Service.Ports = append(e.Service.Ports, api.ServicePort{
			Name: pick("port name", "http", "grpc-x", "main", "main-tcp", "Main", "a_b", "a-b", "", "日", "tcp"), Port: port.Draw(t, "named port"),
			Default: rapid.Bool().Draw(t, "default"),
		})
	}
	if rapid.Bool().Draw(t, "locality") {
		e.Service.Locality = &api.Locality{Region: rapid.String().Draw(t, "region"), Zone: rapid.String().Draw(t, "zone")}
	}
	for range rapid.IntRange(0, 2).Draw(t, "checks") {
		e.Checks = append(e.Checks, &api.HealthCheck{
			CheckID: pick("check", "serfHealth", api.NodeMaint, api.ServiceMaintPrefix+"a", "c"),
			Status:  pick("status", "passing", "passing", "passing", "warning", "critical", "odd"),
		})
	}
	return e
}
