package identity

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAuthenticator_LargeFileKeepsPreviousContent replaces a file of tokens by one above the limit.
func TestAuthenticator_LargeFileKeepsPreviousContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	_, line, err := NewToken("ci")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(line), 0o600))
	authenticator, err := NewAuthenticator(Settings{Tokens: file}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, second, err := NewToken("second")
	require.NoError(t, err)
	large := append(bytes.Repeat([]byte("\n"), maxFileBytes), second...)
	require.NoError(t, os.WriteFile(file, large, 0o600))
	require.False(t, authenticator.Refresh())
	require.Equal(t, []string{"ci"}, authenticator.Tokens())
}
