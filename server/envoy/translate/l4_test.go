package translate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Only one filter chain may have a server name and a range of addresses: those of others are left out, and those that
// Envoy refuses.
func TestUsedMatches(t *testing.T) {
	m := make(usedMatches)
	got, ok := m.add([]string{"a", "*.b"}, nil)
	require.True(t, ok)
	require.Equal(t, []string{"a", "*.b"}, got.GetServerNames())
	got, ok = m.add([]string{"a", "c", "*d", "x.*"}, nil)
	require.True(t, ok)
	require.Equal(t, []string{"c"}, got.GetServerNames())
	_, ok = m.add([]string{"a"}, nil)
	require.False(t, ok)
	got, ok = m.add([]string{"a"}, []string{"10.1.2.3/8", "10.0.0.0/8", "10.9.9.9", "nothing"})
	require.True(t, ok, "the same name, at some addresses")
	require.Len(t, got.GetPrefixRanges(), 2)
	require.Equal(t, "10.0.0.0", got.GetPrefixRanges()[0].GetAddressPrefix())
	require.Equal(t, uint32(32), got.GetPrefixRanges()[1].GetPrefixLen().GetValue())
	_, ok = m.add([]string{"a"}, []string{"10.0.0.0/8"})
	require.False(t, ok)
	_, ok = m.add([]string{"e"}, []string{"nothing"})
	require.False(t, ok, "it is not for all addresses")
	got, ok = m.add([]string{"*"}, nil)
	require.True(t, ok)
	require.Empty(t, got.GetServerNames())
	_, ok = m.add(nil, nil)
	require.False(t, ok)
}
