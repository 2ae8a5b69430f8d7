package mapping

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAHashIsNotCutAway shows that a name is another one with something to hash, also if it is too long.
func TestAHashIsNotCutAway(t *testing.T) {
	m, err := New(Options{}, "public", nil)
	require.NoError(t, err)
	for _, text := range []string{"a", strings.Repeat("x", 100), "com." + strings.Repeat("x", 100), strings.Repeat("b23456789.", 30) + "c", "."} {
		id := ID{Group: "g", Service: text}
		hosts, objects := map[string]bool{}, map[string]bool{}
		for _, toHash := range []string{"", "1", "2"} {
			n := m.name(id, toHash)
			hosts[n.Host], objects[n.object] = true, true
		}
		require.Len(t, hosts, 3, text)
		require.Len(t, objects, 3, text)
	}
}
