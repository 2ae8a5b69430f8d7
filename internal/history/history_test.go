package history

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/internal/testutil"
	"tributary/memstore"
	"tributary/resource"
)

func TestMain(m *testing.M) {
	if dir, ok := testutil.KillTarget(); ok {
		changeForever(dir)
	}
	goleak.VerifyTestMain(m)
}

func key(i int) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: fmt.Sprintf("s%d", i)}
}

func newObject(i int, body string) *resource.Resource {
	return resource.FromBody(resource.Meta{Key: key(i), Origin: resource.Origin{Source: "rules", Place: fmt.Sprintf("rules/s%d.yaml:1", i)}},
		[]byte(body))
}

// opened is a history of a table, which the test updates itself.
func opened(t testing.TB, dir string, size int64, table *memstore.Table) *History {
	h, err := Open(dir, size, table, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.files.current.Close() })
	return h
}

// round makes h write the present state of the table.
func (h *History) round(table *memstore.Table) {
	h.update(memstore.ChangesFrom(table, h.served))
}

func bodies(t testing.TB, h *History, moment time.Time) map[string]string {
	s, err := h.ServedAt(moment, resource.ServiceEntry)
	require.NoError(t, err)
	require.Empty(t, s.Unknown)
	return bodiesOf(s)
}

func bodiesOf(s *State) map[string]string {
	bodies := make(map[string]string)
	for _, o := range s.Objects {
		bodies[o.Name] = string(o.Body)
	}
	return bodies
}

// TestServedAt_RandomCommits makes random commits, with restarts between some of them and changes during pauses, and
// compares the history of each moment with the state at that time.
func TestServedAt_RandomCommits(t *testing.T) {
	dir, table := t.TempDir(), new(memstore.Table)
	draw := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it is to be the same each time
	history := opened(t, dir, DefaultSize, table)
	history.round(table)
	type moment struct {
		moment time.Time
		bodies map[string]string
	}
	var moments []moment
	changes := 0
	for i := range 300 {
		var puts []*resource.Resource
		var deletes []resource.Key
		for range 1 + draw.IntN(3) {
			if n := draw.IntN(8); draw.IntN(3) == 0 {
				deletes = append(deletes, key(n))
			} else {
				puts = append(puts, newObject(n, fmt.Sprint("body ", i)))
			}
		}
		changed, _ := table.Apply(puts, deletes)
		changes += len(changed)
		if draw.IntN(20) == 0 { // the change is seen by the next process
			require.NoError(t, history.files.current.Close())
			history = opened(t, dir, DefaultSize, table)
		}
		history.round(table)
		bodies := make(map[string]string)
		for r := range table.Snapshot().All() {
			bodies[r.Key().Name] = string(r.Body())
		}
		moments = append(moments, moment{time.Now(), bodies})
	}
	for _, m := range moments {
		require.Equal(t, m.bodies, bodies(t, history, m.moment))
	}
	answer, err := history.Find(Query{Details: true})
	require.NoError(t, err)
	require.Len(t, answer.Entries, changes)

	_, err = history.ServedAt(answer.From.Add(-time.Second), "")
	var earlier *EarlierError
	require.ErrorAs(t, err, &earlier)
}

