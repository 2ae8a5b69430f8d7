package consulkv

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources/consul/judge"
)

// state is a list of keys from one number to another, created one after the other from an index on, at another one.
func state(from, to int, created, index uint64) (l listing) {
	l.Answer = judge.Answer{Index: index, Confirmed: true}
	for i := from; i < to; i++ {
		index := created + uint64(i)
		l.pairs = append(l.pairs, &api.KVPair{Key: keyOf(i), CreateIndex: index, ModifyIndex: index})
	}
	return l
}

func keyOf(i int) string { return fmt.Sprintf("mesh/r%03d", i) }

// see has a memory take a listing, and returns the held keys.
func (m *memory) see(l listing, outage bool, now time.Time) (held []string) {
	l.read = now
	c, _ := m.compare(l, outage)
	m.apply(l, c)
	return m.keys.Held()
}

// restarted returns the memory after a restart of a source with the settings that a name stands for.
func (m *memory) restarted(t *testing.T, settings string, now time.Time) *memory {
	var groups []string
	for key := range m.keys {
		groups = append(groups, key)
	}
	text := judge.Records{Settings: "before", Scopes: map[string]judge.Record{"mesh/": m.record()}}.Encode()
	rs, err := judge.Decode(text, settings, now, m.resetHold)
	require.NoError(t, err)
	next := newMemory(m.resetHold)
	next.recall(groups, rs.Scopes["mesh/"])
	return next
}

// However many keys there are, it is known of each when it was created.
func TestMemory_KeepsEveryKey(t *testing.T) {
	now := time.Now()
	for _, restart := range []bool{false, true} {
		memory := newMemory(time.Minute)
		memory.see(state(0, 600, 100, 700), false, now)
		if restart {
			memory = memory.restarted(t, "before", now)
		}
		held := memory.see(state(256, 600, 800, 1500), true, now) // wiped, and the last ones are back
		require.Len(t, held, 256, "restart: %v", restart)
	}
}

// The address is spelled in another way while rules are held.
func TestHold_OutlivesOtherSettings(t *testing.T) {
	now := time.Now()
	for _, settings := range []string{"before", "after"} {
		memory := newMemory(time.Minute)
		memory.see(state(0, 9, 100, 500), false, now)
		require.Len(t, memory.see(state(0, 6, 10, 20), true, now), 3)
		memory = memory.restarted(t, settings, now)
		require.Len(t, memory.see(state(0, 6, 10, 20), false, now), 3, settings)
		require.Empty(t, memory.see(state(0, 6, 10, 20), false, now.Add(time.Minute)), "and it ends")
	}
}

// Consul loses its data again while that is suspected: all has to come back once more.
func TestSecondWipe_IsHeldAsLongAsFirst(t *testing.T) {
	now := time.Now()
	m := newMemory(5 * time.Minute)
	see := func(l listing, after time.Duration) []string {
		now = now.Add(after)
		return m.see(l, false, now)
	}
	see(state(0, 9, 100, 120), 0)
	require.Len(t, see(state(0, 0, 0, 1), time.Second), 9)
	require.Empty(t, see(state(0, 9, 10, 30), 10*time.Second), "all are back")
	require.Len(t, see(state(0, 0, 0, 1), 4*time.Minute), 9)
	require.Len(t, see(state(0, 0, 0, 1), 2*time.Minute), 9, "no record was written")
	require.Len(t, see(state(0, 2, 10, 12), time.Hour), 7, "from the first one on")
	require.Len(t, see(state(0, 2, 10, 12), 4*time.Minute), 7)
	require.Len(t, see(state(3, 5, 13, 20), 30*time.Second), 5, "those that were written and deleted since are gone")
	require.Empty(t, see(state(3, 5, 13, 20), time.Minute))
}

// Where all is set up by the same program, keys are created at the same indexes after a wipe.
func TestKey_CreatedAgainAtSameIndex(t *testing.T) {
	for _, restart := range []bool{false, true} {
		now := time.Now()
		memory := newMemory(time.Minute)
		memory.see(state(0, 4, 30, 38), false, now)
		if restart {
			memory = memory.restarted(t, "before", now)
		}
		require.Len(t, memory.see(state(2, 3, 30, 32), true, now), 3, "restart: %v", restart)
	}
}
