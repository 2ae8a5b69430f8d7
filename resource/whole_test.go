package resource

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"go.yaml.in/yaml/v3"

	"tributary/internal/testutil"
	"tributary/internal/yamldoc"
)

// TestWholeText_ReadOrRefused has texts with a part that a parser that stops at the end of the first document would
// miss. Each text must be refused, or be read completely.
func TestWholeText_ReadOrRefused(t *testing.T) {
	first, two := fmt.Sprintf(service, "one"), fmt.Sprintf(service, "two")
	flow := func(name string) string {
		return fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: %s}}`, name)
	}
	object := func(name string) string {
		return fmt.Sprintf(`{"apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": {"name": %q}}`, name)
	}
	for _, test := range []struct {
		name, text string
		good       string // names of the objects that are read; an error is expected if there is less than all
		bad        string // part of the error
	}{
		{
			"spec to the left of its head", "  apiVersion: networking.istio.io/v1\n  kind: Sidecar\n  metadata: {name: one}\nspec: {egress: []}\n",
			"", "x.yaml:4",
		},
		{"two flow objects", flow("one") + "\n" + flow("two") + "\n", "", "x.yaml:2"},
		{"two JSON objects", object("one") + "\n" + object("two") + "\n", "one two", ""},
		{"two JSON objects in a line", object("one") + object("two"), "one two", ""},
		{"garbage after a flow object", flow("one") + " ]]]] garbage", "", "x.yaml:1"},
		{"garbage after a JSON object", object("one") + " ]]]] garbage", "", "x.yaml:1"},
		{"garbage in the next line", object("one") + "\n]]]]\n", "", "x.yaml:2"},
		{"carriage returns only", strings.ReplaceAll(first+"---\n"+two, "\n", "\r"), "one two", ""},
		{"a comment that a carriage return ends", "# comment\r" + first, "one", ""},
		{"a comment that a line separator ends", "# comment\u2028" + first, "one", ""},
		{"a comment that a next-line character ends", "# comment\u0085" + first, "one", ""},
		{"text behind the end of a document", first + "... " + flow("two") + "\n", "one", "x.yaml:5"},
		{"a comment behind the end of a document", first + "... # end\n" + two, "one two", ""},
		{"a null that is none", "!!null " + "text\n", "", "x.yaml:1"},
		{"a spec that is tagged null", strings.Replace(first, "spec: ", "spec: !!null x #", 1), "", "x.yaml:4"},
		{"an unknown field in a list", "apiVersion: v1\nkind: List\nitems: []\nspec: {hosts: [a]}\n", "", "x.yaml:4:1: unknown field \"spec\""},
		{"an unknown directive", "%FOO bar\n---\n" + first, "one", "x.yaml:1"},
		{"a directive", "%YAML 1.2\n%TAG ! tag:example.com:\n---\n" + first, "one", ""},
		{"a directive in the middle", first + "%YAML 1.1\n---\n" + two, "two", "x.yaml:"},
		{"a mark of order in the middle", first + "---\n\ufeff" + two, "one", "x.yaml:6"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var good []string
			var builder strings.Builder
			for _, document := range Decode("x.yaml", []byte(test.text), Options{}) {
				if document.Resource != nil {
					good = append(good, document.Key.Name)
				}
				builder.WriteString(document.Errors.Error())
			}
			assert.Equal(t, test.good, strings.Join(good, " "), "errors: %s", builder.String())
			if test.bad == "" {
				assert.Empty(t, builder.String())
			} else {
				assert.Contains(t, builder.String(), test.bad)
			}
		})
	}
}

// wholeRoots parses all documents of a text with the YAML parser alone. ok is false if the parser finds a fault.
func wholeRoots(text []byte) (roots []*yaml.Node, ok bool) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return roots, true
		}
		if err != nil {
			return nil, false
		}
		roots = append(roots, node.Content...)
	}
}

// plainComments replaces characters in comment lines that the parser refuses: the decoder does not parse pure comment
// lines, so their encoding does not matter.
func plainComments(text []byte) (plain []byte) {
	for line := range yamldoc.Lines(text) {
		if bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("#")) {
			line = bytes.Map(func(r rune) rune {
				if r == utf8.RuneError || unicode.IsControl(r) && !strings.ContainsRune("\t\r\n\u0085", r) {
					return '?'
				}
				return r
			}, line)
		}
		plain = append(plain, line...)
	}
	return plain
}

// withoutBlanks leaves out the lines of blanks, and the comments that stand alone.
func withoutBlanks(text []byte) (rest []byte) {
	for line := range yamldoc.Lines(text) {
		if content := bytes.TrimSpace(line); len(content) > 0 && content[0] != '#' {
			rest = append(rest, line...)
		}
	}
	return rest
}

// checkWhole expects that the parser accepts each text that Decode accepts, as one stream from beginning to end, and
// finds the same objects in the same order.
func checkWhole(t *testing.T, text []byte, opts Options) {
	t.Helper()
	text = plainComments(text)
	docs := Decode("x.yaml", text, opts)
	for _, d := range docs {
		if len(d.Errors) > 0 {
			return
		}
	}
	if bytes.HasPrefix(text, []byte("{")) || bytes.Contains(text, []byte("\n{")) || bytes.Contains(text, []byte("%")) {
		return // YAML has no streams of JSON; the parser supports only one version of directives
	}
	roots, ok := wholeRoots(text)
	if !ok { // lines of blanks and comments between documents are empty, also where they begin with a tab
		roots, ok = wholeRoots(withoutBlanks(text))
	}
	if !ok {
		t.Fatalf("accepted, but the parser refuses it:\n%q", text)
	}
	opts.DefaultNamespace = "default"
	f := file{path: "x.yaml", opts: opts, budget: newBudget(text)}
	for _, root := range roots {
		f.add(root, 0, ancestry{})
	}
	want := f.docs
	if len(want) != len(docs) {
		t.Fatalf("%d documents, but %d for the parser:\n%q", len(docs), len(want), text)
	}
	for i := range docs {
		if docs[i].Key != want[i].Key || !Equal(docs[i].Resource, want[i].Resource) {
			t.Fatalf("document %d is %s, but %s for the parser, or their content differs:\n%q", i, docs[i].Key, want[i].Key, text)
		}
	}
}

// TestMutatedTexts_ReadWhole runs checkWhole on the YAML texts of the repository, and on random changes of them.
func TestMutatedTexts_ReadWhole(t *testing.T) {
	testutil.OneGoroutine(t)
	random := rand.New(rand.NewPCG(9, 10))
	for _, text := range yamlHere(t) {
		for _, c := range split(text) {
			checkWhole(t, c.text, Options{})
			for range 200 {
				checkWhole(t, mutate(random, c.text), Options{ForeignKinds: ForeignError})
			}
		}
	}
}

// FuzzWhole is the same for any text.
func FuzzWhole(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkWhole(t, data, Options{ForeignKinds: ForeignError}) })
}
