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

// contents returns the content of a state, by name.
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

func TestSetSources_IsOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := synced(gateway("only-a", "a"), gateway("both", "a"))
		store := synced(gateway("only-b", "b"), gateway("both", "b"))
		c := synced(gateway("only-c", "c"), gateway("both", "c"))
		view := started(t, from("a", a), from("b", store))
		synctest.Wait()
		before := view.Snapshot()
		require.Equal(t, map[string]string{"ns/only-a": "a", "ns/only-b": "b", "ns/both": "a"}, contents(before))

		view.SetSources(from("c", c), from("b", store))
		synctest.Wait()
		after := view.Snapshot()
		require.Equal(t, map[string]string{"ns/only-c": "c", "ns/only-b": "b", "ns/both": "c"}, contents(after))
		require.Equal(t, before.Revision()+1, after.Revision())
		keys, _, ok := view.Changes(before.Revision())
		require.True(t, ok)
		require.Len(t, keys, 3, "objects of b alone do not change")
	})
}

func TestSetSourcesChangesPrecedence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := synced(entry("of a")), synced(entry("of b"))
		sourceA, sourceB := from("a", a), from("b", b)
		view := started(t, sourceA, sourceB)
		winner := func() string { synctest.Wait(); return storetest.Content(view.Snapshot().Get(reviews)) }
		require.Equal(t, "of a", winner())
		view.SetSources(sourceB, sourceA)
		require.Equal(t, "of b", winner())
		sourceA.Precedence = 1
		view.SetSources(sourceB, sourceA)
		require.Equal(t, "of a", winner())
	})
}

// TestReplacedSource_KeepsObjects is a reload that changes a source's settings: a new store takes the place of the
// old one, and is empty at first.
func TestReplacedSource_KeepsObjects(t *testing.T) {
	for _, name := range []string{"registry", "registry under another name"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := synced(gateway("kept", "1"), gateway("gone", "1"))
				fileStore := synced(gateway("other", "1"), gateway("kept", "of the other"))
				files := from("files", fileStore)
				view := started(t, from("registry", old), files)
				synctest.Wait()

				fresh := memstore.New()
				view.SetSources(from(name, fresh), files)
				synctest.Wait()
				require.True(t, view.Synced())
				require.Subset(t, slices.Collect(maps.Keys(contents(view.Snapshot()))), []string{"ns/kept", "ns/gone", "ns/other"})
				for _, s := range view.Sources() {
					require.Equal(t, s.Name == "registry" && s.Objects == 2, s.Retired, "%+v", s)
				}

				put(fresh, gateway("kept", "2"))
				put(fileStore, gateway("other", "2"))
				synctest.Wait()
				require.Equal(t, map[string]string{"ns/kept": "1", "ns/gone": "1", "ns/other": "2"}, contents(view.Snapshot()),
					"the unread half of the new source has no effect yet")
				require.Equal(t, []string{name, "files"}, shadowed(view, gateway("kept", "").Key()), "without the retiring source")

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
		store := synced(gateway("a", "1"))
		source := from("a", store)
		view := started(t, source)
		synctest.Wait()
		view.SetSources(aggregate.Source{Name: "b", Reader: memstore.New()})
		synctest.Wait()
		put(store, gateway("a", "2"), gateway("b", "2"))
		synctest.Wait()
		require.Equal(t, map[string]string{"ns/a": "1"}, contents(view.Snapshot()), "it is no longer followed")

		view.SetSources(source)
		synctest.Wait()
		require.Equal(t, map[string]string{"ns/a": "2", "ns/b": "2"}, contents(view.Snapshot()))
		require.False(t, view.Sources()[0].Retired)
	})
}

// TestUnreadSource_KeepsServedObjects replaces a source by one that cannot be read.
func TestUnreadSource_KeepsServedObjects(t *testing.T) {
	source := func(name string, s *memstore.Store) aggregate.Source { return from(name, s) }
	synctest.Test(t, func(t *testing.T) {
		a := synced(gateway("x", "a"), gateway("y", "a"), gateway("z", "a"))
		store := synced(gateway("x", "b"), gateway("y", "b"), gateway("w", "b"))
		view := started(t, source("a", a), source("b", store))
		serves := func(want map[string]string, why string) {
			t.Helper()
			synctest.Wait()
			require.Equal(t, want, contents(view.Snapshot()), why)
		}
		serves(map[string]string{"ns/x": "a", "ns/y": "a", "ns/z": "a", "ns/w": "b"}, "at first")

		// The first source is replaced by one that cannot be read: it may have the former objects, or not.
		c := memstore.New()
		first := view.SetSources(source("c", c), source("b", store))
		serves(map[string]string{"ns/x": "a", "ns/y": "a", "ns/z": "a", "ns/w": "b"}, "the objects of c are not read yet")
		put(store, gateway("w", "b2"), gateway("v", "b2"))
		serves(map[string]string{"ns/x": "a", "ns/y": "a", "ns/z": "a", "ns/w": "b2", "ns/v": "b2"}, "b goes on")
		remove(store, gateway("w", "").Key(), gateway("x", "").Key())
		serves(map[string]string{"ns/x": "a", "ns/y": "a", "ns/z": "a", "ns/v": "b2"},
			"an object that b deletes is gone, but not another source's")

		// Now it comes first, so that its objects win.
		second := view.SetSources(source("b", store), source("c", c))
		serves(map[string]string{"ns/x": "a", "ns/y": "b", "ns/z": "a", "ns/v": "b2"}, "b has y for sure")

		put(c, gateway("z", "c"))
		serves(map[string]string{"ns/x": "a", "ns/y": "b", "ns/z": "a", "ns/v": "b2"}, "half of c")
		before := view.Snapshot().Revision()
		require.False(t, closed(first) || closed(second))
		c.MarkSynced()
		serves(map[string]string{"ns/y": "b", "ns/z": "c", "ns/v": "b2"}, "all of c")
		require.Equal(t, before+1, view.Snapshot().Revision(), "in one commit")
		require.True(t, closed(second))
	})
}

// TestRename_WhileAnotherIsUnread renames a source, which changes the origin of its objects, while one above it is
// unread and one between them has other versions.
func TestRename_WhileAnotherIsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := synced(gateway("x", "a")), synced(gateway("x", "b"))
		view := started(t, from("a", store), from("b", b))
		synctest.Wait()
		view.SetSources(aggregate.Source{Name: "c", Reader: memstore.New()}, from("b", b),
			from("z", store))
		synctest.Wait()
		for _, content := range []string{"a", "a2"} {
			put(store, gateway("x", content).WithOrigin(resource.Origin{Source: "z"}))
			synctest.Wait()
			require.Equal(t, map[string]string{"ns/x": content}, contents(view.Snapshot()))
		}
	})
}

// TestSwappedNames_ChangeNoObject has two sources that swap their names and change no objects.
func TestSwappedNames_ChangeNoObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := synced(gateway("x", "a")), synced(gateway("y", "b"))
		view := started(t, from("a", store), from("b", b))
		synctest.Wait()
		before := view.Snapshot().Revision()
		view.SetSources(from("b", store), from("a", b))
		synctest.Wait()
		require.Equal(t, before, view.Snapshot().Revision())
		require.Equal(t, map[string]string{"ns/x": "a", "ns/y": "b"}, contents(view.Snapshot()))
		require.Equal(t, "b", view.Explain(gateway("x", "").Key()).Winner.Source)
	})
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
