package terminal_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/terminal"
)

func TestScreens(t *testing.T) {
	text := "abcdef\nis unreachable\nhealthy\n"
	require.Equal(t, text, terminal.Screen{}.Cut(text))
	require.Equal(t, text, terminal.Screen{}.Colored(text))
	require.Equal(t, "abc…\nis …\nhea…\n", terminal.Screen{Width: 4}.Cut(text))
	require.Equal(t, "ä…\n", terminal.Screen{Width: 2}.Cut("äöü\n"))
	require.Equal(t, "abcdef\nis \x1b[1;31munreachable\x1b[0m\n\x1b[32mhealthy\x1b[0m\n", terminal.Screen{Color: true}.Colored(text))
	require.Equal(t, terminal.Screen{}, terminal.Of(&bytes.Buffer{}), "what is no terminal has neither")
}
