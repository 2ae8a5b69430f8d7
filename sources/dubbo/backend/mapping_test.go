package backend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMapping_Bounded(t *testing.T) {
	var mapping Mapping
	for i := range MaxMapped {
		require.NoError(t, mapping.Add("zk/mapping", fmt.Sprint("i", i), "a, b,,"))
	}
	require.Len(t, mapping.ByApplication()["a"], MaxMapped)
	require.Len(t, mapping.ByApplication(), 2)
	require.EqualError(t, mapping.Add("zk/mapping", "one more", "a"),
		"zk/mapping has at least 20001 interfaces (limit 20000, MaxMapped): delete those without a provider")

	mapping = Mapping{}
	require.NoError(t, mapping.Add("zk/mapping", "i", strings.Repeat("a,", 100_000)))
	err := mapping.Add("zk/mapping", "j", strings.Repeat("a,", maxMapping/costOfName))
	require.ErrorContains(t, err, `zk/mapping: over the limit of 67108864 bytes (maxMapping) at interface "j"`)
	require.Len(t, mapping.ByApplication()["a"], 100_000)
}
