package lastgood

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
	"tributary/memstore"
	"tributary/resource"
)

// crashObjects are the pairs of objects that are written in turn.
const crashObjects = 50

// writeForever is the process to kill: commit i writes the number i into one of crashObjects pairs of objects. It prints
// the number of each stored commit.
func writeForever(path string) {
	dir, err := Open(path, nil)
	if err != nil {
		panic(err)
	}
	store := dir.Source("rules")
	state, err := store.Load()
	if err != nil {
		panic(err)
	}
	table := new(memstore.Table)
	next := 1
	if state != nil {
		_, now := table.Apply(state.Resources, nil)
		store.Continue(state, now.Revision())
		for _, r := range state.Resources {
			next = max(next, numberOf(r)+1)
		}
	}
	table.MarkSynced()
	first := next - int(table.Snapshot().Revision()) - 1 // so that commit i has revision i - first
	go store.Run(context.Background(), table)
	go func() {
		printed := 0
		for ; ; time.Sleep(time.Millisecond) {
			if rev := int(store.Status().Revision); rev > printed && first+rev > 0 {
				printed = rev
				fmt.Println(first + rev)
			}
		}
	}()
	for ; ; next++ {
		n := fmt.Sprint(next)
		table.Apply([]*resource.Resource{newObject(pairOf(next), n), newObject(pairOf(next)+crashObjects, n)}, nil)
		time.Sleep(100 * time.Microsecond)
	}
}

func pairOf(commit int) int { return commit % crashObjects }

func numberOf(r *resource.Resource) int {
	n, err := strconv.Atoi(string(r.Body()))
	if err != nil {
		panic(err)
	}
	return n
}

// TestKilledAtAnyMoment kills the writer repeatedly, and checks that each reported commit or a newer one is stored, and
// that no commit is stored by half.
func TestKilledAtAnyMoment(t *testing.T) {
	n := testutil.KillRounds(t, 5)
	dir := t.TempDir()
	stored, advanced := 0, 0
	for round := range n {
		before := stored
		stored = max(stored, testutil.KillOnce(t, dir, round%4 == 3))
		if stored > before {
			advanced++
		}
		d, err := Open(dir, nil)
		require.NoError(t, err, "the lock goes with the process")
		state, err := d.Source("rules").Load()
		require.NoError(t, err)
		require.NoError(t, d.Close())
		requireNothingLost(t, state, stored)
	}
	t.Logf("killed %d times, %d commits stored", n, stored)
	require.NotZero(t, advanced)
}

func requireNothingLost(t *testing.T, state *State, stored int) {
	if state == nil {
		require.Zero(t, stored)
		return
	}
	number := make(map[string]int)
	newest := 0
	for _, r := range state.Resources {
		number[r.Key().Name] = numberOf(r)
		newest = max(newest, numberOf(r))
	}
	require.GreaterOrEqual(t, newest, stored)
	for commit := max(1, newest-crashObjects+1); commit <= newest; commit++ {
		for _, i := range []int{pairOf(commit), pairOf(commit) + crashObjects} {
			require.Equal(t, commit, number[key(i).Name],
				"the newest commit is %d, and %d was stored: commit %d must be there, whole", newest,
				stored, commit)
		}
	}
}
