package consulkv

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/consul/judge"
)

// TestResetHold_RaisedAfterWipe: Consul was wiped and is empty, so that missing keys stay until resetHold after the
// first new key. A reload raises resetHold meanwhile. The status promises the new time.
func TestResetHold_RaisedAfterWipe(t *testing.T) {
	now := time.Now()
	memory := newMemory(time.Minute)
	memory.see(state(0, 9, 100, 500), false, now)
	require.Len(t, memory.see(state(0, 0, 0, 3), true, now), 9)

	text := judge.Records{Settings: "x", Scopes: map[string]judge.Record{"mesh/": memory.record()}}.Encode()
	const raised = 10 * time.Minute
	var groups []string
	for key := range memory.keys {
		groups = append(groups, key)
	}
	now = now.Add(time.Second)
	records, err := judge.Decode(text, "x", now, raised)
	require.NoError(t, err)
	memory = newMemory(raised)
	memory.recall(groups, records.Scopes["mesh/"])

	now = now.Add(time.Second)
	held := memory.see(state(0, 0, 0, 3), false, now)
	require.Len(t, held, 9)
	p := &place{name: "c", prefix: "mesh/", resetHold: raised}
	require.Contains(t, p.healthOf(memory).Message, "something is written there, and then for 10m0s")

	now = now.Add(time.Second)
	require.Len(t, memory.see(state(0, 1, 4, 5), false, now), 8) // the first new key
	now = now.Add(2 * time.Minute)
	require.Len(t, memory.see(state(0, 1, 4, 5), false, now), 8, "they stay for 10 minutes from the first new key")
}
