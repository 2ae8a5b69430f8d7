package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

// TestApplyExplained_DoesNotJoinHold has 60 of 100 services go at once, and others one by one later.
func TestApplyExplained_DoesNotJoinHold(t *testing.T) {
	rig := newRig(Settings{}, 100, 2)
	rig.Apply(nil, keys(0, 60))
	require.Equal(t, 100, rig.size())
	rig.ApplyExplained(nil, keys(60, 61))
	require.Equal(t, 61, rig.Status().Objects, "so shortly afterwards it may be part of the loss")
	rig.clock = rig.clock.Add(time.Minute)
	for i := 61; i < 71; i++ {
		rig.restart(t)
		rig.ApplyExplained(nil, keys(i, i+1))
	}
	require.Equal(t, 90, rig.size())
	require.Equal(t, 61, rig.Status().Objects)
	rig.ApplyExplained([]*resource.Resource{entry(71, 1), entry(72, 0)}, nil)
	require.Equal(t, 1, endpoints(rig.table.Snapshot().Get(key(71))))
	require.Zero(t, endpoints(rig.table.Snapshot().Get(key(72))))

	rig.Apply(nil, keys(73, 74))
	require.Equal(t, 62, rig.Status().Objects, "one that is not explained joins")
	rig.clock = rig.clock.Add(59 * time.Second)
	rig.ApplyExplained(nil, keys(74, 75))
	require.Equal(t, 63, rig.Status().Objects)
	rig.restart(t)
	rig.clock = rig.clock.Add(time.Second)
	rig.ApplyExplained(nil, keys(75, 76))
	require.Equal(t, 63, rig.Status().Objects)
	require.Equal(t, 89, rig.size())

	rig.ApplyExplained(nil, keys(76, 100))
	require.Equal(t, 89, rig.size(), "too much at once joins")
	rig.Apply(entries(100, 2), nil)
	rig.passes(t, 100)
}

// TestApplyExplained_OneExplanationWithinWindow has them go one by one, until they are too much for a window.
func TestApplyExplained_OneExplanationWithinWindow(t *testing.T) {
	rig := newRig(Settings{}, 100, 1)
	rig.Apply(nil, keys(0, 60))
	rig.clock = rig.clock.Add(time.Minute)
	for i := 60; i < 100; i++ {
		rig.restart(t)
		rig.ApplyExplained(nil, keys(i, i+1))
	}
	require.Equal(t, 80, rig.size(), "no more than half of those 40 that are not held")
	require.Equal(t, 80, rig.Status().Objects)
}

// TestApplyExplained_KeepsHeldPart has a service lose some endpoints in a hold, and later one more that is explained.
func TestApplyExplained_KeepsHeldPart(t *testing.T) {
	b := newRig(Settings{}, 0, 0)
	b.Apply([]*resource.Resource{addressed(nil, append(subnet("10.0.0", 20), subnet("10.0.1", 20)...)...)}, nil)
	b.Apply([]*resource.Resource{addressed(nil, subnet("10.0.1", 10)...)}, nil)
	require.Equal(t, 30, b.Status().Endpoints)
	b.clock = b.clock.Add(time.Minute)
	b.ApplyExplained([]*resource.Resource{addressed(nil, append(subnet("10.0.1", 9), "10.0.2.1")...)}, nil)
	require.Equal(t, 30, b.Status().Endpoints, "the new one is none of them")
	require.Len(t, b.served(t), 40)
	require.NotContains(t, b.served(t), "10.0.1.10")
	require.Contains(t, b.served(t), "10.0.1.11")
	b.ApplyExplained(nil, keys(0, 1))
	require.Equal(t, 30, b.Status().Endpoints)
	require.ElementsMatch(t, append(subnet("10.0.0", 20), subnet("10.0.1", 20)[10:]...), b.served(t), "and those that went have gone")
	_, _, err := b.Release("", "somebody")
	require.NoError(t, err)
	require.Zero(t, b.size())
}

// TestApplyExplained_Returns: a loss that did not join the hold, and that comes back as the object that is served, does
// not count any longer.
func TestApplyExplained_Returns(t *testing.T) {
	rig := newRig(Settings{}, 24, 3)
	rig.Apply(nil, keys(0, 15))
	rig.Apply([]*resource.Resource{entry(0, 1)}, nil)
	rig.clock = rig.clock.Add(time.Minute)
	rig.ApplyExplained(nil, keys(0, 1))
	require.Equal(t, 1, rig.hold.notJoined.sum.objects)
	require.Equal(t, 2, endpoints(rig.table.Snapshot().Get(key(0))))
	require.Empty(t, rig.Apply([]*resource.Resource{rig.table.Snapshot().Get(key(0))}, nil))
	require.Equal(t, 0, rig.hold.notJoined.sum.objects)
}
