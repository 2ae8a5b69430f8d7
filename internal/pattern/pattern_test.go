package pattern

import (
	"regexp/syntax"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	for expr, atLeast := range map[string]int{
		"a": 1, "a{1000}": 1000, "((a{10}){10}){10}": 1000, "[α-ω]": 4, "a|b*": 2,
		"(?:ab){500}": 1000,
	} {
		re, err := syntax.Parse(expr, syntax.Perl)
		require.NoError(t, err)
		require.GreaterOrEqual(t, Size(re), atLeast, expr)
		require.LessOrEqual(t, Size(re), 10*atLeast+10, expr)
	}
}
