package aggregate_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// TestView_Invalid checks that a view has the invalid keys of all sources, also of one that is replaced, until its
// successor was read.
func TestView_Invalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := func(name string) resource.Key {
			return resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "ns", Name: name}
		}
		first, second, successor := memstore.New(), memstore.New(), memstore.New()
		view := started(t,
			from("first", first), from("second", second))
		first.SetInvalid([]resource.Key{key("b")})
		second.SetInvalid([]resource.Key{key("a"), key("b")})
		first.MarkSynced()
		second.MarkSynced()
		synctest.Wait()
		require.Equal(t, []resource.Key{key("a"), key("b")}, view.Snapshot().Invalid())

		view.SetSources(from("first", first), from("second", successor))
		synctest.Wait()
		require.Equal(t, []resource.Key{key("a"), key("b")}, view.Snapshot().Invalid(), "the successor was not read")
		successor.MarkSynced()
		synctest.Wait()
		require.Equal(t, []resource.Key{key("b")}, view.Snapshot().Invalid())
	})
}

// TestView_InvalidOfReadSuccessor replaces a source by a successor with the same invalid key, and adds a source that
// cannot be read. Once the successor is read, the key goes with its own.
func TestView_InvalidOfReadSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mark := []resource.Key{{Kind: resource.Unrecognised, Namespace: "ns", Name: "policies.yaml:3"}}
		store, a2, b := memstore.New(), memstore.New(), memstore.New()
		view := started(t, from("a", store))
		put(store, gateway("g", "1"))
		store.SetInvalid(mark)
		store.MarkSynced()
		synctest.Wait()
		require.Equal(t, mark, view.Snapshot().Invalid())

		put(a2, gateway("g", "1")) // as Inherit does
		a2.SetInvalid(mark)
		view.SetSources(from("a", a2), from("b", b))
		synctest.Wait()
		a2.MarkSynced() // a was read; b is not
		synctest.Wait()
		require.Equal(t, mark, view.Snapshot().Invalid(), "still broken")

		put(a2, gateway("g", "2"))
		a2.SetInvalid(nil) // repaired
		synctest.Wait()
		require.Equal(t, map[string]string{"ns/g": "2"}, contents(view.Snapshot()), "changes of a pass")
		require.Empty(t, view.Snapshot().Invalid(), "the policy is valid now")
	})
}
