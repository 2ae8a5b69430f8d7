package xds

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/server/xds/wire"
)

// A name costs once, however often a delta request has it. Its repetitions retain no memory beyond the request.
func TestSubscription_RepeatedNamesRetainNoMemory(t *testing.T) {
	request := &wire.Request{Delta: true, Subscribe: slices.Repeat([]string{"a"}, 200_000)}
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc) //nolint:gosec // it is small
	}
	before := heap()
	var subscriptions []*subscription
	for range 10 {
		s := &subscription{
			variant: variant{delta: true}, coll: NewCollection(Type{}, Debounce{}),
			client: clientState{state: initialState}, goal: initialState,
		}
		s.applyDelta(request, true, time.Now())
		require.Equal(t, 1, s.cost)
		subscriptions = append(subscriptions, s)
	}
	require.Less(t, heap()-before, int64(10<<20))
	runtime.KeepAlive(subscriptions)
	runtime.KeepAlive(request)
}
