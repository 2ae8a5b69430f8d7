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
	return listing(t, 10*times, func(i int) *networking.WorkloadEntry {
		return &networking.WorkloadEntry{Address: fmt.Sprintf("10.0.0.%d", i%10)}
	})
}

func listing(t *testing.T, count int, endpoint func(i int) *networking.WorkloadEntry) *resource.Resource {
	entry := &networking.ServiceEntry{
		Hosts: []string{"a.example"}, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
	}
	for i := range count {
		entry.Endpoints = append(entry.Endpoints, endpoint(i))
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

// The other tests of repeats show that a loss is no larger for them, and these that none is overlooked.
func TestDistinctEndpoints_AreLost(t *testing.T) {
	labelled := func(i int) *networking.WorkloadEntry {
		return &networking.WorkloadEntry{Address: "10.0.0.1", Labels: map[string]string{"version": fmt.Sprint("v", i)}}
	}
	first := func(int) *networking.WorkloadEntry { return &networking.WorkloadEntry{Address: "10.0.0.0"} }
	for name, entries := range map[string][2]*resource.Resource{
		"of one address":          {listing(t, 40, labelled), listing(t, 1, labelled)},
		"replaced by repeats":     {repeating(t, 4), listing(t, 40, first)},
		"replaced by one of them": {repeating(t, 4), listing(t, 1, first)},
	} {
		rig := newRig(Settings{Min: new(5)}, 1, 0)
		rig.Apply(entries[:1], nil)
		rig.Apply(entries[1:], nil)
		require.NotNil(t, rig.Status(), name)
	}
}

func TestRepeatedEndpoints_DoNotCountForLaterLosses(t *testing.T) {
	rig := newRig(Settings{}, 1, 0)
	rig.Apply([]*resource.Resource{repeating(t, 3)}, nil)
	rig.Apply([]*resource.Resource{repeating(t, 1)}, nil)
	rig.Apply([]*resource.Resource{listing(t, 9, func(i int) *networking.WorkloadEntry {
		return &networking.WorkloadEntry{Address: fmt.Sprintf("10.0.0.%d", i)}
	})}, nil)
	require.Nil(t, rig.Status())
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
