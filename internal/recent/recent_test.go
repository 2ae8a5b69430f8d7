package recent

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLog(t *testing.T) {
	at := func(n uint64) time.Time { return time.Unix(int64(n), 0) }
	var log Log
	require.True(t, log.After(0).IsZero(), "nothing came about")
	for n := uint64(1); n <= 10*limit; n++ {
		before := log
		log = log.Append(n, at(n))
		require.Equal(t, at(n), log.After(n-1))
		require.True(t, log.After(n).IsZero())
		if n > limit {
			since := n - 1 - rand.Uint64N(limit)
			require.Equal(t, at(since+1), log.After(since))
		}
		if n > 1 {
			require.Equal(t, at(n-1), before.After(n-2), "a copy stays as it was")
			require.True(t, before.After(n-1).IsZero())
		}
	}
	require.True(t, log.After(1).IsZero(), "not remembered")

	log = log.Append(10*limit+1, at(3))
	require.Equal(t, at(3), log.After(10*limit-5), "the earliest counts, not the first")
	log = log.Append(10*limit+2, time.Time{})
	require.True(t, log.After(10*limit).IsZero(), "one is not known")
	log = log.Append(10*limit+3, at(7))
	require.Equal(t, at(7), log.After(10*limit+2))
	require.True(t, log.After(10*limit+1).IsZero())
}

func TestEarlier(t *testing.T) {
	a, b := time.Unix(1, 0), time.Unix(2, 0)
	require.Equal(t, a, Earlier(a, b))
	require.Equal(t, a, Earlier(b, a))
	require.Equal(t, a, Earlier(a, time.Time{}))
	require.Equal(t, a, Earlier(time.Time{}, a))
	require.True(t, Earlier(time.Time{}, time.Time{}).IsZero())
}
