package sources

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/sources/transform"
)

// A first read whose objects may all not be served is not an empty source.
func TestFirstRead_WithoutValidObjectIsNone(t *testing.T) {
	right := Content{Group: "b", Resources: objects(newObject("y", "1", "b"))}
	excluding, err := transform.New(transform.Settings{Exclude: []transform.Selector{{Names: []string{"x"}}}})
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		spec   Spec
		first  []Content
		synced bool
		next   []Content // makes it synced
	}{
		{name: "all objects are invalid, and one becomes valid", first: []Content{
			broken("a", keyed("x")),
			broken("b", keyed("y")),
		}, next: []Content{right}},
		{name: "all is invalid, and one more comes", first: []Content{broken("a", keyed("x"))}, next: []Content{right}},
		{name: "all is invalid, and is removed", first: []Content{broken("a", keyed("x"))}, next: []Content{{Group: "a"}}},
		{
			name: "an invalid text names no object", first: []Content{{Group: "a", Rejects: []Reject{{Err: errors.New("bad")}}}},
			next: []Content{{Group: "a"}},
		},
		{name: "all but one is invalid", first: []Content{broken("a", keyed("x")), right}, synced: true},
		{name: "there is nothing", synced: true},
		{name: "there are other APIs only", first: []Content{{Group: "a", Foreign: 3}}, synced: true},
		{
			name: "other APIs are refused", first: []Content{{Group: "a", Rejects: []Reject{{Foreign: true, Err: errors.New("bad")}}}},
			synced: true,
		},
		{
			name: "valid objects are excluded", spec: Spec{Transform: excluding}, synced: true,
			first: []Content{broken("b", keyed("y")), {Group: "a", Resources: objects(newObject("x", "1", "a"))}},
		},
		{name: "the operator wants that", spec: Spec{Partial: true}, first: []Content{broken("a", keyed("x"))}, synced: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, Options{}, func(t *testing.T, supervisor *Supervisor) {
				table, sinks, spec := new(memstore.Table), make(chan Sink, 1), c.spec
				spec.Name, spec.Table, spec.Source = "a", table, handing(sinks)
				configure(t, supervisor, spec)
				sink := <-sinks
				_ = sink.ReplaceAll(c.first)
				sink.Synced()
				sink.Report(Health{State: Healthy})
				status := supervisor.Status()[0]
				require.Equal(t, c.synced, table.Synced())
				require.Equal(t, c.synced, status.Synced)
				if !c.synced {
					require.Equal(t, Degraded, status.State)
					require.Contains(t, status.Message, "not one object")
					sink.Synced() // a source that is started again says it again
					require.False(t, table.Synced())
					require.NoError(t, sink.ReplaceAll(c.next[:1]))
					require.True(t, table.Synced())
				}
				status = supervisor.Status()[0]
				require.True(t, status.Synced)
				require.Equal(t, Healthy, status.State)
				require.Empty(t, status.Message)
			})
		})
	}
}

func TestFirstReadWithoutAnythingValidMayCountByAReload(t *testing.T) {
	within(t, Options{}, func(t *testing.T, supervisor *Supervisor) {
		table := new(memstore.Table)
		spec := Spec{Name: "a", Table: table, Source: whole(groups{"a": nil}, broken("a", keyed("x")).Rejects...)}
		configure(t, supervisor, spec)
		synctest.Wait()
		require.False(t, table.Synced())
		spec.Partial = true
		configure(t, supervisor, spec)
		synctest.Wait()
		require.True(t, table.Synced())
	})
}

// The stored state of an earlier run names the objects: those that are broken now stay, and the source counts as read.
// The state of a source that was never read names none.
func TestRestartWithoutAnythingValid(t *testing.T) {
	bad := whole(groups{"a": nil}, broken("a", keyed("x")).Rejects...)
	good := whole(groups{"a": {newObject("x", "1", "a")}})
	withDir(t, func(t *testing.T, dir string) {
		for _, life := range []struct {
			source  Source
			synced  bool
			objects int
		}{{bad, false, 0}, {bad, false, 0}, {good, true, 1}, {bad, true, 1}, {bad, true, 1}} {
			lifetime(t, dir, Options{}, life.source, func(s *Supervisor, table *memstore.Table) {
				require.Equal(t, life.synced, table.Synced())
				require.Equal(t, life.synced, s.Status()[0].Synced)
				require.Equal(t, life.objects, table.Snapshot().Len())
			})
		}
	})
}
