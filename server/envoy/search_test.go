package envoy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

// taste is a client that rejects what has all of some versions of objects together, while objects may change under it.
type taste struct {
	random *rand.Rand
	all    []*trial
	bad    []map[*trial]int // how many versions of each, from the newest on, are of what is rejected: one is what it is now
	moves  bool
	turns  uint64
	begun  uint64
	asked  int
}

func (c *taste) turn() uint64 { return c.turns }

func (c *taste) doubt(err error) error {
	if c.turns > c.begun {
		return errChanged
	}
	return err
}

func (c *taste) try(_ context.Context, tried []*aside) (bool, error) {
	c.asked++
	if c.moves && c.random.IntN(10) == 0 { // something comes that is no suspect
		c.turns++
		c.bad = append(c.bad, nil)
	}
	return c.takes(tried), nil
}

func (c *taste) takes(tried []*aside) bool {
	depth := make(map[*trial]int) // of what is served: zero is what it is now
	for _, a := range tried {
		depth[a.trial] = a.depth + 1
	}
	return !slices.ContainsFunc(c.bad, func(together map[*trial]int) bool {
		for t, versions := range together {
			if depth[t] >= versions {
				return false
			}
		}
		return true
	})
}

// Whatever is rejected, alone or together, the search finds the last of those that make it, sets it aside for the newest version that is taken, and nobody
// else. What changes meanwhile makes it begin anew, and nobody guilty.
func TestSearch(t *testing.T) {
	for seed := range uint64(5000) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
		c := &taste{random: random, moves: seed%4 == 3}
		for i := range 1 + random.IntN(12) {
			one := &trial{key: keyOf(fmt.Sprint("vs", i)), turn: uint64(random.IntN(8))} //nolint:gosec // it is small
			one.key.Kind = []resource.Kind{resource.ServiceEntry, resource.VirtualService, resource.DestinationRule}[random.IntN(3)]
			one.earlier = make([]*resource.Resource, 1+random.IntN(3))
			c.all = append(c.all, one)
		}
		slices.SortFunc(c.all, before)
		for range 1 + random.IntN(3) {
			together := make(map[*trial]int)
			for range 1 + random.IntN(3) {
				of := c.all[random.IntN(len(c.all))]
				together[of] = 1 + random.IntN(len(of.earlier))
			}
			c.bad = append(c.bad, together)
		}
		s := search{client: c, suspects: c.all}
		err := s.run(t.Context(), 10)
		what := fmt.Sprintf("seed %d, asked %d times", seed, c.asked)
		if c.turns > 0 {
			require.Contains(t, []error{nil, errChanged}, err, what)
			c.bad = slices.DeleteFunc(c.bad, func(together map[*trial]int) bool { return together == nil })
		} else {
			require.NoError(t, err, what)
			require.True(t, c.takes(s.guilty), what)
		}
		for i, a := range s.guilty {
			others := slices.Delete(slices.Clone(s.guilty), i, i+1)
			after := slices.Index(c.all, a.trial) + 1
			for _, later := range c.all[after:] {
				others = append(others, s.bottom(later))
			}
			newer := slices.Clone(others)
			if a.depth > 0 {
				newer = append(newer, &aside{trial: a.trial, depth: a.depth - 1})
			}
			require.False(t, c.takes(newer), "%s: %v is innocent", what, a.key)
			require.True(t, c.takes(append(others, a)), "%s: %v", what, a.key)
		}
	}
}
