package output

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEscape escapes texts of clients and registries that contain colours of this package.
func TestEscape(t *testing.T) {
	require.Equal(t, "a\\u202eb\\x1b[2J\\x0dok\n\t"+red+"REJECTED"+plain,
		escape("a\u202eb\x1b[2J\rok\n\t"+red+"REJECTED"+plain))
	require.Equal(t, `\x1b[32m`+green+`\x1b[0m`, escape(`\x1b[32m`+green+`\x1b[0m`),
		"a text that looks like an escape of ours is a text")
	require.Equal(t, `\x1b[32mis `+red+"REJECTED"+plain,
		escape(Screen{Color: true}.Colored("\x1b[32mis REJECTED")), "colours are ours alone")
	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	require.Equal(t, file, Escaped(file), "a file is written as it is")
	s := &escapingWriter{file: file}
	for _, part := range []string{"\xe2\x80", "\xaex", "é", "\xff"} {
		n, err := s.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.NoError(t, file.Close())
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Equal(t, "\\u202exé\ufffd", string(text))
}
