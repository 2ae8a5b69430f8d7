package testutil

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

// Scripts runs the scripts of the archives that match a pattern, at least one. A script has commands, each with its
// answer in indented lines, and comments that begin with "#". start makes the interpreter of a script: it returns the
// answer of a command, given the one that the script has. With the flag -update, Scripts writes the answers.
func Scripts(t *testing.T, pattern string, start func(t *testing.T) func(command, want string) string) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, paths, pattern)
	for _, path := range paths {
		scriptsOf(t, path, start)
	}
}

func scriptsOf(t *testing.T, path string, start func(t *testing.T) func(command, want string) string) {
	t.Helper()
	defined := flag.Lookup("update")
	update := defined != nil && defined.Value.String() == "true"
	archive, err := txtar.ParseFile(path)
	require.NoError(t, err)
	for i, script := range archive.Files {
		t.Run(script.Name, func(t *testing.T) {
			interpret := start(t)
			lines, answered := strings.SplitAfter(string(script.Data), "\n"), ""
			for len(lines) > 0 {
				command, want := lines[0], ""
				for lines = lines[1:]; len(lines) > 0 && strings.HasPrefix(lines[0], "  "); lines = lines[1:] {
					want += strings.TrimPrefix(lines[0], "  ")
				}
				answered += command
				if text := strings.TrimSpace(command); text != "" && text[0] != '#' {
					for line := range strings.Lines(interpret(text, want)) {
						answered += "  " + line
					}
				}
			}
			if update {
				archive.Files[i].Data = []byte(answered)
			}
			require.Equal(t, string(archive.Files[i].Data), answered)
		})
	}
	if update {
		require.NoError(t, os.WriteFile(path, txtar.Format(archive), 0o600))
	}
}
