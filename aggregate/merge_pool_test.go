package aggregate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// start runs a view until the test ends.
func start(t *testing.T, sources ...Source) *View {
	view := New(sources...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = view.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	return view
}

func from(name string, reader memstore.Reader) Source { return Source{Name: name, Reader: reader} }

func put(s *memstore.Store, rs ...*resource.Resource) { s.Apply(rs, nil) }

func remove(s *memstore.Store, keys ...resource.Key) { s.Apply(nil, keys) }

func keyOf(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "n", Name: name}
}

// list has a source list addresses for a.example:80.
func list(t *testing.T, store *memstore.Store, name string, addresses ...string) {
	t.Helper()
	l := listed{host: "a.example", ports: []uint32{80}, addresses: addresses}
	put(store, l.resource(t, keyOf(name)))
}

func merging(name string, store *memstore.Store) Source {
	return Source{Name: name, Reader: store, Merge: &Merge{}}
}

// TestEndpointListedTwice_DoesNotChangeView checks that the view does not change when another source lists the same
// endpoint, and when it no longer does.
func TestEndpointListedTwice_DoesNotChangeView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memstore.New(), memstore.New()
		list(t, store, "x", "10.0.0.1", "10.0.0.2")
		list(t, b, "y")
		view := start(t, merging("a", store), merging("b", b))
		synctest.Wait()
		before := view.Snapshot()
		require.Equal(t, 1, before.Len())
		for range 3 {
			for _, addresses := range [][]string{{"10.0.0.1"}, {"10.0.0.2", "10.0.0.1"}, nil} {
				list(t, b, "y", addresses...)
				synctest.Wait()
				require.Equal(t, before.Revision(), view.Snapshot().Revision())
			}
		}
		list(t, b, "y", "10.0.0.1")
		list(t, store, "x", "10.0.0.2") // one of them still has it
		synctest.Wait()
		require.Equal(t, before.Get(keyOf("a.example-80")).Version(), view.Snapshot().Get(keyOf("a.example-80")).Version())
	})
}

// TestMergedEntry_UpdatedAcrossSources checks that the merged entry is updated, never deleted and added, while any
// source lists it.
func TestMergedEntry_UpdatedAcrossSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memstore.New(), memstore.New()
		list(t, store, "x", "10.0.0.1")
		view := start(t, merging("a", store), merging("b", b))
		served := func() string {
			synctest.Wait()
			require.Equal(t, 1, view.Snapshot().Len())
			return saying(t, view.Snapshot().Get(keyOf("a.example-80")))
		}
		require.Contains(t, served(), "[10.0.0.1@]")
		list(t, b, "y", "10.0.0.2")
		require.Contains(t, served(), "[10.0.0.1@ 10.0.0.2@]")
		remove(store, keyOf("x"))
		require.Contains(t, served(), "[10.0.0.2@]")
	})
}

// TestMergedCommit_IsOneCommit checks that a commit of a source is one commit of the view, merged or not.
func TestMergedCommit_IsOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		view := start(t, merging("a", store))
		synctest.Wait()
		before := view.Snapshot().Revision()
		l := listed{host: "a.example", ports: []uint32{80}}
		store.Apply([]*resource.Resource{
			l.resource(t, keyOf("x")),
			resource.FromBody(resource.Meta{Key: resource.Key{Kind: resource.Gateway, Namespace: "n", Name: "g"}}, nil),
		}, nil)
		synctest.Wait()
		require.Equal(t, 2, view.Snapshot().Len())
		require.Equal(t, before+1, view.Snapshot().Revision())
	})
}

