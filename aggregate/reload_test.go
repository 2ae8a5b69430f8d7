package aggregate_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/aggregate"
	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// contents returns what a state holds, by name.
func contents(s memstore.Snapshot) map[string]string {
	m := make(map[string]string)
	for r := range s.All() {
		m[r.Key().FullName()] = storetest.Content(r)
	}
	return m
}

func synced(rs ...*resource.Resource) *memstore.Store {
	s := memstore.New()
	put(s, rs...)
	s.MarkSynced()
	return s
}

func gateway(name, content string) *resource.Resource {
	return storetest.New(resource.Gateway, "ns", name, content)
}

func TestSetSourcesIsOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := synced(gateway("only-a", "a"), gateway("both", "a"))
		b := synced(gateway("only-b", "b"), gateway("both", "b"))
		c := synced(gateway("only-c", "c"), gateway("both", "c"))
		view := aggregate.New(aggregate.Source{Name: "a", Reader: a}, aggregate.Source{Name: "b", Reader: b})
		run(t, view)
		synctest.Wait()
		before := view.Snapshot()
		require.Equal(t, map[string]string{"ns/only-a": "a", "ns/only-b": "b", "ns/both": "a"}, contents(before))

		view.SetSources(aggregate.Source{Name: "c", Reader: c}, aggregate.Source{Name: "b", Reader: b})
		synctest.Wait()
		after := view.Snapshot()
		require.Equal(t, map[string]string{"ns/only-c": "c", "ns/only-b": "b", "ns/both": "c"}, contents(after))
		require.Equal(t, before.Revision()+1, after.Revision())
		keys, _, ok := view.Changes(before.Revision())
		require.True(t, ok)
		require.Len(t, keys, 3, "what is only in b is not disturbed")
	})
}

func TestSetSourcesChangesPrecedence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := synced(entry("of a")), synced(entry("of b"))
		sourceA, sourceB := aggregate.Source{Name: "a", Reader: a}, aggregate.Source{Name: "b", Reader: b}
		view := aggregate.New(sourceA, sourceB)
		run(t, view)
		winner := func() string { synctest.Wait(); return storetest.Content(view.Snapshot().Get(reviews)) }
		require.Equal(t, "of a", winner())
		view.SetSources(sourceB, sourceA)
		require.Equal(t, "of b", winner())
		sourceA.Precedence = 1
		view.SetSources(sourceB, sourceA)
		require.Equal(t, "of a", winner())
	})
}

// TestReplacedSourceWithdrawsNothing is a reload that changes a source's settings: a new store takes the place of the
// old one, and is empty at first.
func TestReplacedSourceWithdrawsNothing(t *testing.T) {
	for _, name := range []string{"registry", "registry under another name"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := synced(gateway("kept", "1"), gateway("gone", "1"))
				other := synced(gateway("other", "1"), gateway("kept", "of the other"))
				files := aggregate.Source{Name: "files", Reader: other}
				view := aggregate.New(aggregate.Source{Name: "registry", Reader: old}, files)
				run(t, view)
				synctest.Wait()

				fresh := memstore.New()
				view.SetSources(aggregate.Source{Name: name, Reader: fresh}, files)
				synctest.Wait()
				require.True(t, view.Synced())
				require.Subset(t, slices.Collect(maps.Keys(contents(view.Snapshot()))), []string{"ns/kept", "ns/gone", "ns/other"})
				for _, s := range view.Sources() {
					require.Equal(t, s.Name == "registry" && s.Objects == 2, s.Retiring, "%+v", s)
				}

				put(fresh, gateway("kept", "2"))
				put(other, gateway("other", "2"))
				synctest.Wait()
				require.Equal(t, map[string]string{"ns/kept": "2", "ns/gone": "1", "ns/other": "2"}, contents(view.Snapshot()))
				require.Equal(t, []string{"files"}, sourceNames(view.Shadowed(gateway("kept", "").Key())), "not what retires")

				fresh.MarkSynced()
				synctest.Wait()
				require.Equal(t, map[string]string{"ns/kept": "2", "ns/other": "2"}, contents(view.Snapshot()))
				require.Len(t, view.Sources(), 2)
			})
		})
	}
}

func TestRemovedSourceComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := synced(gateway("a", "1"))
		source := aggregate.Source{Name: "a", Reader: a}
		view := aggregate.New(source)
		run(t, view)
		synctest.Wait()
		view.SetSources(aggregate.Source{Name: "b", Reader: memstore.New()})
		synctest.Wait()
		put(a, gateway("a", "2"), gateway("b", "2"))
		synctest.Wait()
		require.Equal(t, map[string]string{"ns/a": "1"}, contents(view.Snapshot()), "it is no longer followed")

		view.SetSources(source)
		synctest.Wait()
		require.Equal(t, map[string]string{"ns/a": "2", "ns/b": "2"}, contents(view.Snapshot()))
		require.False(t, view.Sources()[0].Retiring)
	})
}
