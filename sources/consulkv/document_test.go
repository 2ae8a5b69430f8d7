package consulkv

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/memstore/storetest"
	"tributary/resource"
)

// FuzzDocuments changes and deletes an object in a value that another program wrote. All other parts of the value stay
// as they were, or the store refuses to write.
func FuzzDocuments(f *testing.F) {
	a, b := entryText("a", 80), entryText("b", 81)
	for _, text := range []string{
		"", "\n", "---\n", a, a + "---\n" + b, "---\n" + a + "---\n" + b + "---\n", "# c\n--- # d\n" + a + "---\n# e\n---\n" + b,
		a + "...\n---\n" + b,
		"%YAML 1.2\n---\n" + a, a + "--- \n" + b + "--- |\n text\n", "\ufeff" + a + "---\r\n" + b, "{}", "a: [\n---\n" + a, a + "---\n" + a,
		b + "---",
		"apiVersion: v1\nkind: List\nitems:\n- {}\n---\n" + a, "--- {apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: " +
			"a, namespace: shop}}\n---\n" + b,
	} {
		f.Add([]byte(text), "x.yaml")
	}
	f.Add([]byte(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"a","namespace":"shop"}}`), "x.json")
	f.Fuzz(func(t *testing.T, value []byte, key string) { checkDocuments(t, key, value) })
}

// TestDocuments does the same for all that can be put together of a few pieces.
func TestDocuments(t *testing.T) {
	pieces := []string{
		"---\n", "--- \n", "--- # note\n", "---\r\n", "---", "...\n", "# note\n", "\n", "--- |\n text\n", "%YAML 1.1\n", "broken: [\n", "{}\n",
		"  ",
		entryText("a", 80), entryText("b", 81), entryText("a", 82), "\ufeff", "apiVersion: v1\nkind: List\nitems:\n- {}\n",
		"--- {apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: a, namespace: shop}}\n",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 9).Draw(t, "pieces"), "")
		checkDocuments(t, "x.yaml", []byte(text))
	})
}

func checkDocuments(t require.TestingT, key string, value []byte) {
	p := &place{}
	r := storetest.New(keyA.Kind, keyA.Namespace, keyA.Name, "new")
	before := slices.Clone(value)
	old, others := p.inspect(key, value, keyA)
	if docs := resource.Decode(key, value, p.decode); strings.EqualFold(path.Ext(key), ".json") && len(docs) == 1 && docs[0].Key == keyA {
		others = nil // a broken object is repaired by the one that replaces it
	}
	if after, err := p.replace(key, value, keyA, r); err == nil {
		got, rest := p.inspect(key, after, keyA)
		require.True(t, resource.Equal(r, got), "%q", after)
		require.Equal(t, others, rest, "%q", after)
	}
	if old == nil {
		return // there is no object to delete
	}
	if after, err := p.replace(key, value, keyA, nil); err == nil {
		got, rest := p.inspect(key, after, keyA)
		if got != nil { // the second of several with one key is the first now
			i := slices.Index(others, got.Version())
			require.GreaterOrEqual(t, i, 0, "%q", after)
			others = slices.Delete(others, i, i+1)
		}
		require.True(t, slices.Equal(others, rest), "%q", after)
	}
	require.Equal(t, before, value, "the value that was read is not modified")
}
