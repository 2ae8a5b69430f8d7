package resource

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"tributary/internal/yamldoc"
)

// scanned scans text, and expects that the parser makes the same of it, but for comments. It reports whether the scanner
// read it, rather than leave it to the parser.
func scanned(t *testing.T, s *scanner, text []byte) bool {
	t.Helper()
	root := s.scan(text)
	if root == nil {
		return false
	}
	parsed, fault := yamldoc.Parse(text) // to its end
	if fault != nil {
		t.Fatalf("the scanner accepts a text that the parser refuses: %v\n%s\n%q", fault, text, text)
	}
	require.NotNil(t, parsed, "%q", text)
	if !sameNode(parsed, root) {
		comments := cmpopts.IgnoreFields(yaml.Node{}, "HeadComment", "LineComment", "FootComment")
		t.Fatalf("(-parser +scanner):\n%s\n%s\n%q", cmp.Diff(parsed, root, comments), text, text)
	}
	return true
}

func sameNode(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Style != b.Style || a.Tag != b.Tag || a.Value != b.Value || a.Line != b.Line || a.Column != b.Column ||
		a.Anchor != b.Anchor || a.Alias != b.Alias || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !sameNode(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// TestScannerReads has texts that the scanner reads itself, and TestScannerLeaves has texts that it leaves to the
// parser.
func TestScannerReads(t *testing.T) {
	for _, text := range []string{
		string(typical(t)),
		"---\na: 1\n",
		"# head\n\na: b # line\n   # odd\nc:\n# foot\n\n",
		"a:\n- b\n- c: d\n  e: [f, {g: h}]\n-  - i\n   - j\nk:\n  -\n    l: m\n  -\n  - n",
		"'a b': \"c: d # e\"\n\"f\": '\"'\ng: {}\nh: []\ni: {\"j\": 'k', l: [ ]}\n",
		"a:   b c  \nd: e#f\ng: h:i:j\nk: -1\nl: 10.1.2.3\nm: -x\nn: 1.5\no: 2024-01-01\np: 0x1f\nq: yes\nr: ~\ns: <<\n<<: t\n",
	} {
		require.True(t, scanned(t, new(scanner), []byte(text)), "%s", text)
	}
}

func TestScannerLeaves(t *testing.T) {
	for _, text := range []string{
		"", "\n", "# only a comment\n", "a\n", "- \n...", "--- a: b\n", "%YAML 1.2\n---\na: b\n",
		"a: b\n c: d\n", "a:\n  b: c\n d: e\n", "a: b: c\n", "a : b\n", "a: b\n  c\n", "a:\n    b\n", "- a\nb: c\n", "a:\n- b\n c: d\n",
		"a: &b c\n", "a: *b\n", "a: !t b\n", "a: |\n  b\n", "a: >\n  b\n", "? a\n: b\n", "a: @b\n", "a: `b`\n", "a: %b\n",
		"a: \"b\\n\"\n", "a: 'b''c'\n", "a: 'b\n  c'\n", "a: 'b' c\n", "a: 'b'#c\n", "a: 'b\n",
		"a: [b,\n  c]\n", "a: [b, c,]\n", "a: {b}\n", "a: {b: }\n", "a: {\"b\":c}\n", "a: [b: c]\n", "a: [b:]\n", "a: [b #c]\n", "a: [b] c\n",
		"a: [,]\n",
		"a:\tb\n", "a: b\r\n", "a: ü\n", "a: \x00\n", "- # a\n  b: c\n", strings.Repeat("a", 1025) + ": b\n",
		"a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n",
	} {
		require.False(t, scanned(t, new(scanner), []byte(text)), "%s", text)
	}
}

// TestScannerAsParser compares the scanner and the parser on the YAML texts of the repository, and on random changes of
// them, with one scanner for all texts.
func TestScannerAsParser(t *testing.T) {
	var s scanner
	random := rand.New(rand.NewPCG(5, 6))
	read, total := 0, 0
	for _, text := range yamlHere(t) {
		for _, chunk := range split(text) {
			if total++; scanned(t, &s, chunk.text) {
				read++
			}
			for range 300 {
				scanned(t, &s, mutate(random, chunk.text))
			}
		}
	}
	t.Logf("%d of %d documents are read by the scanner", read, total)
	require.Greater(t, read, total/3)
}

// TestScannerAsParserOnRandomText compares them on random text in the letters that mean something.
func TestScannerAsParserOnRandomText(t *testing.T) {
	var s scanner
	random := rand.New(rand.NewPCG(7, 8))
	read := 0
	for range 100_000 {
		var builder strings.Builder
		for range 1 + random.IntN(6) {
			fmt.Fprintf(&builder, "%*s", 2*random.IntN(4), "")
			for range 1 + random.IntN(5) {
				builder.WriteString(pieces[random.IntN(len(pieces))])
			}
			builder.WriteByte('\n')
		}
		if scanned(t, &s, []byte(builder.String())) {
			read++
		}
	}
	t.Logf("%d texts are read by the scanner", read)
	require.Greater(t, read, 500)
}

var pieces = []string{
	"a: ", "b: ", "a:", "'c': ", "\"d\": ", "- ", "- ", "-", "e", "f g", "1", "-2", "1.5", "10.0.0.1", "~", "yes", "null", "<<", "2024-01-01",
	"'h'", "\"i\"", "[", "]", "{", "}", ",", ", ", ": ", ":", " ", "  ", "#", " #", " # j", "?", "&k ", "*k", "!", "|", ">", "%", "@", ".",
	"\\", "'", "\"",
	"[e, f]", "{a: e}", "[]", "{}", "\n", "---",
}

func mutate(random *rand.Rand, text []byte) []byte {
	s := string(text)
	for range 1 + random.IntN(3) {
		begin := random.IntN(len(s) + 1)
		to := min(len(s), begin+random.IntN(4))
		switch random.IntN(3) {
		case 0:
			s = s[:begin] + s[to:]
		case 1:
			s = s[:begin] + pieces[random.IntN(len(pieces))] + s[to:]
		case 2:
			from := random.IntN(len(s) + 1)
			s = s[:begin] + s[from:min(len(s), from+random.IntN(40))] + s[begin:]
		}
	}
	return []byte(s)
}

func yamlHere(tb testing.TB) (texts [][]byte) {
	tb.Helper()
	for _, pattern := range []string{"testdata/decode/*.yaml", "../testdata/quickstart/*.yaml", "testdata/bench/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(tb, err)
		require.NotEmpty(tb, files)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(tb, err)
			texts = append(texts, data)
		}
	}
	return texts
}

// FuzzScanner compares the scanner and the parser.
func FuzzScanner(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > maxFuzzed {
			return
		}
		for _, c := range split(data) {
			scanned(t, new(scanner), c.text)
		}
	})
}
