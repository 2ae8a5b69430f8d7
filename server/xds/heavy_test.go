package xds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Both ways to look up names in a state have the same result.
func TestSubscriptionNames_OfState(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var changes []change
		existing := make(map[string]bool)
		for range random.IntN(300) {
			name := fmt.Sprint(random.IntN(500))
			existing[name] = true
			changes = append(changes, change{name, padded(t, name, "1", "")})
		}
		state := initialState.apply(changes)
		var w subscriptionNames
		want := make(map[string]bool)
		for range random.IntN(300) {
			name := fmt.Sprint(random.IntN(500))
			w.add(name, state)
			if existing[name] {
				want[name] = true
			}
		}
		got := make(map[string]bool)
		for e := range w.entriesIn(state) {
			require.False(t, got[e.Name])
			got[e.Name] = true
		}
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	}
}

// A client that resumes a few resources by name does not wait for heavy work of others. One that is compared with a
// whole state, or that brought many versions, does.
func TestResumption_HeavyWork(t *testing.T) {
	for _, test := range []struct {
		name     string
		versions int
		wildcard bool
		types    int
		heavy    bool
	}{
		{"no versions", 0, false, 1, false},
		{"few versions", 100, false, 4, false},
		{"few versions of a wildcard", 100, true, 1, true},
		{"few versions of many types", 1, false, 100, true},
		{"many versions", 5000, false, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var items []string
			for i := range test.versions {
				items = append(items, fmt.Sprint("name ", i, "@1"))
			}
			brought := broughtVersions(t, items...)
			s := &stream{}
			for range test.types {
				s.subs = append(s.subs, &subscription{
					selection: subscriptionNames{wildcard: test.wildcard}, client: clientState{brought: brought},
				})
			}
			require.Equal(t, test.heavy, s.isHeavy())
		})
	}
}
