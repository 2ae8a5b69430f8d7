package relay

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDefaultStateIsOfAFile: each configuration file has state of its own by default, however it is spelled.
func TestDefaultStateIsOfAFile(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_STATE_HOME", base)
	of := func(file string) string {
		dir, err := userStateDir(file)
		require.NoError(t, err)
		return dir
	}
	one := of("/etc/one/tributary.yaml")
	require.True(t, strings.HasPrefix(one, filepath.Join(base, "tributary", "tributary-")), one)
	require.NotEqual(t, one, of("/etc/two/tributary.yaml"))
	require.NotEqual(t, one, of("/etc/one/tributary.yml"))
	require.Equal(t, one, of("/etc/two/../one/tributary.yaml"))
	t.Chdir(base)
	require.Equal(t, of(filepath.Join(base, "t.yaml")), of("t.yaml"))
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", base)
	require.True(t, strings.HasPrefix(of("/etc/one/tributary.yaml"), filepath.Join(base, ".local", "state", "tributary", "tributary-")))
}
