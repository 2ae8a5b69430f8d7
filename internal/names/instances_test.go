package names

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInstances_AreValidAndBounded(t *testing.T) {
	first, second := Instance("a"), Instance("b")
	require.NotEqual(t, first, second)
	require.Equal(t, []string{first, second}, SplitInstances(JoinInstances([]string{first, second})))
	require.Equal(t, []string{second}, SplitInstances(strings.Join([]string{
		"", "a", second, strings.ToUpper(first), first[1:], first + "0", second, "é" + first[2:],
	}, " ")))
	require.Empty(t, SplitInstances(strings.Repeat("x", 1<<20)))

	many := make([]string, 2*MaxInstances)
	for i := range many {
		many[i] = Instance(strings.Repeat("x", i))
	}
	require.Equal(t, many[:MaxInstances], SplitInstances(JoinInstances(many)))
	require.Len(t, SplitInstances(strings.Join(many, " ")), MaxInstances)
}
