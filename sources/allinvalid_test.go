package sources

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/transform"
)

// What a first read finds and may not serve is not nothing.
func TestFirstReadWithoutAnythingValidIsNone(t *testing.T) {
	right := Content{Group: "b", Resources: []*resource.Resource{made("y", "1", "b")}}
	left, err := transform.New(transform.Settings{Exclude: []transform.Selector{{Names: []string{"x"}}}})
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		spec   Spec
		first  []Content
		synced bool
		then   []Content // makes it synced
	}{
		{name: "all is invalid, and one is mended", first: []Content{broken("a", keyed("x")), broken("b", keyed("y"))}, then: []Content{right}},
		{name: "all is invalid, and one more comes", first: []Content{broken("a", keyed("x"))}, then: []Content{right}},
		{name: "all is invalid, and is removed", first: []Content{broken("a", keyed("x"))}, then: []Content{{Group: "a"}}},
		{
			name: "what is invalid cannot be told", first: []Content{{Group: "a", Rejects: []Reject{{Err: errors.New("bad")}}}},
			then: []Content{{Group: "a"}},
		},
		{name: "all but one is invalid", first: []Content{broken("a", keyed("x")), right}, synced: true},
		{name: "there is nothing", synced: true},
		{name: "there are other APIs only", first: []Content{{Group: "a", Foreign: 3}}, synced: true},
		{
			name: "other APIs are refused", first: []Content{{Group: "a", Rejects: []Reject{{Foreign: true, Err: errors.New("bad")}}}},
			synced: true,
		},
		{
			name: "what is valid is left out", spec: Spec{Transform: left}, synced: true,
			first: []Content{broken("b", keyed("y")), {Group: "a", Resources: []*resource.Resource{made("x", "1", "a")}}},
		},
		{name: "that is what is wanted", spec: Spec{Partial: true}, first: []Content{broken("a", keyed("x"))}, synced: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, Options{}, func(t *testing.T, s *Supervisor) {
				table, sinks, spec := new(memstore.Table), make(chan Sink, 1), c.spec
				spec.Name, spec.Table, spec.Source = "a", table, handing(sinks)
				require.NoError(t, s.Reconfigure([]Spec{spec}))
				sink := <-sinks
				_ = sink.ReplaceAll(c.first)
				sink.Synced()
				sink.Report(Health{State: Healthy})
				st := s.Status()[0]
				require.Equal(t, c.synced, table.Synced())
				require.Equal(t, c.synced, st.Synced)
				if !c.synced {
					require.Equal(t, Degraded, st.State)
					require.Contains(t, st.Message, "not one object")
					sink.Synced() // a source that is started again says it again
					require.False(t, table.Synced())
					require.NoError(t, sink.ReplaceAll(c.then[:1]))
					require.True(t, table.Synced())
				}
				st = s.Status()[0]
				require.True(t, st.Synced)
				require.Equal(t, Healthy, st.State)
				require.Empty(t, st.Message)
			})
		})
	}
}

func TestFirstReadWithoutAnythingValidMayCountByAReload(t *testing.T) {
	within(t, Options{}, func(t *testing.T, s *Supervisor) {
		table := new(memstore.Table)
		spec := Spec{Name: "a", Table: table, Source: whole(groups{"a": nil}, broken("a", keyed("x")).Rejects...)}
		require.NoError(t, s.Reconfigure([]Spec{spec}))
		synctest.Wait()
		require.False(t, table.Synced())
		spec.Partial = true
		require.NoError(t, s.Reconfigure([]Spec{spec}))
		synctest.Wait()
		require.True(t, table.Synced())
	})
}

// An earlier run says what there was: what is broken meanwhile stays, and the source counts as read. One that never could says nothing.
func TestRestartWithoutAnythingValid(t *testing.T) {
	bad := whole(groups{"a": nil}, broken("a", keyed("x")).Rejects...)
	good := whole(groups{"a": {made("x", "1", "a")}})
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
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
