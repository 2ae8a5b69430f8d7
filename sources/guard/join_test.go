package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

// TestApplyExplained_DoesNotJoinHold has 60 of 100 services go at once, and others one by one later.
func TestApplyExplained_DoesNotJoinHold(t *testing.T) {
	b := newRig(Settings{}, 100, 2)
	b.Apply(nil, keys(0, 60))
	require.Equal(t, 100, b.size())
	b.ApplyExplained(nil, keys(60, 61))
	require.Equal(t, 61, b.Status().Objects, "so shortly afterwards it may be part of the loss")
	b.clock = b.clock.Add(time.Minute)
	for i := 61; i < 71; i++ {
		b.restart(t)
		b.ApplyExplained(nil, keys(i, i+1))
	}
	require.Equal(t, 90, b.size())
	require.Equal(t, 61, b.Status().Objects)
	b.ApplyExplained([]*resource.Resource{entry(71, 1), entry(72, 0)}, nil)
	require.Equal(t, 1, endpoints(b.table.Snapshot().Get(key(71))))
	require.Zero(t, endpoints(b.table.Snapshot().Get(key(72))))

	b.Apply(nil, keys(73, 74))
	require.Equal(t, 62, b.Status().Objects, "one that is not explained joins")
	b.clock = b.clock.Add(59 * time.Second)
	b.ApplyExplained(nil, keys(74, 75))
	require.Equal(t, 63, b.Status().Objects)
	b.restart(t)
	b.clock = b.clock.Add(time.Second)
	b.ApplyExplained(nil, keys(75, 76))
	require.Equal(t, 63, b.Status().Objects)
	require.Equal(t, 89, b.size())

	b.ApplyExplained(nil, keys(76, 100))
	require.Equal(t, 89, b.size(), "too much at once joins")
	b.Apply(entries(100, 2), nil)
	b.passes(t, 100)
}

// TestApplyExplained_OneExplanationWithinWindow has them go one by one, until they are too much for a window.
func TestApplyExplained_OneExplanationWithinWindow(t *testing.T) {
	b := newRig(Settings{}, 100, 1)
	b.Apply(nil, keys(0, 60))
	b.clock = b.clock.Add(time.Minute)
	for i := 60; i < 100; i++ {
		b.restart(t)
		b.ApplyExplained(nil, keys(i, i+1))
	}
	require.Equal(t, 80, b.size(), "no more than half of those 40 that are not held")
	require.Equal(t, 80, b.Status().Objects)
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
	b := newRig(Settings{}, 24, 3)
	b.Apply(nil, keys(0, 15))
	b.Apply([]*resource.Resource{entry(0, 1)}, nil)
	b.clock = b.clock.Add(time.Minute)
	b.ApplyExplained(nil, keys(0, 1))
	require.Equal(t, 1, b.hold.notJoined.sum.objects)
	require.Equal(t, 2, endpoints(b.table.Snapshot().Get(key(0))))
	require.Empty(t, b.Apply([]*resource.Resource{b.table.Snapshot().Get(key(0))}, nil))
	require.Equal(t, 0, b.hold.notJoined.sum.objects)
}
