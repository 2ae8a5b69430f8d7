package intake_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/internal/intake"
)

// TestTake_YoungestFirst has idle answers (watches that wait for an event) grow in the reverse order of their begin.
// The sum stays within limits.answerMemory.
func TestTake_YoungestFirst(t *testing.T) {
	for name, several := range map[string]bool{"one source": false, "a source for each": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const answer, memory, watches = 100 << 20, 200 << 20, 12
				pool := intake.NewPool(intake.Limits{Answer: answer, Memory: memory})
				one := pool.Source(t.Context())
				var ctxs []context.Context
				var leases []*intake.Lease
				for range watches { // idle: they take nothing
					source := one
					if several {
						source = pool.Source(t.Context())
					}
					ctx, lease := intake.Begin(source)
					ctxs, leases = append(ctxs, ctx), append(leases, lease)
				}
				served := 0
				for i := watches - 1; i >= 0; i-- {
					if leases[i].Take(ctxs[i], answer) == nil {
						served++
					}
				}
				t.Logf("%d of %d answers, %d MiB taken of %d", served, watches, pool.Taken()>>20, memory>>20)
				require.LessOrEqual(t, pool.Taken(), memory, "limits.answerMemory")
			})
		})
	}
}
