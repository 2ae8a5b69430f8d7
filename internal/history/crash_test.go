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

// changeForever writes the number i into object i%crashObjects with the i-th change, and prints what is in the history. What an earlier one
// said last is what it begins with, as a source that is read again does.
func changeForever(dir string) {
	table := new(memstore.Table)
	h, err := Open(dir, LeastSize, table, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	next := 1
	for r := range h.records(h.files.segments) {
		if e, err := r.entry(); err == nil && e.New != nil {
			next = max(next, number(e.New.Body)+1)
		}
	}
	for i := max(1, next-crashObjects); i < next; i++ {
		table.Apply([]*resource.Resource{made(i%crashObjects, fmt.Sprint(i))}, nil)
	}
	table.MarkSynced()
	go func() { panic(h.Run(context.Background())) }()
	go func() {
		for told := 0; ; time.Sleep(time.Millisecond) {
			for r := range h.readable.Load().served.All() {
				if n := number(r.Body()); n > told {
					told = n
				}
			}
			fmt.Println(told)
		}
	}()
	for len(h.readable.Load().segments) == 0 || h.readable.Load().served.Revision() != table.Snapshot().Revision() {
		time.Sleep(time.Millisecond) // what is there at the start is no change
	}
	for ; ; next++ {
		table.Apply([]*resource.Resource{made(next%crashObjects, fmt.Sprint(next))}, nil)
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

// TestKilledAtAnyMoment kills the writer again and again. What it said was written is there, each change leads from what the one
// before it led to, and what was served last is known.
func TestKilledAtAnyMoment(t *testing.T) {
	n := testutil.KillRounds(t, 5)
	dir, written := t.TempDir(), 0
	for range n {
		written = max(written, testutil.KillOnce(t, dir, false))
		h := opened(t, dir, LeastSize, new(memstore.Table))
		newest := 0
		was := make(map[string]int)
		marks := make(map[string]int)
		for r := range h.records(h.files.segments) {
			require.False(t, r.damaged)
			if marks[r.Mark]++; r.Mark != "" {
				continue
			}
			e, err := r.entry()
			require.NoError(t, err)
			if last, told := was[e.Name]; told {
				require.NotNil(t, e.Old)
				require.Equal(t, last, number(e.Old.Body), "%s", e.Name)
			}
			was[e.Name] = number(e.New.Body)
			newest = max(newest, was[e.Name])
		}
		require.GreaterOrEqual(t, newest, written)
		served, whole := h.servedBefore()
		require.True(t, whole)
		require.NotEmpty(t, served)
		for key, object := range served {
			if last, told := was[key.Name]; told {
				require.Equal(t, made(last%crashObjects, fmt.Sprint(last)).Version(), object.Version)
			}
		}
		require.NoError(t, h.files.current.Close())
	}
	t.Logf("killed %d times, %d changes", n, written)
	require.NotZero(t, written)
}
