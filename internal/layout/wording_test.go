package layout

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const (
	ceilingsFile = "testdata/ceilings.tsv"
	lineLength   = 120
	functionSize = 80
)

// vagueNames are words that name no thing. A variable, field, function or type needs the noun of its content instead.
var vagueNames = wordSet(`of at by is in was has had are all one own known other others some both none said told
	kept left gone there again may wants way so more less who whom whose what which whole beside within anew made found
	asked here then since until whether it its them they that this those these does did done be been being have having
	with without for and or not`)

// riddleWords replace the subject or object of a sentence, so that the reader has to guess it.
var riddleWords = regexp.MustCompile(`(?i)\b(?:what|who|whom|whose|nobody|nothing|somebody|everybody|anybody|` +
	`besides|anew|(?:is|are|was|were|be) (?:said|told)|(?:of|behind|to|by|from|in|for) (?:which|whom)|has not|have not|` +
	`so is)\b|all the same|\bmend`)

// wording counts the words of Go code.
type wording struct {
	tokens, lines                                    int
	names, letters, words                            int
	vagueNames, riddles, longFunctions, overlongRows int

	places []string // of vague names, riddle words and long functions
}

func (w *wording) add(other wording) {
	w.tokens, w.lines = w.tokens+other.tokens, w.lines+other.lines
	w.names, w.letters, w.words = w.names+other.names, w.letters+other.letters, w.words+other.words
	w.vagueNames, w.riddles = w.vagueNames+other.vagueNames, w.riddles+other.riddles
	w.longFunctions, w.overlongRows = w.longFunctions+other.longFunctions, w.overlongRows+other.overlongRows
	w.places = append(w.places, other.places...)
}

// goal returns the ceiling of new code. Small packages and files may have more vague names in proportion.
func (w *wording) goal() ceiling {
	vague := w.names / 100
	if w.names < 200 {
		vague = max(1, w.names/50)
	}
	return ceiling{vagueNames: vague, riddles: max(1, w.words*3/1000)}
}

// ceiling is the number of vague names, riddle words, functions of 80 lines and more, and lines beyond 120 columns that
// a package or file may have.
type ceiling struct{ vagueNames, riddles, longFunctions, overlongRows int }

func (w *wording) ceiling() ceiling {
	return ceiling{w.vagueNames, w.riddles, w.longFunctions, w.overlongRows}
}

// combine applies choose to each number of two ceilings.
func (c ceiling) combine(other ceiling, choose func(a, b int) int) ceiling {
	return ceiling{
		choose(c.vagueNames, other.vagueNames), choose(c.riddles, other.riddles),
		choose(c.longFunctions, other.longFunctions), choose(c.overlongRows, other.overlongRows),
	}
}

// TestWording compares the wording of each package and file with its ceiling. A path without a ceiling has to meet the
// goal. With -update, ceilings fall to the present numbers; they never rise.
func TestWording(t *testing.T) {
	paths := make(map[string]*wording)
	var product, tests wording
	for _, path := range goFiles(t) {
		counted := readWording(t, path)
		path = filepath.ToSlash(strings.TrimPrefix(path, "../../"))
		if isTest(path) {
			tests.add(counted)
			continue
		}
		if otherModules.MatchString(path) {
			continue
		}
		product.add(counted)
		for _, parent := range []string{path, filepath.Dir(path)} {
			if paths[parent] == nil {
				paths[parent] = new(wording)
			}
			paths[parent].add(counted)
		}
	}
	for name, counted := range map[string]wording{"product": product, "tests and fakes": tests} {
		t.Logf("%s: %d tokens, %d lines; names have %.2f letters, %.1f %% are vague; %.1f riddles in 1,000 words",
			name, counted.tokens, counted.lines, ratio(counted.letters, counted.names),
			100*ratio(counted.vagueNames, counted.names), 1000*ratio(counted.riddles, counted.words))
	}

	ceilings := readCeilings(t)
	least, most := func(a, b int) int { return min(a, b) }, func(a, b int) int { return max(a, b) }
	lowered := make(map[string]ceiling)
	for path, counted := range paths {
		allowed := ceilings[path].combine(counted.goal(), most)
		if counted.ceiling().combine(allowed, most) != allowed {
			t.Errorf("%s has %+v, but the ceiling is %+v:\n%s", path, counted.ceiling(), allowed,
				strings.Join(counted.places[:min(len(counted.places), 20)], "\n"))
		}
		if counted.ceiling().combine(counted.goal(), most) != counted.goal() {
			lowered[path] = counted.ceiling().combine(allowed, least)
		}
	}
	if *update {
		writeCeilings(t, lowered)
	}
}

var update = flag.Bool("update", false, "lower the ceilings of the wording")

// TestWordingCountsWords checks the counts of one file.
func TestWordingCountsWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "example.go")
	source := "package example\n\n// all is what is told to nobody.\nfunc all(name string) error {\n" +
		"\tone := \"the source says what it has not read\"\n\treturn errors.New(one + \"what\")\n}\n"
	require.NoError(t, os.WriteFile(path, []byte(source), 0o600))
	counted := readWording(t, path)
	require.Equal(t, 3, counted.names)
	require.Equal(t, 2, counted.vagueNames, "all and one")
	require.Equal(t, 5, counted.riddles, "three of the comment and two of the message; a short text is no message")
	require.Equal(t, 7, counted.lines)
}

