package zookeeper

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMoreThanIsTakenIsRefused has one node with too many names, and several with too much in all.
func TestMoreThanIsTakenIsRefused(t *testing.T) {
	k := &kept{}
	require.NoError(t, k.reserve("/dubbo", maxNames, 0, 1000))
	require.EqualError(t, k.reserve("/dubbo", maxNames+1, 1000, 1001),
		`"/dubbo": its 100001 children are over the limit of 100000`)
	require.NoError(t, k.reserve("/services", 1, 0, maxKept-1000))
	require.ErrorContains(t, k.reserve("/dubbo", 1, 1000, 1001), `"/dubbo": its 1001 bytes are over the limit`)
	require.NoError(t, k.reserve("/dubbo", 1, 1000, 999), "less is always taken")
	require.True(t, k.change(maxKept-1000, 0), "it has gone")
	require.NoError(t, k.reserve("/dubbo", 1, 999, 1001))
	require.Equal(t, 1001, k.bytes)
}
