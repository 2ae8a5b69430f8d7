package resource

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// FuzzDecode expects no panic of any text. Each decoded object must be encodable, printable, and equal after another
// decoding. The text is decoded as YAML and as JSON, and once more with a line above it, which moves the earlier parts.
func FuzzDecode(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add(text)
	}
	f.Add([]byte(`{"apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": {"name": "a"}}`))
	f.Add([]byte("apiVersion: core/v1alpha1\nkind: MeshConfig\nspec: &a {<<: [*a, {b: *a}]}"))
	f.Add([]byte("a: &a [b, b, b]\nc: &c [*a, *a, *a]\nd: &d [*c, *c, *c]\ne: [*d, *d, *d]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > maxFuzzed {
			return
		}
		for _, path := range []string{"x.yaml", "x.json"} {
			testutil.Cost(t, len(data)+maxAliased, 32, func() { Decode(path, data, Options{Validate: true}) })
		}
		for _, path := range []string{"x.yaml", "x.json"} {
			for _, severity := range []Severity{SeverityError, SeverityWarning} {
				for _, document := range Decode(path, data, Options{
					UnknownFields: severity, Validate: severity == SeverityError,
					DomainSuffix: "mesh.local",
				}) {
					checkDocument(t, document)
				}
			}
			_, earlier := DecodeIncremental(path, data, Options{Validate: true}, new(DecodeCache))
			moved := append([]byte("# a line\n---\n"), data...)
			movedDocuments, _ := DecodeIncremental(path, moved, Options{Validate: true}, earlier)
			requireSame(t, Decode(path, moved, Options{Validate: true}), movedDocuments)
		}
	})
}

func checkDocument(t *testing.T, d Document) {
	t.Helper()
	if d.Resource != nil && (len(d.Errors) > 0 || d.Foreign) {
		t.Fatalf("both a resource and none: %+v", d)
	}
	if d.Resource == nil && len(d.Errors)+len(d.Warnings) == 0 && !d.Foreign {
		t.Fatalf("neither a resource nor a reason: %+v", d)
	}
	if d.Line < 1 {
		t.Fatalf("line %d", d.Line)
	}
	_ = d.Errors.Error()
	_ = d.Warnings.Error()
	if d.Resource == nil {
		return
	}
	if d.Key != d.Resource.Key() {
		t.Fatalf("key %q of %q", d.Key, d.Resource.Key())
	}
	_, _ = Validate(d.Resource)
	_, _ = Validate(FromBody(d.Resource.Meta(), d.Resource.Body()))
	_, err := EncodeMCP(d.Resource)
	require.NoError(t, err)
	for path, marshal := range map[string]func(*Resource) ([]byte, error){"x.yaml": MarshalYAML, "x.json": MarshalJSON} {
		text, err := marshal(d.Resource)
		require.NoError(t, err)
		decodedAgain := Decode(path, text, Options{})
		require.Len(t, decodedAgain, 1, "%s", text)
		require.Empty(t, decodedAgain[0].Errors, "%s", text)
		if !Equal(d.Resource, decodedAgain[0].Resource) || !d.Resource.Created().Equal(decodedAgain[0].Resource.Created()) {
			t.Fatalf("decoded again, %s differs:\n%s", path, text)
		}
	}
}
