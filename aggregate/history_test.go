package aggregate_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"tributary/aggregate"
	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// content is the content of a state, by key.
type content map[resource.Key]string

func contentOf(s memstore.Snapshot) content {
	m := make(content)
	for r := range s.All() {
		m[r.Key()] = storetest.Content(r)
	}
	return m
}

// modelSource is a source of the model.
type modelSource struct {
	aggregate.Source
	store *memstore.Store
	want  content
}

// mergeModel is the rule of precedence at its simplest: the sources from the last to the first, each over the others.
// It also returns the winners, and how many lose.
func mergeModel(sources []*modelSource) (merged content, winner map[resource.Key]string, losers map[resource.Key][]string) {
	merged, winner, losers = make(content), make(map[resource.Key]string), make(map[resource.Key][]string)
	ordered := slices.Clone(sources)
	slices.SortStableFunc(ordered, func(a, b *modelSource) int { return b.Precedence - a.Precedence })
	for _, s := range slices.Backward(ordered) {
		for key, c := range s.want {
			if loser, ok := winner[key]; ok {
				losers[key] = append([]string{loser}, losers[key]...)
			}
			merged[key], winner[key] = c, s.Name
		}
	}
	return merged, winner, losers
}

// draws returns a generator of resources with few keys and contents, so that sources collide. The
// contents have the name of the source, except for one that they share.
func draws(source string) *rapid.Generator[*resource.Resource] {
	return rapid.Custom(func(t *rapid.T) *resource.Resource {
		return storetest.New(
			rapid.SampledFrom([]resource.Kind{resource.Gateway, resource.ServiceEntry}).Draw(t, "kind"),
			rapid.SampledFrom([]string{"n", "m"}).Draw(t, "namespace"),
			rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
			rapid.SampledFrom([]string{"same", source + "1", source + "2"}).Draw(t, "content"))
	})
}

// TestHistories runs random histories over several sources, reloads among them, and compares the view, its events, its
// changes and its shadows with the model after each step.
func TestHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, testHistory) // not a *testing.T: rapid would ask it for the deadline, which is not in the bubble
	})
}

func testHistory(t *rapid.T) {
	var modelSources []*modelSource
	for i, name := range []string{"p", "q", "r", "s"} {
		store := memstore.New()
		m := &modelSource{Source: aggregate.Source{Name: name, Reader: store, Precedence: i / 3}, store: store, want: make(content)}
		for _, r := range rapid.SliceOfN(draws(name), 0, 8).Draw(t, "initially") {
			put(store, r)
			m.want[r.Key()] = storetest.Content(r)
		}
		store.MarkSynced() // unsynced sources are tested by example
		modelSources = append(modelSources, m)
	}
	configured := modelSources[:3]
	view := aggregate.New(sources(configured)...)

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
	}()
	running.Go(func() { _ = view.Run(ctx) })
	seen := make(content)
	controller := memstore.NewController(view)
	for _, kind := range []resource.Kind{resource.Gateway, resource.ServiceEntry} {
		controller.RegisterEventHandler(kind, func(old, new *resource.Resource, event memstore.Event) {
			c := memstore.Change{Old: old, New: new}
			if handled, ok := seen[c.Key()]; ok != (old != nil) || handled != storetest.Content(old) || c.Event() != event ||
				resource.Equal(old, new) {
				t.Errorf("event %d of %s from %q to %q, when handlers knew %q", event, c.Key(), storetest.Content(old), storetest.Content(new), handled)
			}
			if got := controller.Get(c.Key()); !resource.Equal(got, new) { // no change happens meanwhile
				t.Errorf("%s: the event says %q, Get says %q", c.Key(), storetest.Content(new), storetest.Content(got))
			}
			seen[c.Key()] = storetest.Content(new)
			if new == nil {
				delete(seen, c.Key())
			}
		})
	}
	running.Go(func() { controller.Run(ctx) })
	mirror, revision := make(content), memstore.Revision(0)

	t.Repeat(map[string]func(*rapid.T){
		"apply": func(t *rapid.T) {
			s := rapid.SampledFrom(modelSources).Draw(t, "source")
			puts := rapid.SliceOfN(draws(s.Name), 0, 4).Draw(t, "puts")
			deletes := rapid.SliceOfN(rapid.Map(draws(s.Name), (*resource.Resource).Key), 0, 4).Draw(t, "deletes")
			s.store.Apply(puts, deletes)
			for _, key := range deletes {
				delete(s.want, key)
			}
			for _, r := range puts {
				s.want[r.Key()] = storetest.Content(r)
			}
		},
		"empty a source": func(t *rapid.T) {
			s := rapid.SampledFrom(modelSources).Draw(t, "source")
			s.store.Apply(nil, slices.Collect(maps.Keys(s.want)))
			clear(s.want)
		},
		"reload": func(t *rapid.T) {
			configured = rapid.Permutation(modelSources).Draw(t, "sources")[:rapid.IntRange(0, len(modelSources)).Draw(t, "number")]
			view.SetSources(sources(configured)...)
		},
		"no pause": func(*rapid.T) {},
		"": func(t *rapid.T) {
			synctest.Wait()
			want, winner, losers := mergeModel(configured)
			if got := contentOf(view.Snapshot()); !maps.Equal(got, want) {
				t.Fatalf("view holds %v, want %v", got, want)
			}
			if !maps.Equal(seen, want) {
				t.Fatalf("handlers saw %v, want %v", seen, want)
			}
			keys, now, ok := view.Changes(revision)
			if !ok {
				t.Fatalf("a history this short is not too old")
			}
			take(mirror, keys, now)
			if revision = now.Revision(); !maps.Equal(mirror, want) {
				t.Fatalf("a follower of Changes has %v, want %v", mirror, want)
			}
			checkShadows(t, view, winner, losers)
		},
	})
}

