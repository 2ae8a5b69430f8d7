package relay

import (
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"
)

// gcPercent is how seldom garbage is collected.
func gcPercent() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestStartsThatOverlapLeaveTheCollectionOfGarbageAsItWas(t *testing.T) {
	t.Setenv("GOGC", "")
	usual := gcPercent()
	first := rarelyCollect()
	require.EqualValues(t, startupGCPercent, gcPercent())
	second := rarelyCollect()
	first()
	require.EqualValues(t, startupGCPercent, gcPercent())
	second()
	require.Equal(t, usual, gcPercent())
}