func ratio(part, total int) float64 { return float64(part) / float64(max(total, 1)) }

func wordSet(text string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// goFiles returns the files of all modules.
func goFiles(t *testing.T) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != "../.." && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}

var (
	testHelpers  = regexp.MustCompile(`_test\.go$|test/[a-z_]*\.go$|^internal/(golden|layout|pagetest|testutil|xdstest)/`)
	otherModules = regexp.MustCompile(`^(bench|e2e|packaging|internal/tools)/`)
)

func isTest(path string) bool { return testHelpers.MatchString(path) }

// readWording counts the words of a Go file.
func readWording(t *testing.T, path string) (counted wording) {
	t.Helper()
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	for row := range strings.Lines(string(source)) {
		counted.lines++
		if utf8.RuneCountInString(strings.TrimSuffix(row, "\n")) > lineLength {
			counted.overlongRows++
		}
	}
	positions := token.NewFileSet()
	counted.readTokens(positions.AddFile(path, -1, len(source)), source)
	file, err := parser.ParseFile(positions, path, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			counted.readName(positions, node.Name)
			if positions.Position(node.End()).Line-positions.Position(node.Pos()).Line >= functionSize {
				counted.longFunctions++
				counted.note(positions.Position(node.Pos()), "long function", node.Name.Name)
			}
		case *ast.TypeSpec:
			counted.readName(positions, node.Name)
		case *ast.ValueSpec:
			counted.readName(positions, node.Names...)
		case *ast.Field:
			counted.readName(positions, node.Names...)
		case *ast.AssignStmt:
			if node.Tok == token.DEFINE {
				counted.readDefined(positions, node.Lhs...)
			}
		case *ast.RangeStmt:
			if node.Tok == token.DEFINE {
				counted.readDefined(positions, node.Key, node.Value)
			}
		}
		return true
	})
	return counted
}

// readTokens counts tokens, and the words of comments and messages. A text with three blanks is a message.
func (w *wording) readTokens(file *token.File, source []byte) {
	var tokens scanner.Scanner
	tokens.Init(file, source, nil, scanner.ScanComments)
	for {
		position, kind, text := tokens.Scan()
		switch kind {
		case token.EOF:
			return
		case token.SEMICOLON:
			continue
		case token.COMMENT:
			if !strings.HasPrefix(text, "//go:") && !strings.HasPrefix(text, "//nolint") {
				w.readText(file.Position(position), text)
			}
			continue
		case token.STRING:
			if message, err := strconv.Unquote(text); err == nil && strings.Count(message, " ") >= 3 {
				w.readText(file.Position(position), message)
			}
		}
		w.tokens++
	}
}

func (w *wording) readText(position token.Position, text string) {
	w.words += len(strings.Fields(text))
	for _, word := range riddleWords.FindAllString(text, -1) {
		w.riddles++
		w.note(position, "riddle word", word)
	}
}

func (w *wording) note(position token.Position, kind, word string) {
	path := strings.TrimPrefix(position.Filename, "../../")
	w.places = append(w.places, fmt.Sprintf("%s:%d: %s %q", path, position.Line, kind, word))
}

func (w *wording) readName(positions *token.FileSet, names ...*ast.Ident) {
	for _, name := range names {
		if name.Name == "_" {
			continue
		}
		w.names++
		w.letters += len(name.Name)
		if vagueNames[strings.ToLower(name.Name)] {
			w.vagueNames++
			w.note(positions.Position(name.Pos()), "vague name", name.Name)
		}
	}
}

func (w *wording) readDefined(positions *token.FileSet, expressions ...ast.Expr) {
	for _, expression := range expressions {
		if name, ok := expression.(*ast.Ident); ok {
			w.readName(positions, name)
		}
	}
}

func readCeilings(t *testing.T) map[string]ceiling {
	t.Helper()
	file, err := os.Open(ceilingsFile)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	ceilings := make(map[string]ceiling)
	for rows := bufio.NewScanner(file); rows.Scan(); {
		if strings.HasPrefix(rows.Text(), "#") {
			continue
		}
		var path string
		var c ceiling
		_, err := fmt.Sscan(rows.Text(), &path, &c.vagueNames, &c.riddles, &c.longFunctions, &c.overlongRows)
		require.NoError(t, err, rows.Text())
		ceilings[path] = c
	}
	return ceilings
}

func writeCeilings(t *testing.T, ceilings map[string]ceiling) {
	t.Helper()
	var text strings.Builder
	text.WriteString("# Ceilings of TestWording: vague names, riddle words, long functions, lines beyond 120 columns.\n")
	for _, path := range slices.SortedFunc(maps.Keys(ceilings), cmp.Compare[string]) {
		c := ceilings[path]
		fmt.Fprintf(&text, "%s\t%d\t%d\t%d\t%d\n", path, c.vagueNames, c.riddles, c.longFunctions, c.overlongRows)
	}
	require.NoError(t, os.WriteFile(ceilingsFile, []byte(text.String()), 0o600))
}
