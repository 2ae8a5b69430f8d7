package history

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// spoilt is a history in small segments, with its log, of a table of two objects that were changed n times each.
func spoilt(t *testing.T, dir string, table *memstore.Table, n int) (h *History, log *strings.Builder, opened time.Time) {
	log, opened = new(strings.Builder), time.Now()
	h, err := Open(dir, 8<<10, table, slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.files.current.Close() })
	h.round(table)
	for i := range n {
		change(h, table, fmt.Sprint(i))
	}
	return h, log, opened
}

func change(h *History, table *memstore.Table, body string) {
	table.Apply([]*resource.Resource{newObject(1, body), newObject(2, body)}, nil)
	h.round(table)
}

func query(t *testing.T, h *History) *Answer {
	a, err := h.Find(Query{Details: true})
	require.NoError(t, err)
	return a
}

// Files that are removed or damaged while the history is written are reported once, counted and shown. The next change
// is written again, and the history of the time since then is right.
func TestDamage_AtRunTime(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, h *History) (file string){
		"directory": func(t *testing.T, h *History) string {
			require.NoError(t, os.RemoveAll(filepath.Dir(h.files.name)))
			return h.files.path(h.files.segments[len(h.files.segments)-1].number, segmentSuffix)
		},
		"segment": func(t *testing.T, h *History) string {
			path := h.files.path(h.files.segments[1].number, segmentSuffix)
			require.NoError(t, os.Remove(path))
			return path
		},
		"cut": func(t *testing.T, h *History) string {
			path := h.files.path(h.files.segments[len(h.files.segments)-1].number, segmentSuffix)
			require.NoError(t, os.Truncate(path, 10))
			return path
		},
		"overwritten": func(t *testing.T, history *History) string {
			path := history.files.path(history.files.segments[1].number, segmentSuffix)
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = file.WriteAt([]byte("rot"), 40)
			require.NoError(t, err)
			require.NoError(t, file.Close())
			query(t, history) // a query finds it
			return path
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, table := filepath.Join(t.TempDir(), "state", "history"), new(memstore.Table)
			history, builder, opened := spoilt(t, dir, table, 20)
			require.Greater(t, len(history.files.segments), 3)
			require.Empty(t, history.Health())
			require.Empty(t, builder.String())

			file := spoil(t, history)
			if name == "segment" {
				require.Equal(t, file, history.Health().Damaged[0].File, "who looks notices")
			}
			change(history, table, "after")
			begin := time.Now()
			change(history, table, "last")

			require.Contains(t, builder.String(), "a file of the history is damaged")
			require.Equal(t, 1, strings.Count(builder.String(), "file="+file+" "), "%s", builder)
			health := history.Health()
			require.Empty(t, health.Error)
			require.Zero(t, health.Lost)
			require.InDelta(t, len(health.Damaged), testutil.ToFloat64(history.spoiled), 0)
			require.Equal(t, file, health.Damaged[0].File)

			a := query(t, history)
			require.False(t, a.From.Before(opened))
			require.Equal(t, "last", string(a.Entries[len(a.Entries)-1].New.Body))
			require.Equal(t, "after", string(a.Entries[len(a.Entries)-1].Old.Body))
			require.Equal(t, map[string]string{"s1": "after", "s2": "after"}, bodies(t, history, begin))
			require.FileExists(t, history.files.path(history.files.base.number, completeSuffix))
		})
	}
}

// A damaged record is a gap, and the rest of the file is intact.
func TestDamage_RecordIsGap(t *testing.T) {
	dir, table := filepath.Join(t.TempDir(), "history"), new(memstore.Table)
	history, err := Open(dir, LeastSize, table, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	history.round(table)
	for i := range 10 {
		change(history, table, fmt.Sprint(i))
	}
	require.Len(t, history.files.segments, 1)
	before := query(t, history)
	require.NoError(t, history.files.current.Close())
	path := history.files.path(1, segmentSuffix)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))

	history, log, opened := spoilt(t, dir, table, 0)
	require.Equal(t, 1, strings.Count(log.String(), "file="+path+" "), log)
	require.Contains(t, log.String(), " bytes from byte ")
	after := query(t, history)
	require.Len(t, after.Entries, len(before.Entries)-1)
	require.True(t, after.From.After(before.From))
	require.True(t, after.From.Before(opened), "the following changes are complete")
	for _, e := range after.Entries {
		require.True(t, slices.ContainsFunc(before.Entries, func(o *Entry) bool { return o.Time.Equal(e.Time) && o.Name == e.Name }))
	}
	damaged := after.Entries[len(after.Entries)-1].Time
	require.Equal(t, map[string]string{"s1": "9", "s2": "9"}, bodies(t, history, damaged))
	_, err = history.ServedAt(after.From.Add(-1), "")
	require.Error(t, err)
}

// While changes cannot be written, that is shown and counted; afterwards changes are written again.
func TestHealth_WriteErrors(t *testing.T) {
	dir, table := filepath.Join(t.TempDir(), "state", "history"), new(memstore.Table)
	history, builder, _ := spoilt(t, dir, table, 1)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600)) // no directory can be made
	change(history, table, "lost")
	change(history, table, "lost, too")
	require.Equal(t, 1, strings.Count(builder.String(), "changes cannot be written to the history"))
	health := history.Health()
	require.Contains(t, health.Error, dir)
	require.Equal(t, 4, health.Lost)
	require.InDelta(t, 4, testutil.ToFloat64(history.lost), 0)

	require.NoError(t, os.Remove(dir))
	change(history, table, "again")
	health = history.Health()
	require.Empty(t, health.Error)
	require.Equal(t, 4, health.Lost)
	require.Contains(t, builder.String(), "changes are written to the history again")
	require.Equal(t, "lost, too", string(query(t, history).Entries[0].Old.Body))
}

