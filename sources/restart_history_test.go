package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
)

// TestRestartHistories compares the table with a model through random changes, rejects and restarts: a restart loses no
// object in force, neither before the source is read again nor afterwards.
func TestRestartHistories(t *testing.T) {
	state := openState(t, t.TempDir())
	n, confirmed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		w := &restartable{
			name: fmt.Sprint("s", n), memory: state.Source(fmt.Sprint("s", n)), published: make(map[string]Content),
			model: newModel(restartGroups),
		}
		w.start()
		w.sink.Synced()
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "restart") > 0 {
				name := rapid.SampledFrom(restartGroups).Draw(t, "group")
				w.publish(drawContent(t, name))
			} else {
				w.restart(t)
			}
			w.check(t)
		}
		confirmed += w.confirmed
	})
	require.Positive(t, confirmed, "an unchanged group need not be read again")
}

var restartGroups = []string{"a", "b", "c"}

func drawContent(t *rapid.T, group string) Content {
	content := Content{Group: group, Renamable: rapid.Bool().Draw(t, "renamable")}
	names := []string{"x", "y", "z"}
	for i := range rapid.IntRange(0, 3).Draw(t, "resources") {
		r := newObject(rapid.SampledFrom(names).Draw(t, "name"), rapid.SampledFrom([]string{"1", "2"}).Draw(t, "content"), fmt.Sprint(group, i))
		content.Resources = append(content.Resources, r)
	}
	for range rapid.IntRange(0, 1).Draw(t, "rejects") {
		reject := Reject{Err: errors.New("bad")}
		if rapid.Bool().Draw(t, "key is known") {
			reject.Key = keyed(rapid.SampledFrom(names).Draw(t, "rejected"))
		}
		content.Rejects = append(content.Rejects, reject)
	}
	return content
}

// restartable is a source in process after process.
type restartable struct {
	name             string
	memory           *lastgood.Store
	table            *memstore.Table
	sink             *sink
	published        map[string]Content // the content of each group
	marks, confirmed int
	model            *model
}

func (w *restartable) start() {
	w.table = new(memstore.Table)
	spec := Spec{Name: w.name, Table: w.table, LastGood: w.memory, Guard: guard.Settings{Off: true}}
	w.sink = newRunner(spec, Options{Validate: allValid, Log: slog.New(slog.DiscardHandler)}, true).sink
}

func (w *restartable) publish(content Content) {
	w.marks++
	content.Fingerprint = fmt.Sprint(w.marks)
	_ = w.sink.ReplaceAll([]Content{content})
	w.published[content.Group] = content
	w.model.replace([]admitted{{Content: content}})
}

// restart stops, and starts from the state on disk; then the unchanged source is read again.
func (w *restartable) restart(t *rapid.T) {
	stopped, stop := context.WithCancel(context.Background())
	stop()
	w.memory.Run(stopped, w.table)
	before := w.table.Snapshot()
	w.start()
	require.True(t, w.table.Synced())
	requireEqual(t, before, w.table.Snapshot())

	w.model.restart()
	revision := w.table.Snapshot().Revision()
	var contents []Content
	for _, name := range restartGroups {
		content, says := w.published[name]
		if !says && !slices.Contains(w.sink.Groups(), name) {
			continue
		}
		content.Group = name
		require.False(t, w.sink.Confirm(name, "other"))
		if w.sink.Confirm(name, content.Fingerprint) {
			require.Empty(t, content.Rejects)
			w.confirmed++
		} else {
			contents = append(contents, content)
		}
	}
	var admittable []admitted
	for _, c := range contents {
		admittable = append(admittable, admitted{Content: c})
	}
	w.model.replace(admittable)
	_ = w.sink.ReplaceAll(contents)
	w.sink.Synced()
	require.LessOrEqual(t, w.table.Snapshot().Revision(), revision+1)
}

func (w *restartable) check(t *rapid.T) {
	winners := w.model.winners()
	require.Equal(t, len(winners), w.table.Snapshot().Len())
	for key, r := range winners {
		got := w.table.Snapshot().Get(key)
		require.True(t, resource.Equal(r, got), "%s", key)
		require.Equal(t, r.Origin().Place, got.Origin().Place)
	}
}

func requireEqual(t *rapid.T, a, b memstore.Snapshot) {
	require.Equal(t, slices.Collect(a.All()), slices.Collect(b.All()))
}
