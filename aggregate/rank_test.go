package aggregate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// TestRanks_FollowPrecedence: objects without a creation time have their source's rank, also after a reload that
// changes only the order, and in one commit.
func TestRanks_FollowPrecedence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		stores := make(map[string]*memstore.Store)
		source := func(name string, precedence int) Source {
			store := stores[name]
			if store == nil {
				store = memstore.New()
				stores[name] = store
				r := resource.FromBody(resource.Meta{Key: resource.Key{Kind: resource.Gateway, Namespace: "n", Name: name}}, nil)
				if name == "dated" {
					r = r.WithCreated(created)
				}
				put(store, r)
				store.MarkSynced()
			}
			return Source{Name: name, Reader: store, Precedence: precedence}
		}
		view := start(t, source("dated", 0), source("a", 0), source("b", 0), source("first", 1))
		object := func(name string) *resource.Resource {
			synctest.Wait()
			return view.Snapshot().Get(resource.Key{Kind: resource.Gateway, Namespace: "n", Name: name})
		}
		require.Zero(t, object("first").Rank())
		require.Less(t, object("first").Rank(), object("a").Rank())
		require.Less(t, object("a").Rank(), object("b").Rank())
		require.Equal(t, created, object("dated").Created())

		before := view.Snapshot().Revision()
		view.SetSources(source("dated", 0), source("b", 0), source("a", 0), source("first", 1))
		require.Less(t, object("b").Rank(), object("a").Rank())
		require.Equal(t, before+1, view.Snapshot().Revision())
		changed, _, _ := view.Changes(before)
		require.Len(t, changed, 2, "of those that have another place now")

		// While a source is unread, everything stays; changes of another source get its present rank.
		late := memstore.New()
		view.SetSources(from("late", late), source("a", 0), source("b", 0))
		synctest.Wait()
		require.Less(t, object("b").Rank(), object("a").Rank())
		stores["b"].Apply([]*resource.Resource{resource.FromBody(resource.Meta{
			Key: resource.Key{Kind: resource.Gateway, Namespace: "n", Name: "b"}, Labels: map[string]string{"new": "yes"},
		}, nil)}, nil)
		require.Equal(t, "yes", object("b").Labels()["new"])
		require.Equal(t, object("b").Unranked().Ranked(2).Rank(), object("b").Rank())
		late.MarkSynced()
		require.Less(t, object("a").Rank(), object("b").Rank())
		require.Nil(t, object("first"))
	})
}

// TestExplain_EarlierSourceHasHost has a registry, without times, claim the host of an earlier source's object with a
// time, however late.
func TestExplain_EarlierSourceHasHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const host = "payments.prod.svc.cluster.local"
		store := func(r *resource.Resource) *memstore.Store {
			s := memstore.New()
			put(s, r)
			s.MarkSynced()
			return s
		}
		cluster := object(t, resource.ServiceEntry, "prod", "payments", 9, serviceEntry(host, 80))
		claim := object(t, resource.ServiceEntry, "dubbo", "claim", 1, serviceEntry(host, 80)).WithCreated(time.Time{})
		view := start(t, Source{Name: "k8s", Reader: store(cluster)}, Source{Name: "zookeeper", Reader: store(claim)})
		synctest.Wait()
		first, second := view.Snapshot().Get(cluster.Key()), view.Snapshot().Get(claim.Key())
		require.Negative(t, first.Created().Compare(second.Created()))
		require.Equal(t, cluster.Created(), first.Own())
		conflicts := view.Explain(claim.Key()).Conflicts
		require.Len(t, conflicts, 1)
		require.Equal(t, "payments", conflicts[0].Objects[0].Name, "the winner")
	})
}
