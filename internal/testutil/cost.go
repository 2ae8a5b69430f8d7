package testutil

import (
	"runtime/metrics"
	"testing"
)

// slack is what a call may allocate whatever its input: the count is exact for large objects only, and others may
// allocate meanwhile.
const slack = 4 << 20

// Cost calls read with an input of n bytes, and fails if it allocates more than perByte for each of them: what reads
// the bytes of strangers has a cost in proportion to them. Allocations are the same on a busy machine, and times are
// not.
func Cost(tb testing.TB, n, perByte int, read func()) {
	tb.Helper()
	before := allocated()
	read()
	if cost := allocated() - before; cost > uint64(slack+n*perByte) { //nolint:gosec // both are small
		tb.Fatalf("%d bytes cost %d bytes of memory: more than %d a byte", n, cost, perByte)
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
