package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/memstore"
	"tributary/resource"
)

// TestHistories checks a guard through random histories of a source, with releases and restarts, against the content of
// the source.
func TestHistories(t *testing.T) {
	const names = 24
	rapid.Check(t, func(t *rapid.T) {
		rig := newRig(Settings{Share: 0.5, Min: new(3)}, 0, 0)
		table := &rig.table
		content := make(map[resource.Key]*resource.Resource) // of the source
		explains := rapid.Bool().Draw(t, "explains")
		exact := true // no loss was explained
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			rig.clock = rig.clock.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			before, base, explained := table.Snapshot(), rig.Status(), false
			switch rapid.SampledFrom([]string{"change", "change", "change", "all", "nothing", "release", "restart", "wait"}).Draw(t, "what") {
			case "change":
				var puts []*resource.Resource
				var deletes []resource.Key
				for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, names-1), 1, 6, rapid.ID).Draw(t, "changed") {
					if rapid.Bool().Draw(t, "put") {
						r := entry(i, rapid.IntRange(0, 4).Draw(t, "endpoints"))
						puts = append(puts, r)
					} else {
						deletes = append(deletes, key(i))
					}
				}
				for _, k := range deletes {
					delete(content, k)
				}
				for _, r := range puts {
					content[r.Key()] = r
				}
				if explained = explains && rapid.Bool().Draw(t, "explained"); explained {
					rig.ApplyExplained(puts, deletes)
				} else {
					rig.Apply(puts, deletes)
				}
			case "all":
				puts := entries(names, 3)
				for _, r := range puts {
					content[r.Key()] = r
				}
				rig.Apply(puts, nil)
			case "nothing":
				clear(content)
				rig.Apply(nil, keys(0, names))
			case "release":
				_, _, _ = rig.Release("", "somebody")
				require.Nil(t, rig.Status())
			case "wait":
				rig.clock = rig.clock.Add(time.Minute)
				ends := base != nil && base.EndTime != nil
				rig.EndDue()
				require.Equal(t, base != nil && !ends, rig.Status() != nil)
			case "restart": // the source is read again, and compared with the table
				rig.restart(t)
				restored := rig.Status()
				require.Equal(t, base, restored, "a restart does not change the status")
				requireSame(t, before, table.Snapshot(), "a restart removes no object")
				require.Equal(t, before.Len(), table.Snapshot().Len())
			}
			exact = exact && !explained
			check(t, rig, content, exact)
			if base != nil && rig.Status() != nil && base.ID == rig.Status().ID {
				require.Equal(t, base.Begun, rig.Status().Begun, "one hold")
			}
			if exact && base != nil && rig.Status() != nil && base.ID == rig.Status().ID {
				for r := range before.All() {
					now := table.Snapshot().Get(r.Key())
					require.NotNil(t, now, "no object goes during a hold")
					require.GreaterOrEqual(t, endpoints(now), endpoints(r))
				}
			}
		}
		_, _, _ = rig.Release("", "somebody")
		require.Equal(t, len(content), table.Snapshot().Len())
		for k, r := range content {
			require.True(t, resource.Equal(r, table.Snapshot().Get(k)), "after a release the table has the content of the source")
		}
	})
}

// check checks the invariants.
func check(t *rapid.T, g *rig, content map[resource.Key]*resource.Resource, exact bool) {
	table := &g.table
	held := make(map[resource.Key]bool)
	status := g.Status()
	if status != nil {
		objects, ends := 0, 0
		for _, h := range status.Held {
			key := h.Key()
			held[key] = true
			served := table.Snapshot().Get(key)
			require.NotNil(t, served, "held objects are served")
			require.Equal(t, h.Missing, content[key] == nil)
			if surplus := endpoints(served) - endpoints(content[key]); exact {
				require.Equal(t, surplus, h.Endpoints)
			} else { // others than it had before may make up for some
				require.LessOrEqual(t, h.Endpoints, surplus)
			}
			if h.Missing {
				objects++
			}
			ends += h.Endpoints
		}
		require.Equal(t, objects, status.Objects)
		require.Equal(t, ends, status.Endpoints)
	}
	total := 0
	for r := range table.Snapshot().All() {
		total += endpoints(r)
		if !held[r.Key()] {
			require.True(t, resource.Equal(content[r.Key()], r), "objects that are not held have the content of the source")
		}
	}
	for k := range content {
		require.NotNil(t, table.Snapshot().Get(k), "the objects of the source are served")
	}
	require.Equal(t, total, g.counts.endpoints)
	var earlier tally
	for _, d := range g.recent.restored {
		earlier.add(d.Kind, d.Objects, d.Endpoints)
	}
	deleted, ends := 0, 0
	for _, l := range g.recent.byKey {
		ends += l.previous - l.present
		if l.missing {
			deleted++
		}
	}
	require.Equal(t, deleted, g.recent.sum.objects-earlier.objects)
	require.Equal(t, ends, g.recent.sum.endpoints-earlier.endpoints)
}

func requireSame(t *rapid.T, a, b memstore.Snapshot, event string) {
	for r := range a.All() {
		now := b.Get(r.Key())
		require.NotNil(t, now, event)
		require.GreaterOrEqual(t, endpoints(now), endpoints(r), event)
	}
}
