package check

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

var update = flag.Bool("update", false, "write the golden files")

func check(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// snapshot is the state of all objects in the files of a directory.
func snapshot(t *testing.T, paths ...string) memstore.Snapshot {
	t.Helper()
	var table memstore.Table
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, d := range resource.Decode(path, text, resource.Options{}) {
			if d.Resource != nil {
				table.Apply([]*resource.Resource{d.Resource}, nil)
			}
		}
	}
	return table.Snapshot()
}

func text(findings []Reference) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s %s %s: %s\n", strings.Replace(string(f.Severity), "note", "info", 1), f.Code, f.Key, f.Message)
	}
	return b.String()
}

// TestFind has every finding, and none of hosts that something unread may have.
func TestFind(t *testing.T) {
	s := snapshot(t, "testdata/broken.yaml")
	check(t, "testdata/broken.golden", text(FindReferences(s, AnalysisOptions{})))
	partial := text(FindReferences(s, AnalysisOptions{Partial: true}))
	for _, code := range []string{NotFound, UnknownHost, UnusedSubset} {
		require.NotContains(t, partial, code)
	}
	require.Contains(t, partial, Unreachable)
}

// TestNothingIsWrongWithTheExamples has the objects that the program ships.
func TestNothingIsWrongWithTheExamples(t *testing.T) {
	paths, err := filepath.Glob("../../../testdata/quickstart/*")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	require.Empty(t, text(FindReferences(snapshot(t, paths...), AnalysisOptions{})))
}
