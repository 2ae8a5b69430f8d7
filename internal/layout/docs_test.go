package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/pagetest"
)

// naming is how documents name what proves them: a package in backquotes and a colon, tests of it, and parts of tests behind a slash. What
// stands before the next package, semicolon or cell is of that package; without one a test may be of any.
var naming = regexp.MustCompile("`([a-z0-9/]+)`: ?|\\b((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*)(?:/([^|;,.]+))?|[|;.]")

// TestDocsNameTests holds that the tests exist that documents name as proof.
func TestDocsNameTests(t *testing.T) {
	pages, err := pagetest.Pages(top)
	require.NoError(t, err)
	all := tests(t, top)
	for _, page := range pages {
		file := filepath.Join(top, page)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		of := ""
		for _, m := range naming.FindAllStringSubmatch(string(text), -1) {
			pkg, name, part := m[1], m[2], strings.TrimSpace(m[3])
			if name == "" {
				of = pkg
				continue
			}
			found := all[name] != nil
			if of != "" && found {
				_, found = all[name][of]
			}
			if part != "" && found {
				found = false
				for in, text := range all[name] {
					found = found || (of == "" || of == in) && strings.Contains(text, `"`+part+`"`)
				}
			}
			if !found {
				t.Errorf("%s names %s, which is not there (package %q)", file, m[0], of)
			}
		}
	}
}

// tests returns, by name of a test and by package, the text of all tests of that package.
func tests(t *testing.T, root string) map[string]map[string]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	texts := make(map[string]string)
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			pkg, err := filepath.Rel(root, filepath.Dir(path))
			require.NoError(t, err)
			texts[filepath.ToSlash(pkg)] += string(text)
		}
		return nil
	}))
	all := make(map[string]map[string]string)
	for pkg, text := range texts {
		for _, m := range function.FindAllStringSubmatch(text, -1) {
			if all[m[1]] == nil {
				all[m[1]] = make(map[string]string)
			}
			all[m[1]][pkg] = text
		}
	}
	require.NotEmpty(t, all)
	return all
}
