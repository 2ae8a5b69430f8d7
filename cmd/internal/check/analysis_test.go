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

func first(found []Reference, _ []string) []Reference { return found }

// TestFind has every finding, and none of hosts that something unread may have.
func TestFind(t *testing.T) {
	s := snapshot(t, "testdata/broken.yaml")
	check(t, "testdata/broken.golden", text(first(FindReferences(s, AnalysisOptions{}))))
	found, unchecked := FindReferences(s, AnalysisOptions{Partial: true})
	partial := text(found)
	for _, code := range []string{NotFound, UnknownHost, UnusedSubset} {
		require.NotContains(t, partial, code)
	}
	require.Contains(t, partial, Unreachable)
	all := strings.Join(unchecked, "\n")
	require.Contains(t, all, "Gateway ")
	require.Contains(t, all, "subset ")

	// A registry has neither subsets nor Gateways.
	found, unchecked = FindReferences(s, AnalysisOptions{Hosts: true})
	hosts := text(found)
	require.Contains(t, hosts, ".subset: ")
	require.Contains(t, hosts, "there is no Gateway")
	require.NotContains(t, hosts, "no ServiceEntry")
	all = strings.Join(unchecked, "\n")
	require.NotEmpty(t, all)
	require.NotContains(t, all, "Gateway ")
	require.NotContains(t, all, "subset ")
}

// TestNothingIsWrongWithTheExamples has the objects that the program ships.
func TestNothingIsWrongWithTheExamples(t *testing.T) {
	paths, err := filepath.Glob("../../../testdata/quickstart/*")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	require.Empty(t, text(first(FindReferences(snapshot(t, paths...), AnalysisOptions{}))))
}