func TestFind_Changes(t *testing.T) {
	table := new(memstore.Table)
	history := opened(t, t.TempDir(), DefaultSize, table)
	table.Apply([]*resource.Resource{newObject(1, "one")}, nil)
	history.round(table)
	table.Apply([]*resource.Resource{newObject(1, "two"), newObject(2, "one")}, nil)
	history.round(table)
	table.Apply([]*resource.Resource{newObject(1, "two").WithOrigin(resource.Origin{Source: "other"})}, []resource.Key{key(2)})
	history.round(table)

	linesOf := func(q Query) (lines []string) {
		a, err := history.Find(q)
		require.NoError(t, err)
		for _, e := range a.Entries {
			lines = append(lines, fmt.Sprintf("%s %s %s %s", e.Event, e.Name, e.Source, e.Place))
		}
		return lines
	}
	keys := []string{
		"updated s1 rules rules/s1.yaml:1", "added s2 rules rules/s2.yaml:1", "moved s1 other ",
		"deleted s2 rules rules/s2.yaml:1",
	}
	require.ElementsMatch(t, keys, linesOf(Query{}), "the initial state is no change")
	require.Len(t, linesOf(Query{Source: "other"}), 1)
	require.Len(t, linesOf(Query{Name: "s2"}), 2)
	require.Empty(t, linesOf(Query{Since: time.Now().Add(time.Hour)}))

	answer, err := history.Find(Query{Name: "s1", Limit: 1, Details: true})
	require.NoError(t, err)
	require.Equal(t, 1, answer.Earlier)
	require.Equal(t, "two", string(answer.Entries[0].Old.Body))
	require.Equal(t, "rules", answer.Entries[0].Old.Source)
}

// TestStart_IgnoresTornTail cuts the last segment at each byte of its last record: all earlier records are there, and
// the lost change is found again.
func TestStart_IgnoresTornTail(t *testing.T) {
	dir, table := t.TempDir(), new(memstore.Table)
	history := opened(t, dir, DefaultSize, table)
	history.round(table)
	table.Apply([]*resource.Resource{newObject(1, "one")}, nil)
	history.round(table)
	complete := history.files.segments[0].size
	table.Apply([]*resource.Resource{newObject(1, "two")}, nil)
	history.round(table)
	path := history.files.path(history.files.segments[0].number, segmentSuffix)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for size := complete; size < int64(len(text)); size++ {
		copied := t.TempDir()
		require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
		cut := bytes.Clone(text[:size])
		if size%2 == 1 { // of some the end is garbage
			cut = append(cut, make([]byte, int64(len(text))-size)...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(copied, filepath.Base(path)), cut, 0o600))
		history := opened(t, copied, DefaultSize, table)
		history.round(table)
		a, err := history.Find(Query{Details: true})
		require.NoError(t, err)
		require.Len(t, a.Entries, 2)
		last := a.Entries[1]
		require.True(t, last.Unwatched)
		require.Equal(t, "one", string(last.Old.Body))
		require.Equal(t, "two", string(last.New.Body))
		require.NoError(t, history.files.current.Close())
	}
}

// TestStart_UnwatchedChanges has objects change between two processes, so that the history has no record of it.
func TestStart_UnwatchedChanges(t *testing.T) {
	dir, table := t.TempDir(), new(memstore.Table)
	table.Apply([]*resource.Resource{newObject(1, "one"), newObject(2, "one"), newObject(3, "one")}, nil)
	history := opened(t, dir, DefaultSize, table)
	history.round(table)
	before := time.Now()
	require.NoError(t, history.files.current.Close())
	table.Apply([]*resource.Resource{newObject(1, "two"), newObject(4, "one")}, []resource.Key{key(2)})
	history = opened(t, dir, DefaultSize, table)
	history.round(table)
	a, err := history.Find(Query{})
	require.NoError(t, err)
	events := make(map[string]string)
	for _, e := range a.Entries {
		require.True(t, e.Unwatched)
		events[e.Name] = fmt.Sprint(e.Event, " ", e.Unknown)
	}
	require.Equal(t, map[string]string{"s1": "updated true", "s2": "deleted true", "s4": "added false"}, events)
	s, err := history.ServedAt(before, "")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"s3": "one"}, bodiesOf(s))
	require.Equal(t, []string{key(1).String(), key(2).String()}, s.Unknown)
}

