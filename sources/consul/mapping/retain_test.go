package mapping_test

import (
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources/consul/mapping"
)

func TestRetain_KeepsMissingInstances(t *testing.T) {
	three := http("web", 81, 82, 83)
	services := http("web", 81, 84) // 81 is back, 84 is new, 82 and 83 are not back yet
	services[0].Entries[0].Checks = api.HealthChecks{{CheckID: "c", Status: api.HealthCritical}}
	for _, o := range []mapping.Options{{}, {Endpoints: "workloadEntries"}} {
		m := newMapper(t, o)
		before, _, _ := mapped(m, "web", three)
		now, _, _ := mapped(m, "web", services)
		retained, _, err := mapping.Retain(now, before, services)
		require.NoError(t, err)
		require.Equal(t, []uint32{82, 83, 84}, portsOf(t, retained), "a returned instance with a failing check is no endpoint")
		retainedTwice, _, err := mapping.Retain(now, retained, services)
		require.NoError(t, err)
		require.Equal(t, []uint32{82, 83, 84}, portsOf(t, retainedTwice))
		same, _, err := mapping.Retain(now, now, services)
		require.NoError(t, err)
		require.Equal(t, now, same)
	}
}

// portsOf are the ports of all endpoints, in order.
func portsOf(t *testing.T, resources []*resource.Resource) []uint32 {
	var ports []uint32
	seen := map[uint32]bool{}
	add := func(e *networking.WorkloadEntry) {
		for _, p := range e.Ports {
			seen[p] = true
		}
	}
	for _, r := range resources {
		switch s := spec(t, r).(type) {
		case *networking.ServiceEntry:
			for _, e := range s.Endpoints {
				add(e)
			}
		case *networking.WorkloadEntry:
			add(s)
		}
	}
	for p := range uint32(100) {
		if seen[p] {
			ports = append(ports, p)
		}
	}
	return ports
}
