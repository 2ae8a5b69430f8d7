package envoy

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

type item struct{ rank, place int }

func (i *item) before(other *item) bool { return i.rank < other.rank }
func (i *item) at() *int                { return &i.place }

func TestQueue(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
		var q queue[*item]
		all := make([]*item, 20)
		for i := range all {
			all[i] = &item{place: -1}
		}
		in := make(map[*item]bool)
		for range 200 {
			one := all[random.IntN(len(all))]
			one.rank = random.IntN(30)
			if in[one] = random.IntN(3) > 0; !in[one] {
				delete(in, one)
			}
			q.place(one, in[one])
			require.Len(t, q, len(in))
			low := random.IntN(30)
			var want, got int
			for i := range in {
				require.Same(t, i, q[i.place])
				require.False(t, i.before(q[0]))
				if i.rank <= low {
					want++
				}
			}
			q.while(func(i *item) bool { return i.rank <= low }, func(i *item) {
				require.LessOrEqual(t, i.rank, low)
				got++
			})
			require.Equal(t, want, got)
		}
	}
}
