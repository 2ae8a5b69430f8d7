package history

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// many are the objects of a large mesh.
const many = 100_000

// service is the body of an object, as long as that of a usual service.
func service(i int) string { return fmt.Sprint(i, strings.Repeat(" 10.0.0.1:8080", 20)) }

func largeTable() *memstore.Table {
	table, objects := new(memstore.Table), make([]*resource.Resource, many)
	for i := range objects {
		objects[i] = newObject(i, service(0))
	}
	table.Apply(objects, nil)
	table.MarkSynced()
	return table
}

// onDisk is how much a directory takes.
func onDisk(t testing.TB, dir string) (size int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		size += info.Size()
	}
	return size
}

// TestDirectory_SizeLimitOfLargeMesh changes objects of a large mesh for longer than the history can remember: it
// stays within its size.
func TestDirectory_SizeLimitOfLargeMesh(t *testing.T) {
	if testing.Short() {
		t.Skip("it is work for one goroutine, and slow with the race detector")
	}
	const size = 8 << 20
	table, dir := largeTable(), t.TempDir()
	history := opened(t, dir, size, table)
	history.round(table)
	most, written := int64(0), 0
	for i := 0; i < 60_000; i += 1000 {
		changed := make([]*resource.Resource, 1000)
		for n := range changed {
			changed[n] = newObject((i+n)%many, service(i+1))
			written += len(changed[n].Body())
		}
		table.Apply(changed, nil)
		history.round(table)
		most = max(most, onDisk(t, dir))
	}
	require.Greater(t, int64(written), int64(2*size))
	require.LessOrEqual(t, most, int64(size), "a list of the served objects takes %d", history.files.base.size)
}

// BenchmarkPairs makes commits of two tables of a large mesh in turn: one with an idle follower, and one with a
// history. It reports the duration of a commit of each, and the median of the ratios of blocks. A block begins when all
// earlier commits are followed and written; "one" is a change at a time, "many" are commits without a pause.
func BenchmarkPairs(b *testing.B) {
	for _, block := range []int{1, 100} {
		b.Run(fmt.Sprint("block=", block), func(b *testing.B) { pairs(b, block) })
	}
}

func pairs(b *testing.B, block int) {
	type side struct {
		table *memstore.Table
		seen  func() memstore.Revision
		spent []time.Duration
	}
	var followed atomic.Uint64
	idle, recorded := &side{table: largeTable(), seen: func() memstore.Revision { return memstore.Revision(followed.Load()) }},
		&side{table: largeTable()}
	history := opened(b, b.TempDir(), DefaultSize, recorded.table)
	recorded.seen = func() memstore.Revision {
		if s := history.readable.Load(); len(s.segments) > 0 {
			return s.served.Revision()
		}
		return 0
	}
	ctx, cancel := context.WithCancel(b.Context())
	var following sync.WaitGroup
	following.Go(func() {
		// it ends with ctx
		_ = memstore.Follow(ctx, idle.table, nil, func(_ []resource.Key, now memstore.Snapshot, _, _ bool) {
			followed.Store(uint64(now.Revision()))
		})
	})
	following.Go(func() { _ = history.Run(ctx) })
	defer following.Wait()
	defer cancel()
	sides := []*side{idle, recorded}
	rested := func() {
		for _, s := range sides {
			for s.seen() != s.table.Snapshot().Revision() {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	n := 0
	for b.Loop() {
		for _, s := range sides {
			objects := make([]*resource.Resource, block)
			for i := range objects {
				objects[i] = newObject((n+i*997)%many, service(n+1))
			}
			rested()
			began := time.Now()
			for _, r := range objects {
				s.table.Apply([]*resource.Resource{r}, nil)
			}
			s.spent = append(s.spent, time.Since(began))
		}
		slices.Reverse(sides)
		n++
	}
	ratios := make([]float64, n)
	for i := range ratios {
		ratios[i] = float64(recorded.spent[i]) / float64(idle.spent[i])
	}
	median := func(s *side) float64 {
		slices.Sort(s.spent)
		return float64(s.spent[n/2]) / float64(block)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[n/2], "ratio")
	b.ReportMetric(median(idle), "ns/idle")
	b.ReportMetric(median(recorded), "ns/history")
	b.ReportMetric(0, "ns/op") // it has waits in it
}

// BenchmarkStart opens a full history of a large mesh, and compares it with the served objects, none of which changed.
func BenchmarkStart(b *testing.B) {
	table, dir := largeTable(), b.TempDir()
	history := opened(b, dir, DefaultSize, table)
	history.round(table)
	for i := 0; len(history.readable.Load().segments) < segmentShares-1; i += 1000 {
		changed := make([]*resource.Resource, 1000)
		for n := range changed {
			changed[n] = newObject((i+n)%many, service(i+1))
		}
		table.Apply(changed, nil)
		history.round(table)
	}
	require.NoError(b, history.files.current.Close())
	size := onDisk(b, dir)
	var open, takeUp time.Duration
	n := 0
	for b.Loop() {
		began := time.Now()
		history := opened(b, dir, DefaultSize, table)
		open += time.Since(began)
		began = time.Now()
		history.round(table)
		takeUp += time.Since(began)
		require.NoError(b, history.files.current.Close())
		n++
	}
	b.ReportMetric(float64(size), "bytes")
	b.ReportMetric(float64(open.Milliseconds())/float64(n), "ms/open")
	b.ReportMetric(float64(takeUp.Milliseconds())/float64(n), "ms/takeup")
}
