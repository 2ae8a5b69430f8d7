package main

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTokenNew_NoOutput: a token that nobody can read is not added to the file.
func TestTokenNew_NoOutput(t *testing.T) {
	tokens := t.TempDir() + "/tokens"
	write(t, tokens, "# tokens\n")
	root := newRoot()
	root.SetArgs([]string{"token", "new", "ci", "--file", tokens})
	root.SetOut(fullDevice{})
	require.ErrorIs(t, root.ExecuteContext(t.Context()), errFull)
	text, err := os.ReadFile(tokens)
	require.NoError(t, err)
	require.Equal(t, "# tokens\n", string(text))
}

// fullDevice refuses writes.
type fullDevice struct{}

var errFull = errors.New("no space left on device")

func (fullDevice) Write([]byte) (int, error) { return 0, errFull }
