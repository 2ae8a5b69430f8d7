package xds

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
)

func entry(name, version string) *Entry {
	return &Entry{Name: name, Version: version, Any: []byte(name + "@" + version)}
}

// contents returns the names and versions of a state, and checks its shape.
func contents(t require.TestingT, s *state) map[string]string {
	m := make(map[string]string)
	last := ""
	var sum setHash
	for _, p := range s.pages {
		require.NotEmpty(t, p.entries)
		require.LessOrEqual(t, len(p.entries), maxPage)
		for _, entry := range p.entries {
			require.Greater(t, entry.Name, last, "entries in order")
			last = entry.Name
			m[entry.Name] = entry.Version
			sum = sum.plus(entry.hash())
		}
	}
	require.Len(t, m, s.len)
	require.Equal(t, sum, s.sum)
	return m
}

// After a random history of commits, the state is equal to a map, and the difference between any two states is equal to the
// difference of their maps.
func TestStateAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		states := []*state{{revision: 1}}
		models := []map[string]string{{}}
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			s, m := states[len(states)-1], maps.Clone(models[len(models)-1])
			var changes []change
			for range rapid.IntRange(0, 400).Draw(t, "changes") {
				name := fmt.Sprintf("n%04d", rapid.IntRange(1, 600).Draw(t, "name"))
				if rapid.IntRange(0, 2).Draw(t, "op") == 0 {
					changes = append(changes, change{name: name})
					delete(m, name)
					continue
				}
				v := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "version"))
				changes = append(changes, change{name, entry(name, v)})
				m[name] = v
			}
			next := s.apply(changes)
			require.Equal(t, m, contents(t, next))
			require.Equal(t, maps.Equal(m, models[len(models)-1]), next == s, "a commit without effect gives the same state")
			states, models = append(states, next), append(models, m)
		}
		i := rapid.IntRange(0, len(states)-1).Draw(t, "from")
		j := rapid.IntRange(0, len(states)-1).Draw(t, "to")
		diff := states[j].differenceFrom(states[i])
		got := maps.Clone(models[i])
		for _, e := range diff.removed {
			require.Contains(t, got, e.Name)
			delete(got, e.Name)
		}
		for _, e := range diff.puts {
			require.NotEqual(t, got[e.Name], e.Version, "only different entries")
			got[e.Name] = e.Version
		}
		require.Equal(t, models[j], got)
		require.True(t, slices.IsSorted(names(diff.puts)))
		if len(diff.removed) > 0 {
			before, _ := diff.additionsFirst(states[j])
			require.Empty(t, before.differenceFrom(states[i]).removed)
			require.Empty(t, states[j].differenceFrom(before).puts)
		}
	})
}

func TestStateVersion_IndependentOfOrder(t *testing.T) {
	a := (&state{}).apply([]change{{"a", entry("a", "1")}, {"b", entry("b", "1")}})
	b := (&state{}).apply([]change{{"b", entry("b", "0")}, {"c", entry("c", "1")}})
	b = b.apply([]change{{"a", entry("a", "1")}, {"c", nil}, {"b", entry("b", "1")}})
	require.Equal(t, a.version, b.version)
	require.NotEqual(t, a.version, a.apply([]change{{"a", entry("a", "2")}}).version)
}

func TestStateChange_CopiesOnePage(t *testing.T) {
	var changes []change
	for i := range 10_000 {
		name := fmt.Sprintf("n%05d", i)
		changes = append(changes, change{name, entry(name, "1")})
	}
	s := (&state{revision: 1}).apply(changes)
	next := s.apply([]change{{"n05000", entry("n05000", "2")}})
	shared := 0
	for _, p := range next.pages {
		if slices.Contains(s.pages, p) {
			shared++
		}
	}
	require.Equal(t, len(s.pages)-1, shared)
}
