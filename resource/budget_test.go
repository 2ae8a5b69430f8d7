package resource

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// TestBudget shows that no text, however short, costs more than one budget allows, in lists as in objects, in one
// document as in many.
func TestBudget(t *testing.T) {
	testutil.OneGoroutine(t)
	nested := "apiVersion: v1\nkind: List\n" // 3 levels of 60 lists each
	for i := range 3 {
		inner := "[]"
		if i > 0 {
			inner = fmt.Sprintf("[%s]", strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d,", i-1), 60), ","))
		}
		nested += fmt.Sprintf("x%d: &l%d {apiVersion: v1, kind: List, items: %s}\n", i, i, inner)
	}
	nested += "items: [" + strings.TrimSuffix(strings.Repeat("*l2,", 60), ",") + "]\n"

	for _, test := range []struct{ name, text, bad string }{
		{"a list within itself", "&a\napiVersion: v1\nkind: List\nitems:\n- *a", "lists within lists"},
		{"lists within lists by alias", nested, "x.yaml"},
		{"one object many times", "apiVersion: v1\nkind: List\nitems:\n- &a {apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: " +
			"{name: a}}\n" +
			strings.Repeat("- *a\n", 100_000), "aliases (*name) stand for too much"},
		{"no object many times", "apiVersion: v1\nkind: List\nitems: [" + strings.Repeat("0,", 300_000) + "0]\n", "more than 262144 objects"},
		{"many empty lists", strings.Repeat("---\napiVersion: v1\nkind: List\nitems: []\n", 300_000), "more than 262144 objects"},
		{"aliases in many documents", strings.Repeat(laughs()+"---\n", 50), "aliases (*name) stand for too much"},
	} {
		for _, path := range []string{"x.yaml", "x.json"} {
			t.Run(test.name+" in "+path, func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				docs := Decode(path, []byte(test.text), Options{})
				runtime.ReadMemStats(&after)
				assert.LessOrEqual(t, len(docs), maxObjects+1)
				assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<30))
				var builder strings.Builder
				for _, d := range docs {
					builder.WriteString(d.Errors.Error())
				}
				assert.NotEmpty(t, builder.String())
				if path == "x.yaml" {
					assert.Contains(t, builder.String(), test.bad)
				}
			})
		}
	}
}

// TestBudget_RefusesOnlyLargeDocuments shows that a document that asks for too much does not take along those beside it, and that
// which ones are refused does not depend on chance.
func TestBudget_RefusesOnlyLargeDocuments(t *testing.T) {
	greedy := func(name string) string { return strings.Replace(laughs(), "name: a", "name: "+name, 1) }
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, service, fmt.Sprintf("s%d", i))
		text.WriteString("---\n")
		if i%50 == 0 {
			text.WriteString(greedy(fmt.Sprintf("greedy%d", i)) + "---\n")
		}
	}
	outcome := func() (out []string) {
		for _, d := range Decode("x.yaml", []byte(text.String()), Options{}) {
			out = append(out, fmt.Sprintf("%s %t", d.Key, d.Resource != nil))
		}
		return out
	}
	first := outcome()
	require.Len(t, first, 204)
	for i := range 200 {
		assert.Contains(t, first, fmt.Sprintf("ServiceEntry default/s%d true", i))
	}
	assert.Contains(t, first, "EnvoyFilter default/greedy0 false")
	for range 5 {
		require.Equal(t, first, outcome())
	}
}

// Each merge key costs as much as the mappings that it merges, so their nesting is bounded, well above usual files.
func TestMergeKeysWithinMergeKeys(t *testing.T) {
	nested := func(n int) string {
		labels, keys := "{z: z}", strings.Builder{}
		for i := range 100 {
			fmt.Fprintf(&keys, ", k%d: v", i)
		}
		for range n {
			labels = "{<<: " + labels + keys.String() + "}"
		}
		return "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: a, labels: " + labels + "}\n"
	}
	docs := Decode("x.yaml", []byte(nested(maxMerges)), Options{})
	require.Empty(t, docs[0].Errors)
	require.Len(t, docs[0].Resource.Meta().Labels, 101)
	for _, n := range []int{maxMerges + 1, 190} {
		docs = Decode("x.yaml", []byte(nested(n)), Options{})
		require.Len(t, docs[0].Errors, 1)
		require.ErrorContains(t, docs[0].Errors, "merge keys (<<) within merge keys, more than 32 deep")
	}
}

func TestBudgetOfBytes(t *testing.T) {
	text := fmt.Sprintf(service, "one")
	docs := Decode("x.yaml", []byte(text), Options{MaxBytes: len(text) - 1})
	require.Len(t, docs, 1)
	assert.ErrorContains(t, docs[0].Errors, fmt.Sprintf("x.yaml:1: larger than %d bytes", len(text)-1))
	assert.Zero(t, docs[0].Key)
	require.NotNil(t, Decode("x.yaml", []byte(text), Options{MaxBytes: len(text)})[0].Resource)
}