func sources(ms []*modelSource) (sources []aggregate.Source) {
	for _, m := range ms {
		sources = append(sources, m.Source)
	}
	return sources
}

// take brings mirror up to date.
func take(mirror content, keys []resource.Key, now memstore.Snapshot) {
	for _, key := range keys {
		if r := now.Get(key); r != nil {
			mirror[key] = storetest.Content(r)
		} else {
			delete(mirror, key)
		}
	}
}

func checkShadows(t *rapid.T, view *aggregate.View, winner map[resource.Key]string, losers map[resource.Key][]string) {
	shadows := make(map[resource.Key][]string)
	for shadow := range view.Shadows() {
		shadows[shadow.Key] = sourceNames(shadow.Losers)
		if shadow.Winner.Source != winner[shadow.Key] {
			t.Fatalf("%s: the winner is %s, not %s", shadow.Key, shadow.Winner.Source, winner[shadow.Key])
		}
	}
	if !maps.EqualFunc(shadows, losers, slices.Equal) {
		t.Fatalf("shadows are %v, want %v", shadows, losers)
	}
	for key, name := range winner {
		if got := shadowed(view, key); !slices.Equal(got, losers[key]) {
			t.Fatalf("%s is shadowed by %v, want %v", key, got, losers[key])
		}
		e := view.Explain(key)
		if e.Winner.Source != name || len(e.Shadowed) != len(losers[key]) {
			t.Fatalf("%s is explained by %+v, want winner %s, losers %v", key, e, name, losers[key])
		}
	}
}

// TestConcurrentHistories has sources that change at the same time; each commit changes two keys to equal content.
// Readers that follow Changes must equal the snapshot at every step, and never have half of a commit.
func TestConcurrentHistories(t *testing.T) {
	pair := func(name, content string) []*resource.Resource {
		return []*resource.Resource{
			storetest.New(resource.Gateway, "left", name, content),
			storetest.New(resource.ServiceEntry, "right", name, content),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var modelSources []*modelSource
		histories := make(map[*modelSource][]string) // names; "-" before one deletes
		for i, name := range []string{"p", "q", "r"} {
			store := memstore.New()
			m := &modelSource{Source: aggregate.Source{Name: name, Reader: store, Precedence: i % 2}, store: store, want: make(content)}
			modelSources = append(modelSources, m)
			histories[m] = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "-a", "-b", "-c"}), 1, 40).Draw(t, name)
		}
		view := aggregate.New(sources(modelSources)...)
		ctx, cancel := context.WithCancel(context.Background())
		var background, writers sync.WaitGroup
		background.Go(func() { _ = view.Run(ctx) })
		for range 2 {
			background.Go(func() { follow(ctx, t, view) })
		}
		for m, history := range histories {
			writers.Go(func() {
				for i, name := range history {
					if name[0] == '-' {
						deleted := pair(name[1:], "")
						remove(m.store, deleted[0].Key(), deleted[1].Key())
						delete(m.want, deleted[0].Key())
						delete(m.want, deleted[1].Key())
						continue
					}
					for _, r := range pair(name, fmt.Sprint(m.Name, i)) {
						m.want[r.Key()] = storetest.Content(r)
					}
					m.store.Apply(pair(name, fmt.Sprint(m.Name, i)), nil)
				}
				m.store.MarkSynced()
			})
		}
		writers.Wait()
		storetest.Eventually(t, view.Synced, "Synced") // then everything before is merged
		want, _, _ := mergeModel(modelSources)
		if got := contentOf(view.Snapshot()); !maps.Equal(got, want) {
			t.Errorf("view holds %v, want %v", got, want)
		}
		cancel()
		background.Wait()
	})
}

// TestExplain_IncludesReadCommits checks that an explanation after a commit includes it.
func TestExplain_IncludesReadCommits(t *testing.T) {
	store := memstore.New()
	view := started(t, from("a", store))
	for i := range 3000 {
		r := storetest.New(resource.Gateway, "ns", fmt.Sprint(i), "1")
		put(store, r)
		for view.Snapshot().Get(r.Key()) == nil { // no waiting, so as to be there first
			runtime.Gosched()
		}
		if e := view.Explain(r.Key()); e.Winner == nil {
			t.Fatalf("%s is served, but explained as %q", r.Key(), e.Why)
		}
	}
}

// follow mirrors the reader by Changes until ctx ends, and checks the mirror at every step.
func follow(ctx context.Context, t rapid.TB, reader memstore.Reader) {
	mirror, revision := make(content), memstore.Revision(0)
	for {
		changed := reader.Changed()
		keys, now, ok := reader.Changes(revision)
		if !ok || now.Revision() < revision {
			t.Errorf("from revision %d to %d: ok is %t", revision, now.Revision(), ok)
			return
		}
		take(mirror, keys, now)
		revision = now.Revision()
		if want := contentOf(now); !maps.Equal(mirror, want) {
			t.Errorf("at revision %d a follower has %v, the state is %v", revision, mirror, want)
			return
		}
		for key, c := range mirror {
			twin := resource.Key{Kind: resource.ServiceEntry, Namespace: "right", Name: key.Name}
			if key.Kind == resource.Gateway && mirror[twin] != c {
				t.Errorf("half a commit: %s is %q, %s is %q", key, c, twin, mirror[twin])
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
