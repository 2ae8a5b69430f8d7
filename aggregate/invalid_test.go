package aggregate_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/aggregate"
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
		view := aggregate.New(
			aggregate.Source{Name: "first", Reader: first}, aggregate.Source{Name: "second", Reader: second})
		run(t, view)
		first.SetInvalid([]resource.Key{key("b")})
		second.SetInvalid([]resource.Key{key("a"), key("b")})
		first.MarkSynced()
		second.MarkSynced()
		synctest.Wait()
		require.Equal(t, []resource.Key{key("a"), key("b")}, view.Snapshot().Invalid())

		view.SetSources(aggregate.Source{Name: "first", Reader: first}, aggregate.Source{Name: "second", Reader: successor})
		synctest.Wait()
		require.Equal(t, []resource.Key{key("a"), key("b")}, view.Snapshot().Invalid(), "the successor was not read")
		successor.MarkSynced()
		synctest.Wait()
		require.Equal(t, []resource.Key{key("b")}, view.Snapshot().Invalid())
	})
}
