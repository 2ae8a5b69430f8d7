package hops

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseTakesWhatIsAnIDAndNoMoreThanThereCanBe(t *testing.T) {
	a, b := ID("a"), ID("b")
	require.NotEqual(t, a, b)
	require.Equal(t, []string{a, b}, Parse(Format([]string{a, b})))
	require.Equal(t, []string{b}, Parse(strings.Join([]string{"", "a", b, strings.ToUpper(a), a[1:], a + "0", b, "é" + a[2:]}, " ")))
	require.Empty(t, Parse(strings.Repeat("x", 1<<20)))

	many := make([]string, 2*Max)
	for i := range many {
		many[i] = ID(strings.Repeat("x", i))
	}
	require.Equal(t, many[:Max], Parse(Format(many)))
	require.Len(t, Parse(strings.Join(many, " ")), Max)
}
