package zookeeper

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMoreThanIsTakenIsRefused has one node with too many names, and several with too much in all.
func TestMoreThanIsTakenIsRefused(t *testing.T) {
	k := &kept{}
	require.NoError(t, k.afford("/dubbo", maxNames, 0, 1000))
	require.EqualError(t, k.afford("/dubbo", maxNames+1, 1000, 1001),
		`"/dubbo": there are 100001 names below it, and more than 100000 are not taken`)
	require.NoError(t, k.afford("/services", 1, 0, maxKept-1000))
	require.ErrorContains(t, k.afford("/dubbo", 1, 1000, 1001), `"/dubbo": with its 1001 bytes all of ZooKeeper's would be more`)
	require.NoError(t, k.afford("/dubbo", 1, 1000, 999), "less is always taken")
	require.True(t, k.change(maxKept-1000, 0), "it has gone")
	require.NoError(t, k.afford("/dubbo", 1, 999, 1001))
	require.Equal(t, 1001, k.bytes)
}
