package history

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
	"tributary/memstore"
	"tributary/resource"
)

// crashObjects are the objects that are written in turn.
const crashObjects = 10

// changeForever writes the number i into object i%crashObjects with the i-th change, and prints the changes in the
// history. It begins with the last state that an earlier run printed, like a source that is read again.
func changeForever(dir string) {
	table := new(memstore.Table)
	h, err := Open(dir, LeastSize, table, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	next := 1
	for r := range h.records(h.files.segments) {
		if _, err := r.unpack(); err == nil && r.New != nil {
			next = max(next, number(r.New.Body)+1)
		}
	}
	for i := max(1, next-crashObjects); i < next; i++ {
		table.Apply([]*resource.Resource{newObject(i%crashObjects, fmt.Sprint(i))}, nil)
	}
	table.MarkSynced()
	go func() { panic(h.Run(context.Background())) }()
	go func() {
		for printed := 0; ; time.Sleep(time.Millisecond) {
			for r := range h.readable.Load().served.All() {
				if n := number(r.Body()); n > printed {
					printed = n
				}
			}
			fmt.Println(printed)
		}
	}()
	for len(h.readable.Load().segments) == 0 || h.readable.Load().served.Revision() != table.Snapshot().Revision() {
		time.Sleep(time.Millisecond) // the state at the start is no change
	}
	for ; ; next++ {
		table.Apply([]*resource.Resource{newObject(next%crashObjects, fmt.Sprint(next))}, nil)
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
}

func number(body []byte) int {
	n, err := strconv.Atoi(string(body))
	if err != nil {
		panic(err)
	}
	return n
}

// TestKilledAtAnyMoment kills the writer again and again. Changes that it printed are there, each change begins with
// the result of the one before it, and the last served state is known.
func TestKilledAtAnyMoment(t *testing.T) {
	n := testutil.KillRounds(t, 5)
	dir, written := t.TempDir(), 0
	for range n {
		written = max(written, testutil.KillOnce(t, dir, false))
		history := opened(t, dir, LeastSize, new(memstore.Table))
		newest := 0
		previous := make(map[string]int)
		bases := 0
		for entry := range history.records(history.files.segments) {
			if entry.Event == "" {
				bases++
				require.Equal(t, bases == 1, entry.gap, "only the first start is a gap")
				continue
			}
			require.False(t, entry.gap)
			_, err := entry.unpack()
			require.NoError(t, err)
			if last, told := previous[entry.Name]; told {
				require.NotNil(t, entry.Old)
				require.Equal(t, last, number(entry.Old.Body), "%s", entry.Name)
			}
			previous[entry.Name] = number(entry.New.Body)
			newest = max(newest, previous[entry.Name])
		}
		require.GreaterOrEqual(t, newest, written)
		served, damaged := history.servedBefore()
		require.False(t, damaged)
		require.NotEmpty(t, served)
		for key, object := range served {
			if last, told := previous[key.Name]; told {
				require.Equal(t, newObject(last%crashObjects, fmt.Sprint(last)).Version(), object.Version)
			}
		}
		require.NoError(t, history.files.current.Close())
	}
	t.Logf("killed %d times, %d changes", n, written)
	require.NotZero(t, written)
}
