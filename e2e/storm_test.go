package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// peer is a real program that a storm goes over, with a tributary that reads it.
type peer interface {
	// Deed does something at random to the peer, to tributary or between them, and names it.
	Deed() string
	// Truth is the difference between the peer and tributary.
	Truth() error
	// Lost is an object that must be served at each moment and is not.
	Lost(ctx context.Context) error
	// Rest waits until the next round may begin.
	Rest()
}

// storm draws deeds. E2E_SEED repeats it, E2E_ROUNDS is its length, and E2E_FAULTS selects deeds by a part of their
// names.
type storm struct {
	*rand.Rand
	rounds int
	left   []string // deeds that were not drawn yet
}

func newStorm(t *testing.T, rounds int) *storm {
	t.Helper()
	seed := number("E2E_SEED", byNight(1, rand.Uint64())) //nolint:gosec // a seed
	t.Logf("E2E_SEED=%d", seed)
	return &storm{Rand: rand.New(rand.NewPCG(seed, 1)), rounds: int(number("E2E_ROUNDS", uint64(rounds)))}
}

// draw chooses a deed: each once, in another order each time.
func draw[F any](s *storm, deeds map[string]F) string {
	if len(s.left) == 0 {
		s.left = slices.DeleteFunc(slices.Sorted(maps.Keys(deeds)), func(name string) bool {
			return !strings.Contains(name, os.Getenv("E2E_FAULTS"))
		})
		s.Shuffle(len(s.left), func(i, j int) { s.left[i], s.left[j] = s.left[j], s.left[i] })
	}
	name := s.left[0]
	s.left = s.left[1:]
	return name
}

// sometime is any moment within a limit.
func (s *storm) sometime(limit time.Duration) { time.Sleep(time.Duration(s.Int64N(int64(limit)))) }

// over has the storm go over a peer. After each deed tributary gets to the truth with patience. It looks for losses all
// the time.
func (s *storm) over(t *testing.T, p peer, patience, every time.Duration) {
	t.Helper()
	await := func(step string) {
		fixture.WaitFor(t, patience, func() error {
			if err := p.Truth(); err != nil {
				return fmt.Errorf("%s: %w", step, err)
			}
			return nil
		})
		p.Rest()
	}
	await("at first")
	total := 0
	for round := range s.rounds {
		began, lost := time.Now(), watching(t, every, p.Lost)
		step := fmt.Sprintf("round %d: %s", round, p.Deed())
		await(step)
		looks, err := lost()
		require.NoError(t, err, step)
		total += looks
		t.Logf("%s: %v", step, time.Since(began).Round(10*time.Millisecond))
	}
	require.Positive(t, total)
	t.Logf("nothing was lost at %d looks", total)
}

// watching calls check again and again until it is stopped. It returns how often there was an answer, and the first
// error: without an answer there is no proof of a loss.
func watching(t *testing.T, every time.Duration, check func(context.Context) error) (stop func() (answers int, first error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	answers, first := 0, error(nil)
	loop.Go(func() {
		for tick := time.NewTicker(every); ; {
			err := check(ctx)
			if ctx.Err() != nil {
				return
			}
			if !errors.Is(err, fixture.ErrNoAnswer) {
				answers++
				if first == nil && err != nil {
					first = fmt.Errorf("%s: %w", time.Now().UTC().Format(time.StampMilli), err)
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	stop = func() (int, error) {
		cancel()
		loop.Wait()
		return answers, first
	}
	t.Cleanup(func() { _, _ = stop() })
	return stop
}
