package kube

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/presence"
)

// TestList_RestoredClusterThatGoesOn has a cluster be restored and have later versions than before when it is looked at
// again. It is known by an object that was gone.
func TestList_RestoredClusterThatGoesOn(t *testing.T) {
	const settle, hold = time.Second, time.Minute
	now := time.Now()
	m := &cache{objects: presence.Set[uint64]{"earlier": {Value: 1}}}
	kinds := timeline{m}
	_, err := m.checkList(kinds, now, list{0, 10, map[string]uint64{"earlier": 3, "old": 5}}, settle, hold)
	require.NoError(t, err, "an object that an earlier run did not have is no sign of a restore")
	delete(m.objects, "old")
	m.seen = 12
	m.objects.Put("new", 12)

	restored := map[string]uint64{"earlier": 3, "old": 5}
	_, err = m.checkList(kinds, now, list{12, 40, maps.Clone(restored)}, settle, hold)
	require.ErrorIs(t, err, errOlder)
	missing, err := m.checkList(kinds, now.Add(settle), list{12, 41, maps.Clone(restored)}, settle, hold)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.Equal(t, []string{"new"}, m.held())
}

// TestNote_EarlierVersion reads the hold in a note of version 1.0, and in the present form.
func TestNote_EarlierVersion(t *testing.T) {
	end := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for _, text := range []string{
		`{"Seen":7,"Until":"2026-05-04T03:02:01Z","Why":"restored","Absent":true,"Names":["a"]}`,
		`{"Seen":7,"until":"2026-05-04T03:02:01Z","why":"restored","Absent":true,"Names":["a"]}`,
	} {
		var read note
		require.NoError(t, json.Unmarshal([]byte(text), &read))
		require.Equal(t, presence.Suspicion{End: end, Why: "restored"}, read.Suspicion)
		require.True(t, read.Absent)
	}
}
