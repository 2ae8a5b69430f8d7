package mapping_test

import (
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/mapping"
)

// TestLeftOut is the table of the reasons for an instance that is not served.
func TestLeftOut(t *testing.T) {
	for why, change := range map[string]func(*api.ServiceEntry){
		"":                    func(*api.ServiceEntry) {},
		"checks are critical": func(e *api.ServiceEntry) { e.Checks = api.HealthChecks{{Status: api.HealthCritical}} },
		"weight 0":            func(e *api.ServiceEntry) { e.Service.Weights = api.AgentWeights{Passing: 0, Warning: 1} },
		`"0.0.0.0" is no address that can be called`: func(e *api.ServiceEntry) { e.Service.Address = "0.0.0.0" },
	} {
		services := http("web", 80, 81)
		change(services[0].Entries[1])
		var want []sources.LeftOut
		if why != "" {
			want = []sources.LeftOut{{What: services[0].Entries[1].Service.Address + ":81", Of: "web", Why: why}}
		}
		require.Equal(t, want, newMapper(t, mapping.Options{}).Service("web", services).LeftOut)
	}
}
