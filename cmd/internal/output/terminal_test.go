package output_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/output"
)

func TestScreens(t *testing.T) {
	text := "abcdef\nis unreachable\nhealthy\n"
	require.Equal(t, text, output.Screen{}.Cut(text))
	require.Equal(t, text, output.Screen{}.Colored(text))
	require.Equal(t, "abc…\nis …\nhea…\n", output.Screen{Width: 4}.Cut(text))
	require.Equal(t, "ä…\n", output.Screen{Width: 2}.Cut("äöü\n"))
	require.Equal(t, "abcdef\nis \x1b[1;31munreachable\x1b[0m\n\x1b[32mhealthy\x1b[0m\n",
		output.Screen{Color: true}.Colored(text))
	require.Equal(t, output.Screen{}, output.ScreenOf(&bytes.Buffer{}), "other writers have neither")
}
