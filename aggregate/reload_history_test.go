package aggregate_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tributary/aggregate"
	_ "tributary/internal/testutil" // of the property tests
	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// version is a source as one configuration has it: a reload that changes its settings makes another one.
type version struct {
	name  string
	store *memstore.Store
	read  bool
	want  content
}

func (v *version) source() aggregate.Source { return aggregate.Source{Name: v.name, Reader: v.store} }

// reloads is the model of a view with replaced sources while other sources are not read.
type reloads struct {
	view        *aggregate.View
	objectCount int
	configured  []*version
	served      content // when the sources were last switched
	lost        content // the part of it that no configured source had
	// the last content of replaced and removed sources, by name; the last whole one, if there was any
	last map[string]content
}

// draw makes a version; its objects differ from those of all other versions.
func (m *reloads) draw(t *rapid.T, name string) *version {
	m.objectCount++
	v := &version{name: name, store: memstore.New(), want: make(content)}
	m.change(t, v)
	if v.read = rapid.Bool().Draw(t, "read"); v.read {
		v.store.MarkSynced()
	}
	return v
}

func (m *reloads) change(t *rapid.T, v *version) {
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"i", "j", "k"}), 0, 3, rapid.ID).Draw(t, "names") {
		r := storetest.New(resource.Gateway, "n", name, fmt.Sprint(v.name, m.objectCount))
		if _, exists := v.want[r.Key()]; exists && rapid.Bool().Draw(t, "delete") {
			remove(v.store, r.Key())
			delete(v.want, r.Key())
			continue
		}
		put(v.store, r)
		v.want[r.Key()] = storetest.Content(r)
	}
	m.objectCount++
}

// configure switches to other sources.
func (m *reloads) configure(next []*version) {
	synctest.Wait()
	m.served, m.lost = contentOf(m.view.Snapshot()), make(content)
	for _, v := range m.configured {
		before := len(m.last[v.name]) > 0
		if v.read {
			delete(m.last, v.name)
		}
		if (v.read || !before) && !slices.Contains(next, v) {
			m.last[v.name] = maps.Clone(v.want)
		}
	}
	for key, c := range m.served {
		if !slices.ContainsFunc(next, func(v *version) bool { return v.want[key] == c }) {
			m.lost[key] = c
		}
	}
	m.configured = next
	var sources []aggregate.Source
	for _, v := range next {
		sources = append(sources, v.source())
	}
	m.view.SetSources(sources...)
}

// check checks that each served object is in a source, or was there at the source's last read; that an object stays
// while an unread source may have it; and that no former object is left once all sources are read.
func (m *reloads) check(t *rapid.T) {
	synctest.Wait()
	got := contentOf(m.view.Snapshot())
	if !slices.ContainsFunc(m.configured, func(v *version) bool { return !v.read }) {
		clear(m.last)
		want := make(content)
		for _, v := range slices.Backward(m.configured) {
			maps.Copy(want, v.want)
		}
		require.Equal(t, want, got, "all is read")
		require.Len(t, m.view.Sources(), len(m.configured))
		m.served, m.lost = nil, nil
		return
	}
	for key, c := range got {
		permitted := []string{m.served[key]}
		for _, v := range m.configured {
			permitted = append(permitted, v.want[key])
		}
		for _, last := range m.last {
			permitted = append(permitted, last[key])
		}
		require.Contains(t, permitted, c, "%s: no source has it any more", key)
	}
	for key := range m.lost {
		require.Contains(t, got, key, "an unread source may still have it")
	}
	require.LessOrEqual(t, len(m.view.Sources()), len(m.configured)+len(names), "former sources do not pile up")
}

var names = []string{"a", "b", "c"}

// TestHistoriesOfReloads replaces, adds, removes and reorders sources in random histories; some sources stay unread for
// long.
func TestHistoriesOfReloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			m := &reloads{view: aggregate.New(), last: make(map[string]content)}
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() { _ = m.view.Run(ctx) })
			defer running.Wait()
			defer cancel()
			anyVersion := func(t *rapid.T) *version {
				if len(m.configured) == 0 {
					t.Skip("no source")
				}
				return rapid.SampledFrom(m.configured).Draw(t, "source")
			}
			t.Repeat(map[string]func(*rapid.T){
				"reload": func(t *rapid.T) {
					var next []*version
					for _, name := range rapid.Permutation(names).Draw(t, "order")[:rapid.IntRange(1, len(names)).Draw(t, "number")] {
						i := slices.IndexFunc(m.configured, func(v *version) bool { return v.name == name })
						if i >= 0 && rapid.Bool().Draw(t, "as it was") {
							next = append(next, m.configured[i])
						} else {
							next = append(next, m.draw(t, name))
						}
					}
					m.configure(next)
				},
				"change": func(t *rapid.T) { m.change(t, anyVersion(t)) },
				"read": func(t *rapid.T) {
					v := anyVersion(t)
					v.store.MarkSynced()
					v.read = true
				},
				"": m.check,
			})
		})
	})
}

// TestFormerSources_DoNotAccumulate changes a source time and again, also its name, while another one is not read.
func TestFormerSources_DoNotAccumulate(t *testing.T) {
	for _, named := range []func(int) string{func(int) string { return "a" }, func(i int) string { return fmt.Sprint("a", i) }} {
		synctest.Test(t, func(t *testing.T) {
			high, down := aggregate.Source{Name: "high", Reader: synced(gateway("k", "high"))},
				aggregate.Source{Name: "down", Reader: memstore.New()}
			view := started(t, high)
			for i := range 20 {
				view.SetSources(high, aggregate.Source{Name: named(i), Reader: synced(gateway("k", fmt.Sprint("v", i)))}, down)
				synctest.Wait()
			}
			require.LessOrEqual(t, len(view.Sources()), 4)
			view.SetSources(high, aggregate.Source{Name: named(20), Reader: memstore.New()}, down)
			synctest.Wait()
			high.Reader.(*memstore.Store).Apply(nil, []resource.Key{gateway("k", "").Key()})
			synctest.Wait()
			require.Equal(t, map[string]string{"ns/k": "v19"}, contents(view.Snapshot()), "the last version")
		})
	}
}
