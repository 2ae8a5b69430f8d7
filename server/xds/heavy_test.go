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
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var changes []change
		existing := make(map[string]bool)
		for range rng.IntN(300) {
			name := fmt.Sprint(rng.IntN(500))
			existing[name] = true
			changes = append(changes, change{name, thing(t, name, "1", "")})
		}
		s := nothing.with(changes)
		var w subscriptionNames
		want := make(map[string]bool)
		for range rng.IntN(300) {
			name := fmt.Sprint(rng.IntN(500))
			w.add(name, s)
			if existing[name] {
				want[name] = true
			}
		}
		got := make(map[string]bool)
		for e := range w.entriesIn(s) {
			require.False(t, got[e.Name])
			got[e.Name] = true
		}
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	}
}
