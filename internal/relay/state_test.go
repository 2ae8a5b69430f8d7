package relay

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDefaultState_DependsOnFile: each configuration file has state of its own by default, however it is spelled.
func TestDefaultState_DependsOnFile(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_STATE_HOME", base)
	directory := func(file string) string {
		dir, err := userStateDir(file)
		require.NoError(t, err)
		return dir
	}
	first := directory("/etc/one/tributary.yaml")
	require.True(t, strings.HasPrefix(first, filepath.Join(base, "tributary", "tributary-")), first)
	require.NotEqual(t, first, directory("/etc/two/tributary.yaml"))
	require.NotEqual(t, first, directory("/etc/one/tributary.yml"))
	require.Equal(t, first, directory("/etc/two/../one/tributary.yaml"))
	t.Chdir(base)
	require.Equal(t, directory(filepath.Join(base, "t.yaml")), directory("t.yaml"))
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", base)
	require.True(t, strings.HasPrefix(directory("/etc/one/tributary.yaml"), filepath.Join(base, ".local", "state", "tributary", "tributary-")))
}
