package aggregate_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/aggregate"
	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// slipping is a store on which something happens at the worst of moments: right before and right after it is read.
type slipping struct {
	*memstore.Store
	before, after func()
}

func (s *slipping) Changes(revision memstore.Revision) ([]resource.Key, memstore.Snapshot, bool) {
	s.before()
	defer s.after()
	return s.Store.Changes(revision)
}

func TestChangeBetweenReadAndWait_Seen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slipping{Store: synced(), before: func() {}, after: func() {}}
		view := started(t, from("a", s))
		synctest.Wait()
		s.after = func() { put(s.Store, entry("slipped")) }
		put(s.Store, gateway("any", "1")) // has it read
		synctest.Wait()
		require.Equal(t, "slipped", storetest.Content(view.Snapshot().Get(reviews)))
	})
}

func TestSynced_WithCompleteContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slipping{Store: memstore.New()}
		view := aggregate.New(from("a", s))
		reads := 0
		s.before = func() {
			if reads++; view.Synced() && view.Snapshot().Get(reviews) == nil {
				t.Error("the view is synced without an object that was in the synced source")
			}
		}
		s.after = func() {
			put(s.Store, entry("last of the first content"))
			s.MarkSynced()
		}
		run(t, view)
		synctest.Wait()
		require.True(t, view.Synced())
		require.Greater(t, reads, 1)
	})
}

func TestSourceTooFarAhead_ReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := new(memstore.Table)
		view := started(t, aggregate.Source{Name: "a", Reader: forgetful{table}})
		table.Apply([]*resource.Resource{gateway("stays", "1"), gateway("changes", "1"), gateway("goes", "1")}, nil)
		synctest.Wait()
		before := view.Snapshot().Revision()
		table.Apply([]*resource.Resource{gateway("changes", "2"), gateway("comes", "2")}, []resource.Key{gateway("goes", "").Key()})
		synctest.Wait()
		require.Equal(t, map[string]string{"ns/stays": "1", "ns/changes": "2", "ns/comes": "2"}, contents(view.Snapshot()))
		keys, _, ok := view.Changes(before)
		require.True(t, ok)
		require.Len(t, keys, 3)
	})
}

// forgetful is a reader that never remembers changes.
type forgetful struct{ *memstore.Table }

func (f forgetful) Changes(memstore.Revision) ([]resource.Key, memstore.Snapshot, bool) {
	return nil, f.Snapshot(), false
}
