package metadata

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A few bytes say that there are many values, or values within values.
func TestMoreThanIsReadOfHessian(t *testing.T) {
	for what, body := range map[string]string{
		"lists within lists": strings.Repeat("\x79", 1000),
		"many values":        "W" + strings.Repeat("N", maxValues+1) + "Z",
	} {
		r := &reader{rest: []byte(body)}
		r.value(0)
		require.EqualError(t, r.err, "hessian2: more than 200000 values, or deeper than 16", what)
	}
	r := &reader{rest: []byte("X" + "I\x7f\xff\xff\xff" + "N")}
	r.value(0)
	require.Error(t, r.err, "as many as it says are not there")
}
