package translate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Only one filter chain may have a server name and a range of addresses: those of others are left out, and those that
// Envoy refuses.
func TestUsedMatches(t *testing.T) {
	m := make(usedMatches)
	filterChainMatch, ok := m.add([]string{"a", "*.b"}, nil)
	require.True(t, ok)
	require.Equal(t, []string{"a", "*.b"}, filterChainMatch.GetServerNames())
	filterChainMatch, ok = m.add([]string{"a", "c", "*d", "x.*"}, nil)
	require.True(t, ok)
	require.Equal(t, []string{"c"}, filterChainMatch.GetServerNames())
	_, ok = m.add([]string{"a"}, nil)
	require.False(t, ok)
	filterChainMatch, ok = m.add([]string{"a"}, []string{"10.1.2.3/8", "10.0.0.0/8", "10.9.9.9", "nothing"})
	require.True(t, ok, "the same name, at some addresses")
	require.Len(t, filterChainMatch.GetPrefixRanges(), 2)
	require.Equal(t, "10.0.0.0", filterChainMatch.GetPrefixRanges()[0].GetAddressPrefix())
	require.Equal(t, uint32(32), filterChainMatch.GetPrefixRanges()[1].GetPrefixLen().GetValue())
	_, ok = m.add([]string{"a"}, []string{"10.0.0.0/8"})
	require.False(t, ok)
	_, ok = m.add([]string{"e"}, []string{"nothing"})
	require.False(t, ok, "it is not for all addresses")
	filterChainMatch, ok = m.add([]string{"*"}, nil)
	require.True(t, ok)
	require.Empty(t, filterChainMatch.GetServerNames())
	_, ok = m.add(nil, nil)
	require.False(t, ok)
}
