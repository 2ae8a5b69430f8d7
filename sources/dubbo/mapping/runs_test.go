package mapping

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
)

func TestRuns(t *testing.T) {
	require.Empty(t, encodeRuns(nil))
	require.Empty(t, encodeRuns([]string{"", ""}))
	require.Equal(t, "demo", encodeRuns([]string{"demo", "demo", "demo"}))
	require.Equal(t, "a*2 %E8%AE%A2*1 a", encodeRuns([]string{"a", "a", "订", "a"}))
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.SampledFrom([]string{"", "a", "b c", "a*2", "订"})).Draw(t, "all")
		require.Equal(t, append([]string{}, values...), decodeRuns(encodeRuns(values), len(values)))
		text := rapid.StringMatching(`[a*%0-9 -]{0,20}`).Draw(t, "text")
		require.Len(t, decodeRuns(text, len(values)), len(values))
	})
}
