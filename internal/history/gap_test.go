package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// fill leaves the disk no room: the segment cannot grow, and the next one cannot be created. The result makes room
// again.
func fill(t *testing.T, history *History) (free func()) {
	next := history.files.path(history.files.segments[len(history.files.segments)-1].number+1, segmentSuffix)
	history.files.current.SetRoom(1)
	require.NoError(t, os.MkdirAll(filepath.Join(next, "blocks"), 0o700))
	return func() {
		history.files.current.SetRoom(0)
		require.NoError(t, os.RemoveAll(next))
	}
}

// TestGap_FullDisk loses changes of each kind to a full disk, with and without restarts while it is full, or later. A
// change that was lost is neither invented by a comparison afterwards, nor is any moment shown without it.
func TestGap_FullDisk(t *testing.T) {
	several := func(from, to int, body string) (puts []*resource.Resource) {
		for i := from; i < to; i++ {
			puts = append(puts, newObject(i, body))
		}
		return puts
	}
	for name, lose := range map[string]func(*memstore.Table){
		"additions": func(table *memstore.Table) { table.Apply(several(306, 400, "new"), nil) },
		"updates":   func(table *memstore.Table) { table.Apply(several(0, 94, "new"), nil) },
		"deletions": func(table *memstore.Table) {
			for i := range 94 {
				table.Apply(nil, []resource.Key{key(i)})
			}
		},
		"additions that go again": func(table *memstore.Table) {
			table.Apply(several(306, 400, "new"), nil)
			table.Apply(nil, []resource.Key{key(399)})
		},
	} {
		for _, restarts := range []struct{ full, free, after int }{{}, {full: 1}, {free: 1}, {after: 1}, {1, 1, 1}, {2, 0, 0}, {0, 2, 0}} {
			for _, events := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %+v %t", name, restarts, events), func(t *testing.T) {
					dir, table := t.TempDir(), new(memstore.Table)
					history := opened(t, dir, DefaultSize, table)
					history.round(table)
					table.Apply(several(0, 306, "old"), nil)
					history.round(table)
					before := time.Now()
					time.Sleep(time.Millisecond) // two moments
					require.Len(t, bodies(t, history, before), 306)

					free := fill(t, history)
					lose(table)
					history.round(table)
					if events {
						history.recordEvent(&Entry{Time: time.Now(), Event: Reloaded, Text: "lost, too"})
					}
					inside := time.Now()
					restart := func(times int) {
						for range times {
							require.NoError(t, history.files.current.Close())
							history = opened(t, dir, DefaultSize, table)
							require.Empty(t, history.Health().Damaged)
							history.round(table)
						}
						_, err := history.ServedAt(inside, resource.ServiceEntry)
						_, unknown := errors.AsType[*EarlierError](err)
						require.True(t, unknown, "%v", err)
					}
					restart(0)
					require.Len(t, bodies(t, history, before), 306, "earlier changes are known")
					restart(restarts.full)
					free()
					restart(restarts.free)
					table.Apply([]*resource.Resource{newObject(500, "after")}, nil)
					history.round(table)
					restart(restarts.after)
					answer, err := history.Find(Query{Since: before})
					require.NoError(t, err)
					require.LessOrEqual(t, len(answer.Entries), 1, "no change is worked out across the gap")
					require.False(t, answer.From.Before(before), "it says since when it is whole")
					require.Len(t, bodies(t, history, time.Now()), table.Snapshot().Len())
				})
			}
		}
	}
}

// TestGap_FullDiskAtStart starts a process while the disk is full, which then serves changes that cannot be written.
// With room again, the history refuses the times of these changes, and counts them.
func TestGap_FullDiskAtStart(t *testing.T) {
	dir, table := t.TempDir(), new(memstore.Table)
	history := opened(t, dir, DefaultSize, table)
	table.Apply([]*resource.Resource{newObject(1, "old")}, nil)
	history.round(table)
	_ = history.files.current.Close() // a clean end

	next := filepath.Join(dir, "0000000002.log")
	history = opened(t, dir, DefaultSize, table)
	require.NoError(t, os.Mkdir(next, 0o700)) // the next segment cannot be made
	history.round(table)                      // the start
	change := func(body string) time.Time {
		time.Sleep(time.Millisecond)
		table.Apply([]*resource.Resource{newObject(1, body), newObject(2, body)}, nil) // s2 is new
		history.round(table)
		time.Sleep(time.Millisecond)
		return time.Now()
	}
	lost := change("lost")
	require.NoError(t, os.Remove(next))
	change("new")
	if s, err := history.ServedAt(lost, ""); err == nil {
		t.Errorf("at a time when s1 was \"lost\", the history says %v, unknown %v", bodiesOf(s), s.Unknown)
	}
	health := history.Health()
	t.Logf("health: %+v", health)
	require.NotZero(t, health.Lost)
}