// TestDirectory_SizeLimit writes several times the size that there is.
func TestDirectory_SizeLimit(t *testing.T) {
	dir, table := t.TempDir(), new(memstore.Table)
	const limit = 64 << 10
	history := opened(t, dir, limit, table)
	history.round(table)
	first := history.readable.Load().segments
	draw := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it is to be the same each time
	for i := range 2000 {
		noise := make([]byte, 200)
		for k := range noise {
			noise[k] = byte(draw.Uint32())
		}
		table.Apply([]*resource.Resource{newObject(i%10, string(noise))}, nil)
		history.round(table)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		var total int64
		for _, f := range files {
			info, err := f.Info()
			require.NoError(t, err)
			total += info.Size()
		}
		require.LessOrEqual(t, total, int64(limit+2000))
	}
	a, err := history.Find(Query{})
	require.NoError(t, err)
	require.Greater(t, len(a.Entries), 50)
	require.Len(t, bodies(t, history, time.Now()), 10)
	for range history.records(first) {
		t.Fatal("the file is deleted")
	}
	require.Empty(t, history.Health().Damaged, "a reader may have a list of files that was made before")
}

// TestHistory_CountsLostChanges fills the disk, and then makes room. The history merges two commits that come at once.
func TestHistory_CountsLostChanges(t *testing.T) {
	dir, table := t.TempDir(), new(memstore.Table)
	var logged bytes.Buffer
	registry := prometheus.NewRegistry()
	history, err := Open(dir, DefaultSize, table, slog.New(slog.NewTextHandler(&logged, nil)), registry)
	require.NoError(t, err)
	history.round(table)
	history.files.current.SetRoom(1)
	for i := range 3 {
		table.Apply([]*resource.Resource{newObject(1, fmt.Sprint(i)), newObject(2, fmt.Sprint(i))}, nil)
		if i == 1 {
			history.files.current.SetRoom(0)
		}
		history.round(table)
	}
	for body := range 2 {
		table.Apply([]*resource.Resource{newObject(3, fmt.Sprint(body))}, nil)
	}
	history.round(table)
	require.NoError(t, history.files.current.Close())
	require.Equal(t, 1, strings.Count(logged.String(), "cannot be written"), "once")
	require.Contains(t, logged.String(), "written to the history again")
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := make(map[string]float64)
	for _, f := range families {
		counts[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	require.InDelta(t, 2, counts["tributary_history_lost_total"], 0)
	require.InDelta(t, 1, counts["tributary_history_merged_commits_total"], 0)
}

// TestRun_RecordsChangesOfView runs it as the program does.
func TestRun_RecordsChangesOfView(t *testing.T) {
	table := new(memstore.Table)
	h := opened(t, t.TempDir(), DefaultSize, table)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	table.Apply([]*resource.Resource{newObject(1, "one")}, nil)
	table.MarkSynced()
	require.Eventually(t, func() bool { return h.readable.Load().served.Len() == 1 }, 10*time.Second, time.Millisecond)
	table.Apply([]*resource.Resource{newObject(1, "two")}, nil)
	require.Eventually(t, func() bool {
		a, err := h.Find(Query{})
		return err == nil && len(a.Entries) == 1
	}, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

// BenchmarkCommit is a commit of a table without a follower, with an idle follower, and with a history. Allocations are
// those of the whole process: they include the writes of the history.
func BenchmarkCommit(b *testing.B) {
	idle := func(ctx context.Context, table *memstore.Table) error {
		return memstore.Follow(ctx, table, nil, func([]resource.Key, memstore.Snapshot, bool, bool) {})
	}
	for name, follow := range map[string]func(context.Context, *memstore.Table) error{
		"alone": nil, "followed": idle, "history": func(ctx context.Context, table *memstore.Table) error {
			return opened(b, b.TempDir(), DefaultSize, table).Run(ctx)
		},
	} {
		b.Run(name, func(b *testing.B) {
			table := new(memstore.Table)
			for i := range 10000 {
				table.Apply([]*resource.Resource{newObject(i, "before")}, nil)
			}
			table.MarkSynced()
			if follow != nil {
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = follow(ctx, table) // it ends with ctx
				}()
				defer func() {
					cancel()
					<-ended
				}()
			}
			changed := make([]*resource.Resource, b.N)
			for i := range changed {
				changed[i] = newObject(i%10000, fmt.Sprint("after ", i))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for _, r := range changed {
				table.Apply([]*resource.Resource{r}, nil)
			}
			b.StopTimer()
		})
	}
}
