package metadata

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A few bytes say that there are many values, or values within values.
func TestHessian_LimitsValuesAndDepth(t *testing.T) {
	for name, body := range map[string]string{
		"lists within lists": strings.Repeat("\x79", 1000),
		"many values":        "W" + strings.Repeat("N", maxValues+1) + "Z",
	} {
		r := &reader{rest: []byte(body)}
		r.value(0)
		require.EqualError(t, r.err, "hessian2: more than 200000 values, or deeper than 16", name)
	}
	r := &reader{rest: []byte("X" + "I\x7f\xff\xff\xff" + "N")}
	r.value(0)
	require.Error(t, r.err, "as many as it says are not there")
}

// A class with very many fields costs no more than its answer, however many objects of it begin.
func TestHessian_ClassWithManyFieldsBounded(t *testing.T) {
	const fields = maxValues - 10
	body := []byte("\x91C\x01aI")
	body = binary.BigEndian.AppendUint32(body, fields)
	for i := range fields {
		body = fmt.Appendf(body, "\x05%05x", i)
	}
	body = append(body, strings.Repeat("\x60", 20)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := answerOf(body)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "hessian2: ")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
}
