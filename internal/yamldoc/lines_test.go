package yamldoc

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLines holds that lines are what the parser takes for lines, that nothing is missing, and that they end.
func TestLines(t *testing.T) {
	for text, want := range map[string][]string{
		"":            nil,
		"a":           {"a"},
		"a\nb":        {"a\n", "b"},
		"a\r\nb\r\n":  {"a\r\n", "b\r\n"},
		"a\rb\rc":     {"a\r", "b\r", "c"},
		"\r,":         {"\r", ","}, // had no end
		"a\r\nb\rc\n": {"a\r\n", "b\r", "c\n"},
		"\r\r\n\r":    {"\r", "\r\n", "\r"},
	} {
		var got []string
		for l := range Lines([]byte(text)) {
			require.NotEmpty(t, l, "%q", text)
			got = append(got, string(l))
		}
		require.True(t, slices.Equal(want, got), "%q: %q", text, got)
	}
}
