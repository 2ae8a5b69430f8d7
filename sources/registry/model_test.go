package registry

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "tributary/internal/fixedseed" // of the property tests
)

// world is a registry of sessions in a random history, and what is read of it.
type world struct {
	clock   time.Time
	live    map[int]bool // instances that live; false if they are switched off
	listed  map[int]bool // of these, and of those that died without a word, what the registry has
	up      bool
	doubt   Suspicion
	believe Record[int]
	lost    time.Time // since when the registry lacks somebody; zero if all have registered anew
}

const (
	hold = time.Minute
	keep = time.Hour
)

func (w *world) read() (kept bool) {
	var r Reading[int]
	for i, on := range w.listed {
		is := Listed
		if !on {
			is = Off
		}
		r.Said = append(r.Said, Said[int]{i, is})
	}
	r.Unsaid = func(int) Judgement { return Missing }
	r.InDoubt = func(k Known[int]) bool { return w.doubt.Covers(k.Since, w.clock) }
	w.believe, kept = w.believe.Settle(r, cmp.Compare[int], w.clock, keep)
	return kept
}

// TestRecords has instances come, go, die and be switched off, and their registry be away and forget them. Nobody who lives and takes calls
// is ever missing who was believed, nobody is believed who is switched off, and when the hold is over it is what is listed that is
// believed.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{clock: start, live: map[int]bool{}, listed: map[int]bool{}, up: true}
		w.doubt = Suspicion{w.clock, w.clock.Add(hold)}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.clock = w.clock.Add(time.Second)
			i := rapid.IntRange(0, 7).Draw(t, "instance")
			before := w.believe.Of()
			switch what := rapid.SampledFrom([]string{"come", "come", "go", "off", "away", "forget", "back", "wait", "restart"}).Draw(t,
				"what"); what {
			case "come", "off":
				if w.live[i] = what == "come"; w.up {
					w.listed[i] = w.live[i]
				} else {
					w.lost = w.clock // it registers when the registry is back
				}
			case "go":
				if delete(w.live, i); w.up {
					delete(w.listed, i)
				}
			case "away", "forget":
				if w.up {
					w.up, w.doubt = false, w.doubt.Away(w.clock)
				}
				if what == "forget" {
					clear(w.listed)
					w.lost = w.clock
				}
			case "back":
				if !w.up {
					w.up, w.doubt = true, Suspicion{w.clock, w.clock.Add(hold)}
				}
			case "wait": // in which all that live register anew, if they can
				w.clock = w.clock.Add(time.Duration(rapid.IntRange(1, 50).Draw(t, "seconds")) * time.Second)
				if w.up && !w.lost.IsZero() || w.up && rapid.Bool().Draw(t, "all") {
					w.listed, w.lost = maps.Clone(w.live), time.Time{}
				}
			case "restart": // another run knows what was published, and since when of nothing
				for n := range w.believe.Endpoints {
					w.believe.Endpoints[n].Since = time.Time{}
				}
				if w.up {
					w.doubt = Suspicion{w.clock, w.clock.Add(hold)}
				}
			}
			if !w.up {
				continue // what cannot be read is not settled
			}
			kept := w.read()
			now := w.believe.Of()
			require.True(t, slices.IsSorted(now))
			require.Len(t, slices.Compact(slices.Clone(now)), len(now))
			for _, i := range before {
				if on, lives := w.live[i]; lives && on && (w.lost.IsZero() || w.clock.Before(w.doubt.Until)) {
					if said, there := w.listed[i]; !there || said {
						require.Contains(t, now, i, "who lives is believed")
					}
				}
			}
			for i, on := range w.listed {
				require.Equal(t, on, slices.Contains(now, i), "who is listed and takes calls, at once")
			}
			require.Equal(t, len(now)-len(slices.DeleteFunc(slices.Clone(now), func(i int) bool { return !w.listed[i] })), w.believe.Held)
			if !w.clock.Before(w.doubt.Until) {
				require.Zero(t, w.believe.Held, "a hold has an end")
			}
			require.Equal(t, len(now) == 0, !w.believe.Empty.IsZero())
			require.Equal(t, len(now) > 0 || w.clock.Sub(w.believe.Empty) < keep, kept)
		}
	})
}
