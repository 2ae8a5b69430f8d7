package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"tributary/internal/pagetest"
)

// naming is the form in which documents name the tests of a statement: a package in backquotes and a colon, tests of
// it, and subtests, or golden archives, after a slash. A package applies until the next package, semicolon or cell;
// without a package, a test may be of any.
var naming = regexp.MustCompile("`([a-z0-9/]+)`: ?|\\b((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*)(?:/([^|;,.]+))?|[|;.]")

// TestDocsNameTests holds that the tests exist that documents name as proof.
func TestDocsNameTests(t *testing.T) {
	pages, err := pagetest.Pages(top)
	require.NoError(t, err)
	testsByName := tests(t, top)
	for _, page := range pages {
		file := filepath.Join(top, page)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		folder := ""
		for _, m := range naming.FindAllStringSubmatch(string(text), -1) {
			pkg, name, part := m[1], m[2], strings.TrimSpace(m[3])
			if name == "" {
				folder = pkg
				continue
			}
			exists := testsByName[name] != nil
			if folder != "" && exists {
				_, exists = testsByName[name][folder]
			}
			if part != "" && exists {
				exists = false
				for directory, text := range testsByName[name] {
					_, err := os.Stat(filepath.Join(top, directory, "testdata", part+".txtar"))
					exists = exists || (folder == "" || folder == directory) && (err == nil || strings.Contains(text, `"`+part+`"`))
				}
			}
			if !exists {
				t.Errorf("%s names %s, which is not there (package %q)", file, m[0], folder)
			}
		}
	}
}

// tests returns, by name of a test and by package, the text of all tests of that package, with the quoted names of the
// files in its archives.
func tests(t *testing.T, root string) map[string]map[string]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	texts := make(map[string]string)
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if folder, name := filepath.Split(path); strings.HasSuffix(name, ".txtar") && filepath.Base(folder) == "testdata" {
			archive, err := txtar.ParseFile(path)
			require.NoError(t, err)
			pkg, err := filepath.Rel(root, filepath.Dir(filepath.Clean(folder)))
			require.NoError(t, err)
			for _, file := range archive.Files {
				texts[filepath.ToSlash(pkg)] += strconv.Quote(file.Name)
			}
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

// TestDocs_BeginWithTheName holds that the comment of a function, or of a type with a declaration of its own, begins
// with its name of today, or is a sentence that begins with an upper-case word.
func TestDocs_BeginWithTheName(t *testing.T) {
	firstWord := regexp.MustCompile(`^[a-z]\w*`)
	check := func(files *token.FileSet, name *ast.Ident, doc *ast.CommentGroup) {
		if word := firstWord.FindString(doc.Text()); word != "" && word != name.Name {
			t.Errorf("%s: the comment of %s begins with %q", files.Position(name.Pos()), name.Name, word)
		}
	}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			switch declaration := declaration.(type) {
			case *ast.FuncDecl:
				check(files, declaration.Name, declaration.Doc)
			case *ast.GenDecl:
				if spec, isType := declaration.Specs[0].(*ast.TypeSpec); isType && !declaration.Lparen.IsValid() {
					check(files, spec.Name, declaration.Doc)
				}
			}
		}
	}
}

// TestPackageComments_InExpectedFile holds that the comment of a package is in doc.go, in the file that is named like
// the package, or in its only file.
func TestPackageComments_InExpectedFile(t *testing.T) {
	counts, commented := make(map[string]int), make(map[string]string)
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		require.NoError(t, err)
		counts[filepath.Dir(path)]++
		if strings.HasPrefix(file.Doc.Text(), "Package ") {
			commented[filepath.Dir(path)] = path
		}
	}
	for dir, path := range commented {
		expected := []string{"doc.go", filepath.Base(dir) + ".go"}
		assert.True(t, counts[dir] == 1 || slices.Contains(expected, filepath.Base(path)), path)
	}
}

// TestDocsNameFiles holds that the Go files exist that documents name, also in folders of other modules.
func TestDocsNameFiles(t *testing.T) {
	ends := make(map[string]bool) // of paths: /c.go, /b/c.go, /a/b/c.go
	require.NoError(t, filepath.WalkDir(top, func(path string, entry os.DirEntry, err error) error {
		path = filepath.ToSlash(path)
		for i := len(path) - 1; i >= 0; i-- {
			if path[i] == '/' {
				ends[path[i:]] = true
			}
		}
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != top {
			return filepath.SkipDir
		}
		return err
	}))
	pages, err := pagetest.Pages(top)
	require.NoError(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(top, page))
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`\b[\w/]*\w\.go\b`).FindAllString(string(text), -1) {
			require.True(t, ends["/"+name], "%s names %s", page, name)
		}
	}
}

// TestArchitecture_NamesIdentifiers holds that each name in the tables of docs/architecture.md occurs in the Go files
// or packages of its row.
func TestArchitecture_NamesIdentifiers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "docs/architecture.md"))
	require.NoError(t, err)
	_, tables, _ := strings.Cut(string(text), "## Where to look")
	tables, _, _ = strings.Cut(tables, "## Words")
	for row := range strings.Lines(tables) {
		cells := strings.Split(row, " | ")
		if len(cells) != 2 {
			continue
		}
		var names []string
		var code strings.Builder
		for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			switch path := filepath.Join(top, match[1]); {
			case strings.HasSuffix(match[1], ".go") && strings.Contains(match[1], "/"):
				file, err := os.ReadFile(path)
				require.NoError(t, err, row)
				code.Write(file)
			case strings.Contains(match[1], "/"):
				files, err := filepath.Glob(path + "/*.go")
				require.NoError(t, err)
				require.NotEmpty(t, files, "%s: no package %s", row, match[1])
				for _, name := range slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
					file, err := os.ReadFile(name)
					require.NoError(t, err)
					code.Write(file)
				}
			case !strings.HasSuffix(match[1], ".go"):
				names = append(names, match[1])
			}
		}
		for _, name := range names {
			word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
			assert.True(t, word.MatchString(code.String()), "%s: no %s", row, name)
		}
	}
}
