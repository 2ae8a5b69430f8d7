package memstore_test

import (
	"context"
	"maps"
	"sync"
	"testing"

	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// TestConcurrentHistories runs random histories at the same time, each on a namespace of its own, with readers that must
// find every state consistent, and a handler. The last state is then that of each history alone.
func TestConcurrentHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		histories := map[string][]*resource.Resource{} // content "-" deletes
		for _, namespace := range []string{"n1", "n2", "n3"} {
			step := rapid.Custom(func(t *rapid.T) *resource.Resource {
				return storetest.New(kinds.Draw(t, "kind"), namespace, nameGen.Draw(t, "name"),
					rapid.SampledFrom([]string{"1", "2", "-"}).Draw(t, "content"))
			})
			histories[namespace] = rapid.SliceOfN(step, 1, 60).Draw(t, namespace)
		}

		store := memstore.New()
		seen := &mirror{t: t, content: make(model)}
		for _, schema := range store.Schemas() {
			store.RegisterEventHandler(schema.Kind, seen.handle)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var background, writers sync.WaitGroup
		background.Go(func() { store.Run(ctx) })
		for range 2 {
			background.Go(func() { follow(ctx, t, store) })
		}
		for _, history := range histories {
			writers.Go(func() {
				for i, r := range history {
					play(t, store, i, r)
				}
			})
		}
		writers.Wait()

		want := make(model)
		for _, history := range histories {
			for _, r := range history {
				if want[r.Key()] = storetest.Content(r); want[r.Key()] == "-" {
					delete(want, r.Key())
				}
			}
		}
		store.MarkSynced()
		storetest.Eventually(t, store.HasSynced, "HasSynced")
		cancel()
		background.Wait()
		if got := contentOf(t, store.Snapshot()); !maps.Equal(got, want) {
			t.Fatalf("store holds %v, want %v", got, want)
		}
		if !maps.Equal(seen.content, want) {
			t.Fatalf("handlers saw %v, want %v", seen.content, want)
		}
	})
}

// play does one step, by one of several methods.
func play(t rapid.TB, store *memstore.Store, method int, r *resource.Resource) {
	var err error
	exists := store.Get(r.Key()) != nil // this namespace has no other writer
	switch {
	case storetest.Content(r) == "-" && exists && method%2 == 0:
		err = store.Delete(r.Key(), "")
	case storetest.Content(r) == "-":
		store.Apply(nil, []resource.Key{r.Key()})
	case method%3 == 0:
		store.Apply([]*resource.Resource{r}, nil)
	case !exists:
		_, err = store.Create(r)
	case method%3 == 1:
		_, err = store.Update(r, store.Get(r.Key()).Version())
	default:
		_, err = store.Patch(r.Key(), func(*resource.Resource) (*resource.Resource, error) { return r, nil })
	}
	if err != nil {
		t.Errorf("%s: %v", r.Key(), err)
	}
}

// follow mirrors the reader by Changes until ctx ends, and checks the mirror at every step.
func follow(ctx context.Context, t rapid.TB, reader memstore.Reader) {
	mirror, revision := make(model), memstore.Revision(0)
	for {
		changed := reader.Changed()
		keys, now, ok := reader.Changes(revision)
		if !ok || now.Revision() < revision {
			t.Errorf("from revision %d to %d: ok is %t", revision, now.Revision(), ok)
			return
		}
		if err := leadsTo(mirror, keys, now); err != nil {
			t.Errorf("from revision %d to %d: %v", revision, now.Revision(), err)
			return
		}
		mirror, revision = contentOf(t, now), now.Revision()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
