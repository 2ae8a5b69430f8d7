package mapping_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/mapping"
)

// habits are the variety of the instances of a service.
type habits struct{ protocols, ports, names bool }

// drawnInstances draws instances of a datacenter.
func drawnInstances(random *rand.Rand, datacenter string, octet int, habits habits, protocol string) mapping.Service {
	service := mapping.Service{Name: "web", Datacenter: datacenter}
	for i := range random.IntN(4) {
		address := fmt.Sprintf("10.0.%d.%d", octet, i)
		if habits.names && random.IntN(3) == 0 {
			address = fmt.Sprintf("h%d.%s.test", i, datacenter)
		}
		entry := consultest.Instance("web", fmt.Sprint(datacenter, i), address, 80)
		entry.Service.Meta = map[string]string{"protocol": protocol}
		if habits.protocols && random.IntN(3) == 0 {
			entry.Service.Meta["protocol"] = []string{"http", "tcp", "grpc"}[random.IntN(3)]
		}
		if habits.ports && random.IntN(2) == 0 {
			entry.Service.Ports = []api.ServicePort{{Name: "http", Port: 80, Default: true}, {Name: "http-admin", Port: 90}}
			entry.Service.Port = 0
		}
		if random.IntN(5) == 0 {
			entry.Checks = api.HealthChecks{{CheckID: "c", Status: api.HealthCritical}}
		}
		service.Entries = append(service.Entries, entry)
	}
	return service
}

// servedEndpoints are the endpoints of each host and port name.
func servedEndpoints(t *testing.T, objects []*resource.Resource) map[string]bool {
	served := map[string]bool{}
	for _, object := range objects {
		entry, ok := spec(t, object).(*networking.ServiceEntry)
		if !ok {
			continue
		}
		endpoints := slices.Clone(entry.Endpoints)
		for _, other := range objects {
			w, ok := spec(t, other).(*networking.WorkloadEntry)
			if ok && entry.WorkloadSelector != nil && selects(entry.WorkloadSelector.Labels, w.Labels) {
				endpoints = append(endpoints, w)
			}
		}
		for _, host := range entry.Hosts {
			for _, port := range entry.Ports {
				for _, endpoint := range endpoints {
					number, has := endpoint.Ports[port.Name]
					if !has {
						number = port.Number // as Istio does
					}
					served[fmt.Sprintf("%s %s %d %s:%d", host, port.Name, port.Number, endpoint.Address, number)] = true
				}
			}
		}
	}
	return served
}

// partOfService maps east while west is unread, in two steps. It returns the number of contents that were joined, and
// why they are wrong.
func partOfService(
	t *testing.T, seed uint64, options mapping.Options, habits habits, isChanged bool,
) (joined int, problems []string) {
	random := rand.New(rand.NewPCG(seed, 3))
	protocol := []string{"http", "tcp"}[random.IntN(2)]
	east := drawnInstances(random, "east", 1, habits, protocol)
	west := drawnInstances(random, "west", 2, habits, protocol)
	before, rejects, _ := mapped(newMapper(t, options), "web", []mapping.Service{east, west})
	if len(rejects) > 0 || len(before) == 0 {
		return 0, nil
	}
	mapper := newMapper(t, options)
	mapper.Restore(before)
	earlier := servedEndpoints(t, before)
	isWest := func(endpoint string) bool {
		return strings.Contains(endpoint, " 10.0.2.") || strings.Contains(endpoint, ".west.test")
	}
	remaining := before
	for range 2 {
		if isChanged {
			east = drawnInstances(random, "east", 1, habits, protocol)
		}
		scopes := []mapping.Service{east, {Name: "web", Datacenter: "west"}}
		content, unlisted, ok := mapper.PartOfService("web", scopes, remaining)
		if !ok {
			continue
		}
		joined++
		remaining = unlisted
		served := servedEndpoints(t, content.Resources)
		for endpoint := range earlier {
			if !served[endpoint] && (isWest(endpoint) || !isChanged) {
				problems = append(problems, "lost "+endpoint)
			}
		}
		for endpoint := range served {
			if !earlier[endpoint] && (isWest(endpoint) || !isChanged) {
				problems = append(problems, "new "+endpoint)
			}
		}
		for _, object := range content.Resources {
			if _, err := resource.Validate(object); err != nil {
				problems = append(problems, err.Error())
			}
			entry, isEntry := spec(t, object).(*networking.ServiceEntry)
			if isEntry && entry.Resolution == networking.ServiceEntry_DNS && len(entry.Endpoints) == 0 && entry.WorkloadSelector == nil {
				problems = append(problems, "without endpoints, DNS has the host itself: "+object.Key().Name)
			}
		}
	}
	return joined, problems
}

// While a datacenter is unread, its endpoints stay at their hosts and ports, and those of the other one follow, or all
// objects stay.
func TestPartOfService_KeepsEndpoints(t *testing.T) {
	t.Parallel()
	const seeds = 300
	for name, habits := range map[string]habits{
		"plain": {}, "protocols": {protocols: true}, "ports": {ports: true}, "names": {names: true},
		"all": {true, true, true},
	} {
		for _, endpoints := range []string{"", "workloadEntries"} {
			t.Run(name+" "+endpoints, func(t *testing.T) {
				t.Parallel()
				joined := 0
				for seed := range uint64(seeds) {
					count, problems := partOfService(t, seed, mapping.Options{Endpoints: endpoints}, habits, seed%2 == 0)
					require.Empty(t, problems, "seed %d", seed)
					joined += count
				}
				t.Logf("%d of %d contents were joined", joined, 2*seeds)
				require.Positive(t, joined)
			})
		}
	}
}
