package consul

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUnwatched_RegistrationsArriveSoon registers instances of services without a place, often. The pause between two
// reads of a service must not be the time that a registration takes.
func TestUnwatched_RegistrationsArriveSoon(t *testing.T) {
	for _, services := range []int{60, 100, 200} {
		for _, every := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
			testWorld(t, func(t *testing.T, w *world) {
				run := crowd(t, w, services)
				random := rand.New(rand.NewPCG(1, 1))
				var delays []time.Duration
				before := get(w, &w.totalReads)
				for n := range 60 {
					name := ""
					for name == "" {
						name = fmt.Sprint("s", random.IntN(services))
						run.mu.Lock()
						if run.scopes[0].services[name].hasSlot {
							name = ""
						}
						run.mu.Unlock()
					}
					id := fmt.Sprint("new", n)
					w.Put(name, instanceOnNode(id, "n1", 50)...)
					start := time.Now()
					for !slices.Contains(w.instancesOf(name), "/"+id) && time.Since(start) < time.Minute {
						pass(50 * time.Millisecond)
					}
					delays = append(delays, time.Since(start))
					if rest := every - time.Since(start); rest > 0 {
						pass(rest + time.Duration(random.Int64N(int64(200*time.Millisecond))))
					}
				}
				slices.Sort(delays)
				t.Log(services, "services, a registration each", every, "p50", delays[30], "p95", delays[57], "reads", get(w, &w.totalReads)-before)
				if unwatched := services - 46; unwatched <= 60 { // two seconds of reads
					require.LessOrEqual(t, delays[57], 1500*time.Millisecond)
				}
				require.LessOrEqual(t, delays[57], 4500*time.Millisecond)
			})
		}
	}
}