// TestRemovedSourceStaysMerged checks that the endpoints of a source that is replaced stay until the new one is read.
func TestRemovedSourceStaysMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b, fresh := memstore.New(), memstore.New(), memstore.New()
		list(t, store, "x", "10.0.0.1")
		list(t, b, "y", "10.0.0.2")
		store.MarkSynced()
		b.MarkSynced()
		view := start(t, merging("a", store), merging("b", b))
		served := func() string {
			synctest.Wait()
			return saying(t, view.Snapshot().Get(keyOf("a.example-80")))
		}
		require.Contains(t, served(), "[10.0.0.1@ 10.0.0.2@]")
		view.SetSources(merging("fresh", fresh), merging("b", b))
		require.Contains(t, served(), "[10.0.0.1@ 10.0.0.2@]")
		require.Equal(t, []string{"b", "a"}, memberNames(view.Explain(keyOf("a.example-80")).Merged.Members))
		twoPorts := listed{host: "a.example", ports: []uint32{80, 443}}
		for _, s := range []*memstore.Store{fresh, b} {
			put(s, twoPorts.resource(t, keyOf("x")), twoPorts.resource(t, keyOf("y")))
		}
		served()
		require.Empty(t, view.Competing(), "a retiring source causes no conflicts")
		remove(b, keyOf("x"))
		list(t, b, "y", "10.0.0.2")
		remove(fresh, keyOf("y"))
		list(t, fresh, "x", "10.0.0.3")
		require.Contains(t, served(), "[10.0.0.1@ 10.0.0.2@ 10.0.0.3@]")
		fresh.MarkSynced()
		require.Contains(t, served(), "[10.0.0.2@ 10.0.0.3@]")
	})
}

// TestMergeEndsWhileAnotherIsUnread_KeepsServing takes the setting away from a source in the very configuration that
// gives it to one that is not read yet, and may have the same hosts.
func TestMergeEndsWhileAnotherIsUnread_KeepsServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b, late := memstore.New(), memstore.New(), memstore.New()
		list(t, store, "reviews", "10.0.0.1")
		ratings := listed{host: "b.example", ports: []uint32{80}, addresses: []string{"10.0.0.2"}}
		put(b, ratings.resource(t, keyOf("ratings")))
		store.MarkSynced()
		b.MarkSynced()
		view := start(t, merging("a", store), merging("b", b))
		synctest.Wait()
		before := statesOf(t, view.Snapshot())
		require.Len(t, before, 2)

		view.SetSources(merging("late", late), merging("b", b), from("a", store))
		synctest.Wait()
		for key := range before {
			require.Contains(t, statesOf(t, view.Snapshot()), key)
		}
		list(t, late, "reviews", "10.0.0.3")
		late.MarkSynced()
		synctest.Wait()
		for key := range before {
			require.Contains(t, statesOf(t, view.Snapshot()), key)
		}
	})
}

// TestReadSource_MissingObjectsWaitForOtherSources reads a source with changed settings, without the objects that
// another one will have once it is read.
func TestReadSource_MissingObjectsWaitForOtherSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b, replacement := memstore.New(), memstore.New(), memstore.New()
		list(t, store, "reviews", "10.0.0.1")
		store.MarkSynced()
		view := start(t, from("a", store))
		served := func() {
			t.Helper()
			synctest.Wait()
			require.Contains(t, statesOf(t, view.Snapshot()), keyOf("reviews"))
		}
		served()
		unread := from("b", b)
		view.SetSources(merging("a", store), unread)
		served()
		list(t, replacement, "reviews", "10.0.0.1")
		view.SetSources(merging("a", replacement), unread)
		served()
		require.NoError(t, replacement.Delete(keyOf("reviews"), ""))
		replacement.MarkSynced()
		served()
		list(t, b, "reviews", "10.0.0.1")
		b.MarkSynced()
		served()
	})
}

func memberNames(members []Member) (names []string) {
	for _, m := range members {
		names = append(names, m.Source)
	}
	return names
}