// A start reports damage in the files of an earlier process, but not the beginning of an unfinished record.
func TestDamage_FoundAtStart(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, h *History) (file string)
		fine  bool
	}{
		"torn": {fine: true, spoil: func(t *testing.T, h *History) string {
			last := h.files.segments[len(h.files.segments)-1]
			path := h.files.path(last.number, segmentSuffix)
			require.NoError(t, os.Truncate(path, last.size-1))
			return path
		}},
		"segment": {spoil: func(t *testing.T, h *History) string {
			path := h.files.path(h.files.segments[1].number, segmentSuffix)
			require.NoError(t, os.Remove(path))
			return path
		}},
		"last segment": {spoil: func(t *testing.T, h *History) string {
			path := h.files.path(h.files.base.number, segmentSuffix)
			require.NoError(t, os.Remove(path))
			return path
		}},
		"base": {spoil: func(t *testing.T, h *History) string {
			path := h.files.path(h.files.base.number, segmentSuffix)
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			content[20] ^= 1
			require.NoError(t, os.WriteFile(path, content, 0o600))
			return path
		}},
		"overwritten": {spoil: func(t *testing.T, h *History) string {
			path := h.files.path(h.files.segments[1].number, segmentSuffix)
			require.NoError(t, os.WriteFile(path, []byte("rotten from its beginning on"), 0o600))
			return path
		}},
		"length": {spoil: func(t *testing.T, h *History) string {
			path := h.files.path(h.files.segments[1].number, segmentSuffix)
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = file.WriteAt([]byte{3, 255, 255}, 0)
			require.NoError(t, err)
			require.NoError(t, file.Close())
			return path
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, table := filepath.Join(t.TempDir(), "history"), new(memstore.Table)
			before, _, first := spoilt(t, dir, table, 20)
			require.NoError(t, before.files.current.Close())
			file := c.spoil(t, before)

			history, builder, opened := spoilt(t, dir, table, 1)
			from := query(t, history).From
			if c.fine {
				require.Empty(t, builder.String())
				require.Empty(t, history.Health())
				require.True(t, from.Before(opened))
				return
			}
			require.Equal(t, 1, strings.Count(builder.String(), "file="+file+" "), "%s", builder)
			require.Equal(t, file, history.Health().Damaged[0].File)
			require.InDelta(t, 1, testutil.ToFloat64(history.spoiled), 0)
			require.True(t, from.After(first))
			require.Empty(t, history.Health().Error)
			require.Equal(t, map[string]string{"s1": "0", "s2": "0"}, bodies(t, history, time.Now()))
		})
	}
}

// TestDamage_StartAfterwards damages a record of the time after the newest base, and starts with other objects. The
// history cannot tell when they changed, so it begins after a gap.
func TestDamage_StartAfterwards(t *testing.T) {
	dir, table := filepath.Join(t.TempDir(), "history"), new(memstore.Table)
	before := opened(t, dir, LeastSize, table)
	before.round(table)
	for i := range 10 {
		change(before, table, fmt.Sprint(i))
	}
	require.NoError(t, before.files.current.Close())
	path := before.files.path(1, segmentSuffix)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content[len(content)-100] ^= 1 // s2 changed to 9
	require.NoError(t, os.WriteFile(path, content, 0o600))

	started := time.Now()
	history := opened(t, dir, LeastSize, table)
	history.round(table)
	answer := query(t, history)
	require.Len(t, answer.Entries, 19)
	require.False(t, answer.From.Before(started))
	require.Equal(t, map[string]string{"s1": "9", "s2": "9"}, bodies(t, history, time.Now()))
}

// A file that cannot be read is reported as such. Its records come back when it can be read again.
func TestUnreadableSegment_ComesBack(t *testing.T) {
	dir, table := filepath.Join(t.TempDir(), "history"), new(memstore.Table)
	history, log, _ := spoilt(t, dir, table, 20)
	entries := query(t, history).Entries
	path := history.files.path(history.files.segments[1].number, segmentSuffix)
	require.NoError(t, os.Rename(path, path+".disk"))
	require.NoError(t, os.Symlink(path, path)) // fails for every user
	require.Less(t, len(query(t, history).Entries), len(entries))
	require.Contains(t, log.String(), `msg="a file of the history is damaged or cannot be read: its records are missing" file=`+path+
		` why="open `+path+`: too many levels of symbolic links"`)
	require.NoError(t, os.Rename(path+".disk", path))
	require.Equal(t, entries, query(t, history).Entries)
}

// Files that cannot be examined are not overwritten: the history does not open.
func TestOpen_FilesThatCannotBeExamined(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may examine all files")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0000000001.log"), []byte("records"), 0o600))
	require.NoError(t, os.Chmod(dir, 0o600))
	defer os.Chmod(dir, 0o700) //nolint:errcheck,gosec // to be removed
	_, err := Open(dir, DefaultSize, new(memstore.Table), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.ErrorContains(t, err, "history: lstat "+dir+"/0000000001.log: permission denied")
}
