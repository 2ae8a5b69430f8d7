package kube

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestARestoredClusterThatGoesOn has a cluster be restored and have later versions than before when it is looked at again. It is known by
// an object that was gone.
func TestARestoredClusterThatGoesOn(t *testing.T) {
	const settle, hold = time.Second, time.Minute
	now := time.Now()
	m := &cache{objects: map[string]uint64{"earlier": 1}}
	all := timeline{m}
	_, err := m.checkList(all, now, 0, 10, map[string]uint64{"earlier": 3, "old": 5}, settle, hold)
	require.NoError(t, err, "of an object that an earlier run did not know, nothing follows")
	delete(m.objects, "old")
	m.Seen, m.objects["new"] = 12, 12

	restored := map[string]uint64{"earlier": 3, "old": 5}
	_, err = m.checkList(all, now, 12, 40, maps.Clone(restored), settle, hold)
	require.ErrorIs(t, err, errOlder)
	gone, err := m.checkList(all, now.Add(settle), 12, 41, maps.Clone(restored), settle, hold)
	require.NoError(t, err)
	require.Empty(t, gone)
	require.Equal(t, 1, m.held())
	require.Zero(t, m.objects["new"])
}
