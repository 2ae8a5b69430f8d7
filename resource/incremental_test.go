package resource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
)

// parts of random texts: usual documents, documents for the YAML parser, lists, invalid documents, documents with
// warnings, foreign objects, anchors, and texts without a document.
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

// TestDecodeIncremental compares decoding with the result of earlier texts to decoding from scratch, over random histories of
// a file.
func TestDecodeIncremental(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := Options{Validate: true, ForeignKinds: rapid.SampledFrom([]Foreign{ForeignIgnore, ForeignWarn}).Draw(t, "foreign")}
		earlier := new(DecodeCache)
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
			var decodedAgain []Document
			decodedAgain, earlier = DecodeIncremental(path, []byte(text.String()), opts, earlier)
			requireSame(t, Decode(path, []byte(text.String()), opts), decodedAgain)
		}
	})
}

func requireSame(t require.TestingT, want, documents []Document) {
	say := func(docs []Document) (lines []string) {
		for _, d := range docs {
			text := fmt.Sprintf("%d %v %t %v %v", d.Line, d.Key, d.Foreign, d.Errors, d.Warnings)
			if r := d.Resource; r != nil {
				warnings, err := Validate(r)
				// Istio says the same in other words each time
				text += fmt.Sprintf(" %v %s %d %d", r.Meta(), r.Version(), len(warnings), len(ErrorsIn(err)))
			}
			lines = append(lines, text)
		}
		return lines
	}
	require.Equal(t, say(want), say(documents))
}

// TestDecodeIncrementalTakesOver checks that unchanged parts are not decoded again.
func TestDecodeIncrementalTakesOver(t *testing.T) {
	text := func(first string) []byte { return []byte(first + "---\n" + parts[1] + "---\n" + parts[2]) }
	_, earlier := DecodeIncremental("f.yaml", text(parts[0]), Options{Validate: true}, new(DecodeCache))
	before, earlier := DecodeIncremental("f.yaml", text(parts[0]), Options{Validate: true}, earlier)
	same, earlier := DecodeIncremental("f.yaml", text(strings.Replace(parts[0], "80", "81", 1)), Options{Validate: true}, earlier)
	require.NotEqual(t, before[0].Resource.Version(), same[0].Resource.Version())
	for i := 1; i < 3; i++ {
		require.Same(t, before[i].Resource, same[i].Resource)
	}
	moved, _ := DecodeIncremental("f.yaml", text("# a line more\n"+parts[0]), Options{Validate: true}, earlier)
	for i := 1; i < 3; i++ {
		require.Equal(t, before[i].Line+1, moved[i].Line)
		require.Same(t, &before[i].Resource.Body()[0], &moved[i].Resource.Body()[0], "the bytes are the same ones")
	}
	renamespaced, _ := DecodeIncremental("f.yaml", text(parts[0]), Options{Validate: true, DefaultNamespace: "other"}, earlier)
	require.Equal(t, "other", renamespaced[1].Resource.Key().Namespace)
}

// TestDecodeIncrementalCounts checks that reused parts count for the budget as before.
func TestDecodeIncrementalCounts(t *testing.T) {
	for _, text := range parts {
		fresh := newFile("f.yaml", []byte(text), Options{})
		fresh.decode([]byte(text))
		_, earlier := DecodeIncremental("f.yaml", []byte(text), Options{}, new(DecodeCache))
		second := newFile("f.yaml", []byte(text), Options{})
		second.earlier, second.parts = earlier.parts, make(map[[16]byte]part)
		second.decode([]byte(text))
		require.Equal(t, fresh.budget.objects.Load(), second.budget.objects.Load(), text)
	}
}

// The size of an earlier result includes its parts; there may be many parts without a document.
func TestDecodedSize_IncludesParts(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: List\nmetadata: {name: l%d}\nitems: []\n", i)
	}
	docs, earlier := DecodeIncremental("x.yaml", []byte(text.String()), Options{}, new(DecodeCache))
	require.Equal(t, len(docs)+1000, earlier.Size())
}
