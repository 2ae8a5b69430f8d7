package guard

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// repeating returns a ServiceEntry that lists ten endpoints some times over.
func repeating(t *testing.T, times int) *resource.Resource {
	entry := &networking.ServiceEntry{
		Hosts: []string{"a.example"}, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
	}
	for i := range 10 * times {
		entry.Endpoints = append(entry.Endpoints, &networking.WorkloadEntry{Address: fmt.Sprintf("10.0.0.%d", i%10)})
	}
	object, err := resource.New(resource.Meta{Key: key(0)}, entry)
	require.NoError(t, err)
	return object
}

func TestRepeatedEndpoints_AreNoLoss(t *testing.T) {
	rig := newRig(Settings{}, 30, 0)
	once := []*resource.Resource{repeating(t, 1)}
	rig.Apply([]*resource.Resource{repeating(t, 3)}, nil)
	rig.Apply(once, nil)
	require.Nil(t, rig.Status())
	require.Equal(t, once[0].Version(), rig.table.Snapshot().Get(key(0)).Version())

	rig.Apply([]*resource.Resource{repeating(t, 3)}, nil)
	rig.Apply(nil, keys(0, 25))
	require.Equal(t, 25, rig.Status().Objects)
	rig.Apply(once, nil)
	require.Equal(t, 24, rig.Status().Objects, "one is back, with all its endpoints")
}

func TestRelease_ReportsHeldKeys(t *testing.T) {
	rig := newRig(Settings{}, 30, 0)
	rig.Apply(nil, keys(0, 25))
	rig.TakeEvents()
	_, _, err := rig.Release("", "somebody")
	require.NoError(t, err)
	_, changed := rig.TakeEvents()
	require.ElementsMatch(t, keys(0, 25), changed)
}

func TestHeldDeletion_ExplainedAgainStaysHeld(t *testing.T) {
	rig := newRig(Settings{}, 30, 0)
	rig.Apply(nil, keys(0, 25))
	require.NotNil(t, rig.Status())
	rig.clock = rig.clock.Add(time.Hour)
	rig.ApplyExplained(nil, keys(3, 4))
	require.Equal(t, 30, rig.size())
}
