package provider

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMerge_CombinesParametersOfBothLevels has one provider at both levels, which do not say the same: Java registers
// an instance a moment after its interfaces, with metadata that lack some parameters. p are those of the node of the
// interface, i those of the metadata.
func TestMerge_CombinesParametersOfBothLevels(t *testing.T) {
	const golang = "dubbo-golang-3.3.2"
	for name, c := range map[string]struct {
		p, i   map[string]string
		older  bool // the instance is
		weight uint32
		labels map[string]string
	}{
		"only the interface has a weight":   {p: map[string]string{"weight": "7"}, weight: 7},
		"only the instance has a weight":    {i: map[string]string{"weight": "7"}, weight: 7},
		"only the instance, which is older": {i: map[string]string{"weight": "7"}, older: true, weight: 7},
		"both have one: the newer":          {p: map[string]string{"weight": "7"}, i: map[string]string{"weight": "8"}, weight: 8},
		"both have one, and the instance is older": {
			p: map[string]string{"weight": "7"}, i: map[string]string{"weight": "8"}, older: true,
			weight: 7,
		},
		"dubbo-go's 0 is no weight": {
			p: map[string]string{"weight": "7"},
			i: map[string]string{"weight": "0", "release": golang}, weight: 7,
		},
		"Java's 0 says something": {p: map[string]string{"weight": "7"}, i: map[string]string{"weight": "0"}, weight: 0},
		"neither has one":         {weight: DefaultWeight},
		"one level is disabled":   {p: map[string]string{"disabled": "true"}, weight: 0},
		"the newer level is enabled": {
			p: map[string]string{"disabled": "true"}, i: map[string]string{"enabled": "true"},
			weight: DefaultWeight,
		},
		"the newer level is not enabled": {
			p: map[string]string{"disabled": "false"}, i: map[string]string{"enabled": "false"},
			weight: 0,
		},
		"labels come from either level": {
			p: map[string]string{"region": "r", "zone": "old"}, i: map[string]string{"zone": "z"},
			weight: DefaultWeight, labels: map[string]string{"region": "r", "zone": "z"},
		},
		"labels, and the instance is older": {
			p: map[string]string{"zone": "z"}, i: map[string]string{"region": "r", "zone": "old"},
			older: true, weight: DefaultWeight, labels: map[string]string{"region": "r", "zone": "z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ofInterface := Provider{
				ID: ID{Interface: "a"}, Protocol: "dubbo", Host: "h", Port: 1, Path: "a", Params: maps.Clone(c.p), Timestamp: 1000,
				Levels: OfInterfaces,
			}
			ofInstance := ofInterface
			ofInstance.Params, ofInstance.Timestamp, ofInstance.Levels = maps.Clone(c.i), 1001, OfApplications
			if c.older {
				ofInstance.Timestamp = 999
			}
			for _, providers := range [][]Provider{{ofInterface, ofInstance}, {ofInstance, ofInterface}} {
				merged := Merge(providers)
				require.Len(t, merged, 1)
				require.Equal(t, OfInterfaces|OfApplications, merged[0].Levels)
				require.Equal(t, c.weight, merged[0].Weight())
				require.Equal(t, max(ofInterface.Timestamp, ofInstance.Timestamp), merged[0].Timestamp)
				for key, value := range c.labels {
					require.Equal(t, value, merged[0].Params[key])
				}
			}
			require.Equal(t, c.p, ofInterface.Params, "the published provider is not modified")
			require.Equal(t, c.i, ofInstance.Params)
		})
	}
}

// TestMerge_NewestOfLevelCounts has the node of a crashed provider beside that of the new one, which no longer has a
// weight of its own.
func TestMerge_NewestOfLevelCounts(t *testing.T) {
	provider := Provider{
		ID: ID{Interface: "a"}, Protocol: "dubbo", Host: "h", Port: 1,
		Params: map[string]string{"weight": "7", "disabled": "true"}, Timestamp: 1, Levels: OfInterfaces,
	}
	now := provider
	now.Params, now.Timestamp = nil, 2
	instance := now
	instance.Levels, instance.Timestamp = OfApplications, 3
	require.EqualValues(t, DefaultWeight, Merge([]Provider{provider, now, instance})[0].Weight())
}