// TestUnreadableEntry_ServedUnchanged checks that entries that cannot be decoded are served by precedence, under their
// own keys.
func TestUnreadableEntry_ServedUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memstore.New(), memstore.New()
		broken := func(body string) *resource.Resource {
			return resource.FromBody(resource.Meta{Key: keyOf("x")}, []byte(body))
		}
		put(store, broken("\xff\xff"))
		put(b, broken("\xff"))
		view := start(t, merging("a", store), merging("b", b))
		synctest.Wait()
		require.Equal(t, []byte("\xff\xff"), view.Snapshot().Get(keyOf("x")).Body())
		require.Len(t, view.Competing(), 1)
		remove(store, keyOf("x"))
		synctest.Wait()
		require.Equal(t, []byte("\xff"), view.Snapshot().Get(keyOf("x")).Body())
		require.Empty(t, view.Competing())

		put(store, broken("\xff\xff"))
		synctest.Wait()
		require.Len(t, view.Competing(), 1)
		for _, s := range []*memstore.Store{store, b} {
			remove(s, keyOf("x"))
		}
		synctest.Wait()
		require.Empty(t, view.Competing())
	})
}

func TestExplainMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		consul, nacos, files := memstore.New(), memstore.New(), memstore.New()
		put := func(store *memstore.Store, source, name string, l listed) {
			r := l.resource(t, keyOf(name)).WithOrigin(resource.Origin{Source: source, Place: source + " service " + name})
			put(store, r)
		}
		put(consul, "consul", "x", listed{"a.example", []uint32{80}, []string{"10.0.0.1", "10.0.0.2"}})
		put(nacos, "nacos", "y", listed{"a.example", []uint32{80}, []string{"10.0.0.2", "10.0.0.3"}})
		put(nacos, "nacos", "z", listed{"a.example", []uint32{80, 443}, []string{"10.0.0.4"}})
		put(files, "files", "a.example-80", listed{"a.example", []uint32{80}, []string{"10.0.0.9"}})
		view := start(t, merging("consul", consul), Source{Name: "nacos", Reader: nacos, Merge: &Merge{Locality: "eu/a"}},
			from("files", files))
		synctest.Wait()
		golden(t, "explain-merged", view.Explain(keyOf("a.example-80")))
		golden(t, "explain-merged-host", view.ExplainHost("a.example"))
		golden(t, "explain-member", view.Explain(keyOf("y")))
		golden(t, "explain-refused", view.Explain(keyOf("z")))
		golden(t, "merged-conflicts", view.Competing())
		for _, s := range view.Sources() {
			require.NotEmpty(t, s.Name)
		}

		remove(nacos, keyOf("z"))
		synctest.Wait()
		require.Empty(t, view.Competing())
	})
}

// TestExplain_MergedIncludesReadCommits asks while the loop works, so that the race detector has something to see.
func TestExplain_MergedIncludesReadCommits(t *testing.T) {
	store, b := memstore.New(), memstore.New()
	view := start(t, merging("a", store), merging("b", b))
	for i := range 300 {
		address := fmt.Sprintf("10.0.%d.%d", i/256, i%256)
		changed := view.Changed()
		list(t, []*memstore.Store{store, b}[i%2], fmt.Sprint("x", i/100), address)
		<-changed
		e := view.Explain(keyOf("a.example-80"))
		require.True(t, slices.ContainsFunc(e.Merged.Endpoints, func(p Endpoint) bool { return p.Address == address }))
		require.Empty(t, view.Competing())
	}
}

// TestChangeCostsAsMuchAsItsHost counts the allocations of a change among few hosts and among many.
func TestChangeCostsAsMuchAsItsHost(t *testing.T) {
	cost := func(hosts int) float64 {
		store := memstore.New()
		var rs []*resource.Resource
		for i := range hosts {
			rs = append(rs, listed{host: fmt.Sprintf("h%d.example", i), ports: []uint32{80}}.resource(t, keyOf(fmt.Sprint("h", i))))
		}
		store.Apply(rs, nil)
		view := New(merging("a", store))
		view.merge()
		i := 0
		return testing.AllocsPerRun(100, func() {
			i++
			l := listed{host: "h1.example", ports: []uint32{80}, addresses: []string{fmt.Sprintf("10.0.0.%d", i)}}
			put(store, l.resource(t, keyOf("h1")))
			view.merge()
		})
	}
	require.Less(t, cost(5000), 2*cost(50))
}
