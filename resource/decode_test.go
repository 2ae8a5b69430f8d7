package resource

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestDecodeGolden compares the result of Decode for the files in testdata/decode with the golden files beside them.
// Files named *.lenient.* are decoded with unknown fields as warnings.
func TestDecodeGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/decode/*.*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		if strings.HasSuffix(path, ".golden") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			opts := Options{DefaultNamespace: "shop"}
			if strings.Contains(path, ".lenient.") {
				opts.UnknownFields = SeverityWarning
			}
			got := render(Decode(filepath.Base(path), data, opts))
			golden := path + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// render shows documents: their errors and warnings, and the objects as YAML.
func render(docs []Document) string {
	var builder strings.Builder
	for _, document := range docs {
		fmt.Fprintf(&builder, "line %d, key %q\n", document.Line, document.Key)
		for _, e := range document.Errors {
			fmt.Fprintf(&builder, "error: %v\n", e)
		}
		for _, e := range document.Warnings {
			fmt.Fprintf(&builder, "warning: %v\n", e)
		}
		if document.Resource != nil {
			text, err := MarshalYAML(document.Resource)
			if err != nil {
				text = []byte(err.Error())
			}
			fmt.Fprintf(&builder, "from %s:\n%s", document.Resource.Origin(), text)
		}
		builder.WriteString("\n")
	}
	return builder.String()
}

const service = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s}
spec: {hosts: [a.example.com]}
`

// TestDecodeManyDocuments shows that the documents of a large file, which are decoded side by side, are in order and know
// their lines.
func TestDecodeManyDocuments(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, service, fmt.Sprintf("s%d", i))
		if i%10 == 0 {
			text.WriteString("bad: yes\n")
		}
		text.WriteString("---\n")
	}
	line := 1
	docs := Decode("x.yaml", []byte(text.String()), Options{})
	require.Len(t, docs, 1000)
	for i, document := range docs {
		assert.Equal(t, fmt.Sprintf("s%d", i), document.Key.Name)
		assert.Equal(t, max(line, 1), document.Line)
		if line += 5; i%10 == 0 {
			require.Len(t, document.Errors, 1)
			assert.Contains(t, document.Errors.Error(), fmt.Sprintf("x.yaml:%d:1: ", line-1))
			line++
		}
	}
}

// TestErrors_QuoteOnlyObjects has files of secrets, read by mistake: no message may have a part of them.
func TestErrors_QuoteOnlyObjects(t *testing.T) {
	for _, text := range []string{
		"hunter2", "hunter2: hunter2", "a: *hunter2", "*hunter2", "hunter2: 1\nhunter2: 2\n", "- hunter2\n- hunter2: [hunter2]\n",
		"root:hunter2:19000::::\nbob:hunter2\n", "? [hunter2]\n: hunter2\n", "hunter2\n--- hunter2\n... hunter2\n", "kind: hunter2\n",
		"apiVersion: hunter2\n",
		"kind: [hunter2]\n", "!hunter2 a", "a: !!int hunter2", "a: &hunter2 *hunter2", "'hunter2", "{hunter2", "%hunter2 a\n---\n",
		"1: hunter2\n!hunter2 b: c\n",
		"<<: hunter2\n", "items: hunter2\nkind: List\n", "kind: !hunter2 hunter2\napiVersion: hunter2\n", "hunter2:\n\thunter2: [}\n",
		"-----BEGIN PRIVATE KEY-----\nhunter2==\n-----END PRIVATE KEY-----\n", "user = hunter2\n[hunter2]\n", "`hunter2", "@hunter2",
		"\"hunter2\\q\"",
	} {
		for _, name := range []string{"x.yaml", "x.json"} {
			for _, d := range Decode(name, []byte(text), Options{}) {
				assert.NotContains(t, d.Errors.Error()+d.Warnings.Error()+d.Key.String(), "hunter2", "%s: %s", name, text)
			}
		}
	}
}

// TestDecodeForms shows forms of text that do not survive in a file of an editor, or that are too big for one.
func TestDecodeForms(t *testing.T) {
	entry := fmt.Sprintf(service, "one")
	huge := fmt.Sprintf(service, "huge") + "# " + strings.Repeat("x", 10<<20) + "\n"
	deep := func(n int) string {
		return "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: deep}\nspec: {configPatches: [{patch: {value: " +
			"{a: " +
			strings.Repeat("[", n) + strings.Repeat("]", n) + "}}}]}\n"
	}
	wide := strings.Builder{}
	wide.WriteString("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: wide}\nspec:\n  hosts:\n")
	for i := range 200_000 {
		fmt.Fprintf(&wide, "  - h%d.example.com\n", i)
	}
	for _, test := range []struct {
		name, data string
		good       int
		bad        string // part of the error
	}{
		{"empty", "", 0, ""},
		{"blank", "\n\n  \n", 0, ""},
		{"comments only", "# nothing\n---\n# here\n---\n...\n", 0, ""},
		{"null", "null\n---\n~\n", 0, ""},
		{"byte order mark", "\ufeff" + entry, 1, ""},
		{"CRLF", strings.ReplaceAll(entry+"---\n"+fmt.Sprintf(service, "two"), "\n", "\r\n"), 2, ""},
		{"directive", "%YAML 1.2\n---\n" + entry, 1, ""},
		{
			"content on the mark's line", "--- {apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: a}}\n" +
				"--- # comment\n" + entry,
			2, "",
		},
		{"end mark", entry + "...\n" + fmt.Sprintf(service, "two") + "...\n", 2, ""},
		{"mark in a block scalar", "a: |\n  ---\n", 0, "apiVersion and kind are missing"},
		{
			"several values of JSON",
			`{"apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": {"name": "a"}}` + "\n---\n" + entry, 2,
			"",
		},
		{"binary", "\x7fELF\x02\x01\x01\x00\x00\xff\xfe\x90", 0, "x.yaml:1:10: not valid UTF-8"},
		{"binary beside good", entry + "---\n\xff\xfe\n---\n" + fmt.Sprintf(service, "two"), 2, "x.yaml:6:1: not valid UTF-8"},
		{"control characters", "a: \x00b\n", 0, "control characters are not allowed"},
		{"tab", "apiVersion: v1\nmetadata:\n\tname: a\n", 0, "x.yaml:3:1: a tab indents this line"},
		{
			"unclosed", entry + "---\nspec: {hosts: [a\n---\n" + fmt.Sprintf(service, "two"), 2,
			"want a comma or a ] before this, or quotes around a value",
		},
		{"unclosed quote", "kind: \"Gateway\n---\n" + entry, 1, "a quote is not closed"},
		{"not a mapping", "just text\n", 0, "want an object"},
		{"list", "- a\n- b\n", 0, "want an object"},
		{"unknown anchor", "a: *b\n", 0, "an alias (*) of an anchor (&) that is not there before it; a value that begins with * wants quotes"},
		{"10 MB", huge, 1, ""},
		{"many hosts", wide.String(), 1, ""},
		{"deep", deep(150), 1, ""},
		{"too deep", deep(250), 0, "nested deeper than 200 levels"},
		{"much too deep", deep(500_000), 0, "exceeded max depth"},
		{"alias within itself", "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: a}\nspec: {configPatches: " +
			"[{patch: {value: &v {a: *v}}}]}\n", 0, "nested deeper"},
		{"merge of itself", "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: a}\nspec: {configPatches: [{patch: " +
			"{value: &v {<<: *v}}}]}\n", 0, "merge keys (<<) within merge keys"},
		{"billion laughs", laughs(), 0, "aliases (*name) stand for too much"},
	} {
		t.Run(test.name, func(t *testing.T) {
			good, bad := 0, ""
			for _, document := range Decode("x.yaml", []byte(test.data), Options{}) {
				if document.Resource != nil {
					good++
				}
				bad += document.Errors.Error()
			}
			assert.Equal(t, test.good, good, "objects; errors: %s", bad)
			if test.bad == "" {
				assert.Empty(t, bad)
			} else {
				assert.Contains(t, bad, test.bad)
			}
		})
	}
}

// TestKinds_EscapedInErrors has kinds and versions with control characters for terminals or pages: errors quote them,
// and no key has them.
func TestKinds_EscapedInErrors(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: networking.istio.io/v1\nkind: \"K\\u202eEVIL\"\nmetadata: {name: " +
			"a}\n": `x.yaml:2:7: kind: want printable ASCII, got "K\u202eEVIL"`,
		"apiVersion: networking.istio.io/v1\nkind: \"K\\e[31mList\"\nitems: " +
			"[]\n": `x.yaml:2:7: kind: want printable ASCII, got "K\x1b[31mList"`,
		"apiVersion: \"example.com/\\u2066v1\"\nkind: Thing\nmetadata: {name: " +
			"a}\n": `x.yaml:1:13: apiVersion: want printable ASCII, got "example.com/\u2066v1"`,
		"apiVersion: networking.istio.io/v1\nkind: Gateway\u0435\nmetadata: {name: a}\nspec: " +
			"1\n": `x.yaml:2:7: kind: want printable ASCII, got "Gateway\u0435"`,
	} {
		documents := Decode("x.yaml", []byte(text), Options{ForeignKinds: ForeignWarn})
		require.Len(t, documents, 1)
		require.Equal(t, want, documents[0].Errors.Error())
		require.Zero(t, documents[0].Key)
	}
}

// TestLinesOfFaults shows that faults of syntax are reported where they are, also where the parser names another line, or
// none.
func TestLinesOfFaults(t *testing.T) {
	for text, want := range map[string]string{
		"a:\n  b: c\n d: e\n": "x.yaml:3: this line is indented as none of those before it, or a quote or bracket before " +
			"it is not closed",
		"a: b\nc: d\n]\n": "x.yaml:3: this line is indented as none of those before it, or a quote or bracket before " +
			"it is not closed",
		"- a\nb: c\n":            "x.yaml:2: this line is indented as an item of the list before it, and does not begin with -",
		"a: b\nc: [d\ne: f\n":    "x.yaml:2: want a comma or a ] before this, or quotes around a value",
		"a: b\nc: {d: e\nf: g\n": "x.yaml:2: want a comma or a } before this, or quotes around a value",
		"a: b\nc: !e!f g\n":      "x.yaml:2: found undefined tag handle",
		"a: b\n\n# c\nd: *e\nf: g\n": "x.yaml:4: an alias (*) of an anchor (&) that is not there before it; a value that begins " +
			"with * wants quotes",
		"a: b\nc: \x00\n": "x.yaml:2: control characters are not allowed",
		"a: b\nc: d: e\n": "x.yaml:2: there is a : where no key can be: the value before it wants quotes, or the line " +
			"is indented wrongly",
		"a: b\nc: @d\n":  "x.yaml:2: a value that begins so wants quotes",
		"a: b\nc: \"d\n": "x.yaml:2: a quote is not closed",
		"---\na: b\n---\nc:\n  d: e\n f: g\n": "x.yaml:6: this line is indented as none of those before it, or a quote or bracket before " +
			"it is not closed",
		"a:\n- &b c\n- d\n -e: f\n- [\n": "x.yaml:4: there is a : where no key can be: the value before it wants quotes, or the line " +
			"is indented wrongly",
		"a: |\n  b\n c\nd: e\n": "x.yaml:3: this line is indented as none of those before it, or a quote or bracket before " +
			"it is not closed",
		"a: &b c\nd: e\n" + "  f: g\n": "x.yaml:3: there is a : where no key can be: the value before it wants quotes, or the line " +
			"is indented wrongly",
		strings.Repeat("a: *b\n", 2) + "# c\n c\n": "x.yaml:1: an alias (*) of an anchor (&) that is not there before it; a value that begins " +
			"with * wants quotes",
	} {
		var keyless []string
		for _, d := range Decode("x.yaml", []byte(text), Options{}) {
			for _, e := range d.Errors {
				if e.Key == (Key{}) && !strings.Contains(e.Error(), "missing") {
					keyless = append(keyless, e.Error())
				}
			}
		}
		assert.Equal(t, []string{want}, keyless, "%q", text)
	}
}

// laughs stands for 10^9 strings.
func laughs() string {
	var b strings.Builder
	b.WriteString("apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: a}\nspec:\n  configPatches:\n  - patch:\n  " +
		"    value:\n        a0: &a0 ha\n")
	for i := 1; i <= 9; i++ {
		fmt.Fprintf(&b, "        a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10))
	}
	return b.String()
}

func TestDecodeJSONFile(t *testing.T) {
	good := `{"apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": {"name": "a"}}`
	for _, test := range []struct{ name, data, bad string }{
		{"one", good, ""},
		{"stream", good + "\n" + strings.ReplaceAll(good, `"a"`, `"b"`), ""},
		{"tabs", strings.ReplaceAll(good, " ", "\t"), ""},
		{"surrogates", strings.ReplaceAll(good, `"a"`, `"a", "annotations": {"k": "\ud83d\ude00"}`), ""},
		{"comma", strings.ReplaceAll(good, "}}", "},}"), "x.json:1:87: "},
		{"cut off", good[:40], "the text ends within a value"},
		{"YAML", "kind: Sidecar", "invalid character"},
		{
			"duplicate", strings.ReplaceAll(good, `{"name": "a"}`, "{\"name\": \"a\",\n \"name\": \"b\"}"),
			`x.json:2:2: Sidecar default/a: metadata: duplicate key "name", first in line 1`,
		},
		{"not UTF-8", "{\"a\": \"\xff\"}", "x.json:1:8: not valid UTF-8"},
		{"deep", strings.Repeat("[", 1_000_000), "nested deeper"},
	} {
		t.Run(test.name, func(t *testing.T) {
			docs := Decode("x.json", []byte(test.data), Options{})
			var bad string
			for _, d := range docs {
				bad += d.Errors.Error()
			}
			if test.bad == "" {
				assert.Empty(t, bad)
				assert.NotEmpty(t, docs)
			} else {
				assert.Contains(t, bad, test.bad)
			}
		})
	}
}

// TestErrorsOfDocument_Bounded shows that a document with many problems reports the first, and that there are more.
func TestErrorsOfDocument_Bounded(t *testing.T) {
	data := fmt.Sprintf(service, "one") + "bad:\n" + strings.Repeat("more: 1\n", 1000)
	docs := Decode("x.yaml", []byte(data), Options{})
	require.Len(t, docs, 1)
	assert.Len(t, docs[0].Errors, maxProblems+1)
	assert.Contains(t, docs[0].Errors[maxProblems].Error(), "more problems")
}

func TestErrors(t *testing.T) {
	data := fmt.Sprintf(service, "one") + "x: 1\ny: 2\n"
	docs := Decode("rules/x.yaml", []byte(data), Options{})
	require.Len(t, docs, 1)
	err := fmt.Errorf("load: %w", errors.Join(docs[0].Errors.Err(), errors.New("other")))

	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, Key{ServiceEntry, "default", "one"}, e.Key)
	assert.Equal(t, "rules/x.yaml:5:1", e.Origin.Place)
	assert.Equal(t, `rules/x.yaml:5:1: ServiceEntry default/one: unknown field "x"`, e.Error())
	assert.Len(t, ErrorsIn(err), 2)
	assert.Empty(t, ErrorsIn(nil))
	assert.NoError(t, Errors(nil).Err())
	assert.Equal(t, docs[0].Key, e.Key, "the key is known, though the object is not")
}

func TestDecodeMetadata(t *testing.T) {
	docs := Decode("x.yaml", []byte(`
apiVersion: networking.istio.io/v1beta1
kind: ServiceEntry
metadata:
  name: a.b-c
  namespace: shop
  uid: 1234
  generation: 2
  resourceVersion: "99"
  creationTimestamp: 2024-05-06T07:08:09+02:00
  finalizers: [x]
  ownerReferences: [{kind: Pod}]
  managedFields: [{manager: kubectl}]
  labels: {a: "1", 2: two}
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: "{}"
spec: {hosts: [a.example.com]}
status: {anything: [goes]}
`), Options{})
	require.Len(t, docs, 1)
	require.Empty(t, docs[0].Errors)
	resource := docs[0].Resource
	assert.Equal(t, Key{ServiceEntry, "shop", "a.b-c"}, resource.Key())
	assert.Equal(t, map[string]string{"a": "1", "2": "two"}, resource.Labels())
	assert.Nil(t, resource.Annotations())
	assert.Equal(t, time.Date(2024, 5, 6, 5, 8, 9, 0, time.UTC), resource.Created())
	assert.Equal(t, "x.yaml:2", resource.Origin().Place)
	assert.Equal(t, 2, docs[0].Line)
}

func TestSplit(t *testing.T) {
	var got []string
	for _, c := range split([]byte("a\n--- b\nc\n---\n# only a comment\n---\nd\n...\n%YAML 1.2\n---\ne\n----\n--- f")) {
		got = append(got, fmt.Sprintf("%d:%s", c.line, bytes.ReplaceAll(c.text, []byte("\n"), []byte("|"))))
	}
	assert.Equal(t, []string{"1:a|", "2:--- b|c|", "6:---|d|", "10:---|e|----|", "13:--- f"}, got)
}
