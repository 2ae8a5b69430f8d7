package resource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
)

// parts of which texts are made: what is usual, what goes to the YAML parser, lists, what is wrong, what is warned of, what is not
// ours, what has anchors, and what is no document.
var parts = []string{
	"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: a, namespace: one}\nspec: {servers: [{port: {number: 80, name: " +
		"http, protocol: HTTP}, hosts: ['*']}]}\n",
	"# words\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: b}\nspec: {servers: [{port: {number: 80, name: http, " +
		"protocol: HTTP}, hosts: ['*']}]}\n",
	"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: c, annotations: {a: ö}}\nspec: {servers: [{port: {number: 80, " +
		"name: http, protocol: HTTP}, hosts: ['*']}]}\n",
	"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: e}\nspec:\n  servers:\n  - port: &p {number: 80, name: http, " +
		"protocol: HTTP}\n    hosts: ['*']\n  - port: *p\n    hosts: [b.example]\n",
	"kind: List\napiVersion: v1\nitems:\n- apiVersion: networking.istio.io/v1\n  kind: Gateway\n  metadata: {name: f}\n  spec: {servers: " +
		"[{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}\n- apiVersion: v1\n  kind: Service\n  metadata: {name: g}\n",
	"apiVersion: v1\nkind: Service\nmetadata: {name: h}\nspec: {ports: [{port: 80}]}\n",
	"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: i}\nspec: {severs: []}\n",
	"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: j}\nspec:\n  servers:\n  - port: {number: 99999, name: http, " +
		"protocol: HTTP}\n    hosts: ['*']\n",
	"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: k}\nspec: {host: short}\n",
	"{\"apiVersion\": \"networking.istio.io/v1\", \"kind\": \"Sidecar\", \"metadata\": {\"name\": \"l\"}, \"spec\": {\"egress\": " +
		"[{\"hosts\": [\"./*\"]}]}}\n",
	"kind: [\n",
	"# nothing\n",
	"\n\n",
	"%YAML 1.1\n",
}

// TestDecodeAgain holds that a text comes out as it would if nothing were known of earlier ones, over random histories of a file.
func TestDecodeAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := Options{Validate: true, ForeignKinds: rapid.SampledFrom([]Foreign{ForeignIgnore, ForeignWarn}).Draw(t, "foreign")}
		known := new(Decoded)
		path := "f.yaml"
		for range rapid.IntRange(1, 5).Draw(t, "texts") {
			var text strings.Builder
			for range rapid.IntRange(0, 6).Draw(t, "pieces") {
				text.WriteString(rapid.SampledFrom(parts).Draw(t, "piece"))
				text.WriteString(rapid.SampledFrom([]string{"---\n", "---\n", "...\n", "--- # next\n", "", "... more\n"}).Draw(t, "mark"))
			}
			if rapid.IntRange(0, 9).Draw(t, "renamed") == 0 {
				path = "g.yaml"
			}
			var again []Document
			again, known = DecodeAgain(path, []byte(text.String()), opts, known)
			requireSame(t, Decode(path, []byte(text.String()), opts), again)
		}
	})
}

func requireSame(t require.TestingT, want, got []Document) {
	say := func(docs []Document) (all []string) {
		for _, d := range docs {
			text := fmt.Sprintf("%d %v %t %v %v", d.Line, d.Key, d.Foreign, d.Errors, d.Warnings)
			if r := d.Resource; r != nil {
				warnings, err := Validate(r)
				// Istio says the same in other words each time
				text += fmt.Sprintf(" %v %s %d %d", r.Meta(), r.Version(), len(warnings), len(ErrorsIn(err)))
			}
			all = append(all, text)
		}
		return all
	}
	require.Equal(t, say(want), say(got))
}

// TestDecodeAgainTakesOver holds that what has not changed is not decoded again.
func TestDecodeAgainTakesOver(t *testing.T) {
	text := func(first string) []byte { return []byte(first + "---\n" + parts[1] + "---\n" + parts[2]) }
	_, known := DecodeAgain("f.yaml", text(parts[0]), Options{Validate: true}, new(Decoded))
	before, known := DecodeAgain("f.yaml", text(parts[0]), Options{Validate: true}, known)
	same, known := DecodeAgain("f.yaml", text(strings.Replace(parts[0], "80", "81", 1)), Options{Validate: true}, known)
	require.NotEqual(t, before[0].Resource.Version(), same[0].Resource.Version())
	for i := 1; i < 3; i++ {
		require.Same(t, before[i].Resource, same[i].Resource)
	}
	moved, _ := DecodeAgain("f.yaml", text("# a line more\n"+parts[0]), Options{Validate: true}, known)
	for i := 1; i < 3; i++ {
		require.Equal(t, before[i].Line+1, moved[i].Line)
		require.Same(t, &before[i].Resource.Body()[0], &moved[i].Resource.Body()[0], "the bytes are the same ones")
	}
	others, _ := DecodeAgain("f.yaml", text(parts[0]), Options{Validate: true, DefaultNamespace: "other"}, known)
	require.Equal(t, "other", others[1].Resource.Key().Namespace)
}

// TestDecodeAgainCounts holds that what is taken over counts for the budget as it did.
func TestDecodeAgainCounts(t *testing.T) {
	for _, text := range parts {
		fresh := newFile("f.yaml", []byte(text), Options{})
		fresh.decode([]byte(text))
		_, known := DecodeAgain("f.yaml", []byte(text), Options{}, new(Decoded))
		again := newFile("f.yaml", []byte(text), Options{})
		again.earlier, again.parts = known.parts, make(map[[16]byte]part)
		again.decode([]byte(text))
		require.Equal(t, fresh.budget.objects.Load(), again.budget.objects.Load(), text)
	}
}

// What is known of a text counts by its parts as well, of which there may be many without a document.
func TestSizeOfWhatIsKnown(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: List\nmetadata: {name: l%d}\nitems: []\n", i)
	}
	docs, known := DecodeAgain("x.yaml", []byte(text.String()), Options{}, new(Decoded))
	require.Equal(t, len(docs)+1000, known.Size())
}
