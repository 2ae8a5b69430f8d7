package xds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Addresses take turns, however much one of them has to be done.
func TestHeavyWorkTakesTurns(t *testing.T) {
	h := newHeavy(2)
	require.Nil(t, h.queue("a"))
	require.Nil(t, h.queue("a"))
	var turns []chan struct{}
	for _, host := range []string{"a", "a", "b", "c", "b"} {
		turns = append(turns, h.queue(host))
	}
	done := make([]bool, len(turns))
	next := func() int {
		h.leave()
		for i, turn := range turns {
			select {
			case <-turn:
				if !done[i] {
					done[i] = true
					return i
				}
			default:
			}
		}
		return -1
	}
	var order []int
	for range len(turns) {
		order = append(order, next())
	}
	require.Equal(t, []int{0, 2, 3, 1, 4}, order)
	require.Empty(t, h.waiting, "nothing is kept of who waited")
	h.leave()
	h.leave()
	require.Equal(t, 2, h.free)
}

// What a state has of some names is the same from whichever side it is looked for.
func TestWantsOfAState(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var changes []change
		has := make(map[string]bool)
		for range rng.IntN(300) {
			name := fmt.Sprint(rng.IntN(500))
			has[name] = true
			changes = append(changes, change{name, thing(t, name, "1", "")})
		}
		s := nothing.with(changes)
		var w wants
		want := make(map[string]bool)
		for range rng.IntN(300) {
			name := fmt.Sprint(rng.IntN(500))
			w.add(name, s)
			if has[name] {
				want[name] = true
			}
		}
		got := make(map[string]bool)
		for e := range w.of(s) {
			require.False(t, got[e.Name])
			got[e.Name] = true
		}
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	}
}
