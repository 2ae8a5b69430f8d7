package aggregate_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/aggregate"
	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

var reviews = resource.Key{Kind: resource.ServiceEntry, Namespace: "ns", Name: "reviews"}

func entry(content string) *resource.Resource {
	return storetest.New(reviews.Kind, reviews.Namespace, reviews.Name, content)
}

// run runs the view until the test ends.
func run(t *testing.T, view *aggregate.View) {
	ctx, cancel := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() {
		if err := view.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		background.Wait()
	})
}

func from(name string, reader memstore.Reader) aggregate.Source {
	return aggregate.Source{Name: name, Reader: reader}
}

// started is a view of sources that runs until the test ends.
func started(t *testing.T, sources ...aggregate.Source) *aggregate.View {
	view := aggregate.New(sources...)
	run(t, view)
	return view
}

func remove(s *memstore.Store, keys ...resource.Key) { s.Apply(nil, keys) }

func put(s *memstore.Store, rs ...*resource.Resource) { s.Apply(rs, nil) }

// TestConformance runs the suite of config stores on a view of three sources; the changes arrive by each source in
// turn.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		stores := []*memstore.Store{memstore.New(), memstore.New(), memstore.New()}
		view := started(t,
			aggregate.Source{Name: "first", Reader: stores[0]},
			aggregate.Source{Name: "second", Reader: stores[1]},
			aggregate.Source{Name: "third", Reader: stores[2]})
		var mu sync.Mutex
		turn := 0 // guarded by mu
		return storetest.Subject{
			Store: memstore.NewController(view), Reader: view, ReadOnly: true,
			// Each change is made by another source, which then has the highest precedence; the former object is withdrawn.
			// An object that stays equal stays in its source, since the order of sources is part of its time.
			Apply: func(puts []*resource.Resource, deletes []resource.Key) {
				mu.Lock()
				defer mu.Unlock()
				equal := func(r *resource.Resource) bool {
					present := stores[turn%3].Get(r.Key())
					return present != nil && storetest.Content(present) == storetest.Content(r)
				}
				if len(puts) > 0 && !(len(puts) == 1 && equal(puts[0])) {
					turn++
				}
				deletes = slices.Clone(deletes)
				var dated []*resource.Resource // else it would matter which source has it
				for _, r := range puts {
					if !equal(r) {
						deletes = append(deletes, r.Key())
					}
					dated = append(dated, r.WithCreated(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
				}
				for i, s := range stores {
					if i == turn%3 {
						s.Apply(dated, deletes)
					}
				}
				for i, s := range stores {
					if i != turn%3 {
						s.Apply(nil, deletes)
					}
				}
			},
			MarkSynced: func() {
				for _, s := range stores {
					s.MarkSynced()
				}
			},
		}
	})
}

func TestFirstSourceWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b, c := memstore.New(), memstore.New(), memstore.New()
		view := aggregate.New(
			from("a", store),
			from("b", b),
			aggregate.Source{Name: "c", Reader: c, Precedence: 7})
		put(store, entry("of a"))
		put(b, entry("of b"))
		run(t, view)
		got := func() string {
			synctest.Wait()
			return storetest.Content(view.Snapshot().Get(reviews))
		}
		require.Equal(t, "of a", got(), "the earlier source")
		put(c, entry("of c"))
		require.Equal(t, "of c", got(), "the higher precedence")

		require.Equal(t, []string{"a", "b"}, shadowed(view, reviews))
		shadows := slices.Collect(view.Shadows())
		require.Len(t, shadows, 1)
		require.Equal(t, "c", shadows[0].Winner.Source)
		require.Equal(t, []string{"a", "b"}, sourceNames(shadows[0].Losers))

		remove(c, reviews)
		require.Equal(t, "of a", got())
		remove(store, reviews)
		require.Equal(t, "of b", got())
		require.Empty(t, shadowed(view, reviews))
		require.Empty(t, slices.Collect(view.Shadows()))
		remove(b, reviews)
		require.Empty(t, got())
	})
}

// shadowed returns the sources with losing objects of a key.
func shadowed(v *aggregate.View, key resource.Key) (names []string) {
	for _, s := range v.Explain(key).Shadowed {
		names = append(names, s.Source)
	}
	return names
}

func sourceNames(cs []aggregate.Candidate) (names []string) {
	for _, c := range cs {
		names = append(names, c.Source)
	}
	return names
}

func TestNextWinner_IsUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store := memstore.New(), memstore.New()
		put(a, entry("of a"))
		put(store, entry("of b"))
		view := started(t, from("a", a), from("b", store))
		synctest.Wait()

		controller := memstore.NewController(view)
		var events []string
		controller.RegisterEventHandler(reviews.Kind, func(old, new *resource.Resource, event memstore.Event) {
			require.Equal(t, storetest.Content(new), storetest.Content(controller.Get(reviews)), "reads and events agree")
			events = append(events, storetest.Content(old)+" -> "+storetest.Content(new))
		})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go controller.Run(ctx)
		synctest.Wait()

		put(store, entry("of b, again")) // shadowed: no event
		synctest.Wait()
		remove(a, reviews)
		synctest.Wait()
		put(a, entry("of b, again")) // another winner, with the same content: among objects that compete, its place is another
		synctest.Wait()
		require.Equal(t, []string{" -> of a", "of a -> of b, again", "of b, again -> of b, again"}, events)
	})
}

func TestSourceCommits_NotSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		view := started(t, from("a", store))
		synctest.Wait()
		before := view.Snapshot().Revision()
		put(store, storetest.New(resource.Gateway, "ns", "x", "1"), storetest.New(resource.Gateway, "ns", "y", "1"))
		synctest.Wait()
		require.Equal(t, before+1, view.Snapshot().Revision())
		keys, _, ok := view.Changes(before)
		require.True(t, ok)
		require.Len(t, keys, 2)
	})
}

func TestSynced_WithRequiredSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b, optional := memstore.New(), memstore.New(), memstore.New()
		view := started(t,
			from("a", store),
			from("b", b),
			aggregate.Source{Name: "optional", Reader: optional, Optional: true})
		synced := func() bool { synctest.Wait(); return view.Synced() }
		require.False(t, synced())
		store.MarkSynced()
		require.False(t, synced())
		b.MarkSynced()
		require.True(t, synced())
	})
}

func TestViewWithoutSources_IsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := aggregate.New()
		require.False(t, view.Synced(), "not before Run has looked")
		run(t, view)
		synctest.Wait()
		require.True(t, view.Synced())
	})
}
