package check_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"tributary/cmd/internal/check"
)

var update = flag.Bool("update", false, "write the golden files")

// TestLinter runs the commands at the beginning of each archive, each with a linter of its own, and compares the output
// with the last file. $WORK is the directory of its files. A command has names of files or directories:
//
//	path     reads them as paths, and looks for objects that compete
//	text     reads them as texts, which are objects or a configuration
//	offline  reads them as texts without the network
//	analyze, analyze-text
//	         also checks references
func TestLinter(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, path := range archives {
		path, err := filepath.Abs(path)
		require.NoError(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			require.NoError(t, err)
			want := &archive.Files[len(archive.Files)-1]
			files := make(map[string]string)
			for _, file := range archive.Files {
				files[file.Name] = string(file.Data)
			}
			tree(t, files)
			dir := must(os.Getwd())
			var output strings.Builder
			for line := range strings.Lines(string(archive.Comment)) {
				words := strings.Fields(strings.ReplaceAll(line, "$WORK", dir))
				if len(words) > 0 && words[0] != "#" {
					output.WriteString("> " + line + strings.ReplaceAll(report(t, words[0], words[1:]), dir, "$WORK"))
				}
			}
			if *update {
				want.Data = []byte(output.String())
				require.NoError(t, os.WriteFile(path, txtar.Format(archive), 0o600))
			}
			require.Equal(t, string(want.Data), output.String())
		})
	}
}

// report returns the findings of a linter, and all that it left out.
func report(t *testing.T, command string, names []string) string {
	t.Helper()
	var linter check.Linter
	var unread []string
	for _, name := range names {
		if command == "path" || command == "analyze" {
			require.NoError(t, linter.Path(t.Context(), name))
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		skipped, err := linter.Text(t.Context(), name, text, command == "offline")
		require.NoError(t, err)
		unread = append(unread, skipped...)
	}
	require.NoError(t, linter.CheckConflicts(t.Context()))
	if strings.HasPrefix(command, "analyze") {
		linter.CheckReferences()
	}
	var output strings.Builder
	for _, finding := range linter.Findings {
		fmt.Fprintf(&output, "%s [%s]\n", finding, finding.Rule)
	}
	fmt.Fprintf(&output, "objects %d, foreign %d, not read by name %q, unread %q, %s\n", linter.Objects, linter.Foreign,
		linter.Skipped, unread, linter.Unchecked)
	return output.String()
}
