package testutil

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// noted is a test that notes whether it failed.
type noted struct {
	testing.TB

	failed bool
}

func (n *noted) Helper()               {}
func (n *noted) Fatalf(string, ...any) { n.failed = true }

var kept []byte

func TestWhatCostsTooMuchIsFound(t *testing.T) {
	for size, failed := range map[int]bool{1 << 20: false, 64 << 20: true} {
		n := &noted{TB: t}
		Cost(n, 1000, 1000, func() { kept = make([]byte, size) })
		require.Equal(t, failed, n.failed, size)
	}
	kept = nil
}
