package lastgood

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

const (
	// crashing is the environment variable that makes the test binary write to the directory it names, until it is killed.
	crashing = "TRIBUTARY_TEST_CRASHING"
	// rounds is the environment variable that says how often; `make soak` sets it.
	rounds = "TRIBUTARY_TEST_CRASHES"

	crashObjects = 50
)

// writeForever is the writer: commit i writes the number i into one of crashObjects pairs of objects. It prints up to which
// commit everything is stored.
func writeForever(path string) {
	d, err := Open(path, nil)
	if err != nil {
		panic(err)
	}
	s := d.Source("rules")
	kept, err := s.Load()
	if err != nil {
		panic(err)
	}
	table := new(memstore.Table)
	next := 1
	if kept != nil {
		_, now := table.Apply(kept.Resources, nil)
		s.Continue(kept, now.Revision())
		for _, r := range kept.Resources {
			next = max(next, numberOf(r)+1)
		}
	}
	table.MarkSynced()
	first := next - int(table.Snapshot().Revision()) - 1 // so that commit i has revision i - first
	go s.Run(context.Background(), table)
	go func() {
		told := 0
		for ; ; time.Sleep(time.Millisecond) {
			if rev := int(s.Status().Revision); rev > told && first+rev > 0 {
				told = rev
				fmt.Println(first + rev)
			}
		}
	}()
	for ; ; next++ {
		n := fmt.Sprint(next)
		table.Apply([]*resource.Resource{made(pairOf(next), n), made(pairOf(next)+crashObjects, n)}, nil)
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

// TestKilledAtAnyMoment kills the writer again and again, and checks that what it said was stored is there, or something
// newer, and that no commit is there by half.
func TestKilledAtAnyMoment(t *testing.T) {
	n := 5
	if s := os.Getenv(rounds); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	dir := t.TempDir()
	stored, advanced := 0, 0
	for round := range n {
		before := stored
		stored = max(stored, killOnce(t, dir, round%4 == 3))
		if stored > before {
			advanced++
		}
		d, err := Open(dir, nil)
		require.NoError(t, err, "the lock goes with the process")
		kept, err := d.Source("rules").Load()
		require.NoError(t, err)
		require.NoError(t, d.Close())
		requireNothingLost(t, kept, stored)
	}
	t.Logf("killed %d times, %d commits stored", n, stored)
	require.NotZero(t, advanced)
}

// killOnce runs a writer for a while, from its start or from the first commit stored, and returns the last commit that it
// said was stored.
func killOnce(t *testing.T, dir string, early bool) (stored int) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashing+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(time.Hour, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	soon := func() { kill.Reset(rand.N(500 * time.Millisecond)) }
	if early {
		soon()
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		if stored == 0 && !early {
			soon()
		}
		stored = n
	}
	require.ErrorContains(t, cmd.Wait(), "killed")
	return stored
}

func requireNothingLost(t *testing.T, kept *Kept, stored int) {
	if kept == nil {
		require.Zero(t, stored)
		return
	}
	number := make(map[string]int)
	newest := 0
	for _, r := range kept.Resources {
		number[r.Key().Name] = numberOf(r)
		newest = max(newest, numberOf(r))
	}
	require.GreaterOrEqual(t, newest, stored)
	for commit := max(1, newest-crashObjects+1); commit <= newest; commit++ {
		for _, i := range []int{pairOf(commit), pairOf(commit) + crashObjects} {
			require.Equal(t, commit, number[key(i).Name], "the newest commit is %d, and %d was stored: commit %d must be there, whole", newest, stored, commit)
		}
	}
}
