package registry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMapping_Bounded(t *testing.T) {
	var m Mapping
	for i := range MaxMapped {
		require.NoError(t, m.Add("zk/mapping", fmt.Sprint("i", i), "a, b,,"))
	}
	require.Len(t, m.InterfacesOf()["a"], MaxMapped)
	require.Len(t, m.InterfacesOf(), 2)
	require.EqualError(t, m.Add("zk/mapping", "one more", "a"),
		"zk/mapping has at least 20001 interfaces (limit 20000, MaxMapped): delete those that nobody serves")

	m = Mapping{}
	require.NoError(t, m.Add("zk/mapping", "i", strings.Repeat("a,", 100_000)))
	err := m.Add("zk/mapping", "j", strings.Repeat("a,", maxMapping/costOfName))
	require.ErrorContains(t, err, `zk/mapping: over the limit of 67108864 bytes (maxMapping) at interface "j"`)
	require.Len(t, m.InterfacesOf()["a"], 100_000)
}
