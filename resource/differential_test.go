package resource

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"istio.io/istio/pkg/util/protomarshal"
	sigsyaml "sigs.k8s.io/yaml"
)

// TestSamplesAsKubectl decodes every object in Istio's samples and test data as kubectl and istiod do, through JSON, and
// as we do, and compares. It needs Istio's source in the module cache, where `go test` has put it.
func TestSamplesAsKubectl(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/istio").Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		t.Skip("Istio's source is not in the module cache")
	}
	compared := 0
	for _, dir := range []string{"samples", "tests/testdata", "pkg/config/validation/testdata", "pilot/pkg/config/kube/crd/testdata"} {
		_ = filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return fs.SkipDir // a folder that this version of Istio does not have
			}
			if entry.IsDir() || filepath.Ext(path) != ".yaml" {
				return nil
			}
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, c := range split(data) {
				compared += compareWithKubectl(t, path, c)
			}
			return nil
		})
	}
	require.Greater(t, compared, 200)
	t.Logf("%d objects", compared)
}

// compareWithKubectl returns the number of objects that were compared.
func compareWithKubectl(t *testing.T, path string, c chunk) int {
	t.Helper()
	var object struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             json.RawMessage
	}
	if err := sigsyaml.Unmarshal(c.text, &object); err != nil {
		return 0
	}
	schema, ok := SchemaByAPIVersion(object.APIVersion, object.Kind)
	if !ok || len(object.Spec) == 0 || checkName(object.Metadata.Name) != nil {
		return 0
	}
	want := schema.NewSpec()
	wantErr := protomarshal.ApplyJSONStrict(string(object.Spec), want)

	docs := Decode(path, c.text, Options{})
	require.Len(t, docs, 1)
	if wantErr != nil {
		if docs[0].Resource != nil {
			t.Errorf("%s:%d: decoded, but Istio says %v", path, c.line, wantErr)
		}
		return 1
	}
	for _, e := range docs[0].Errors {
		// Tributary refuses two things that kubectl accepts: fields beside the spec, and null within lists.
		if strings.HasPrefix(e.Err.Error(), "unknown field") || strings.Contains(e.Error(), "got null") {
			continue
		}
		t.Errorf("refused, but Istio takes it: %v", e)
	}
	if docs[0].Resource == nil {
		return 1
	}
	got, err := docs[0].Resource.Spec()
	require.NoError(t, err)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("%s:%d: (-Istio +tributary):\n%s", path, c.line, diff)
	}
	return 1
}

// TestRandomSpecs fills specs of every kind at random, writes them as protojson does, in JSON and turned into YAML, and as
// we do, and expects the same spec back.
func TestRandomSpecs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, schema := range schemas {
		t.Run(string(schema.Kind), func(t *testing.T) {
			for i := range 40 {
				spec := schema.NewSpec()
				fill(random, spec.ProtoReflect(), 0)
				resource, err := New(Meta{Key: Key{schema.Kind, "ns", "random"}}, spec)
				if schema.Bare {
					resource, err = New(Meta{Key: Key{schema.Kind, "", "random"}}, spec)
				}
				require.NoError(t, err)

				specJSON, err := protojson.MarshalOptions{UseProtoNames: i%2 == 1, UseEnumNumbers: i%3 == 1}.Marshal(spec)
				require.NoError(t, err)
				document := fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": "random", "namespace": %q}, "spec": %s}`,
					schema.APIVersion(), schema.Kind, resource.Key().Namespace, specJSON)
				documentYAML, err := sigsyaml.JSONToYAML([]byte(document))
				if err != nil {
					documentYAML = []byte(document) // it reads JSON as YAML, which fails for some
				}
				ownJSON, err := MarshalJSON(resource)
				require.NoError(t, err)
				ownYAML, err := MarshalYAML(resource)
				require.NoError(t, err)

				for name, text := range map[string][]byte{
					"protojson.json": []byte(document), "protojson.yaml": documentYAML, "own.json": ownJSON, "own.yaml": ownYAML,
				} {
					docs := Decode(name, text, Options{})
					require.Len(t, docs, 1, name)
					require.Empty(t, docs[0].Errors, "%s:\n%s", name, text)
					if !Equal(resource, docs[0].Resource) {
						got, _ := docs[0].Resource.Spec()
						t.Fatalf("%s: (-want +got):\n%s\n%s", name, cmp.Diff(spec, got, protocmp.Transform()), text)
					}
				}
				// And kubectl reads ours as protojson does.
				var object struct{ Spec json.RawMessage }
				require.NoError(t, sigsyaml.Unmarshal(ownYAML, &object))
				back := schema.NewSpec()
				require.NoError(t, protojson.Unmarshal(object.Spec, back), "%s", ownYAML)
				if diff := cmp.Diff(spec, back, protocmp.Transform()); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

var vocabulary = []string{
	"a", "yes", "no", "on", "y", "true", "null", "~", "", "1", "0x1f", "010", "1e3", "-0", "1.10", "12:30", "1:2:3.4", ".5", "2024-01-01",
	"2024-01-01T00:00:00Z", "a: b", "- x", "#c", " lead", "trail ", "two\nlines\n", "\ttab", "'", `"`, `\`, "ü€😀", "{", "[", "*", "&a",
	"!t", "|", ">", "%", "@", "`", "?", ":", "=", "0b1", "1_000", "+1", ".inf", "NaN", "a\r\nb", "\u2028",
	"a  b\n\n c\n", "---", "...", "long " + strings.Repeat("word ", 40),
}

// fill sets a random selection of the fields of m.
func fill(random *rand.Rand, message protoreflect.Message, depth int) {
	switch v := message.Interface().(type) {
	case *durationpb.Duration:
		v.Seconds, v.Nanos = random.Int64N(315_576_000_000), random.Int32N(1e9)
		if random.IntN(2) == 0 {
			v.Seconds, v.Nanos = random.Int64N(100), 0
		}
		return
	case *structpb.Struct:
		v.Fields = map[string]*structpb.Value{}
		for range random.IntN(4) {
			v.Fields[vocabulary[random.IntN(len(vocabulary))]] = randomValue(random, depth)
		}
		return
	case *structpb.Value:
		v.Kind = randomValue(random, depth).Kind
		return
	}
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		chance := 0.5
		if field.Message() != nil {
			chance = 1 / float64(depth+2)
		}
		if random.Float64() > chance || depth > 6 {
			continue
		}
		if oneof := field.ContainingOneof(); oneof != nil && message.WhichOneof(oneof) != nil {
			continue
		}
		switch {
		case field.IsList():
			list := message.Mutable(field).List()
			for range 1 + random.IntN(2) {
				if field.Message() != nil {
					fill(random, list.AppendMutable().Message(), depth+1)
				} else {
					list.Append(randomScalar(random, field))
				}
			}
		case field.IsMap():
			entries := message.Mutable(field).Map()
			for range 1 + random.IntN(2) {
				mapKey := randomScalar(random, field.MapKey()).MapKey()
				if field.MapValue().Message() != nil {
					fill(random, entries.Mutable(mapKey).Message(), depth+1)
				} else {
					entries.Set(mapKey, randomScalar(random, field.MapValue()))
				}
			}
		case field.Message() != nil:
			fill(random, message.Mutable(field).Message(), depth+1)
		default:
			message.Set(field, randomScalar(random, field))
		}
	}
}

func randomScalar(random *rand.Rand, field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(vocabulary[random.IntN(len(vocabulary))])
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(random.IntN(2) == 0)
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(random.IntN(values.Len())).Number())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(vocabulary[random.IntN(len(vocabulary))] + "\xff\xfe"))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(random.Uint32()))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(random.Uint32())
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(random.Uint64()))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(random.Uint64())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(random.NormFloat64() * 1e6)
	default:
		panic(fmt.Sprintf("Istio's API has come to have fields of kind %s", field.Kind()))
	}
}

func randomValue(random *rand.Rand, depth int) *structpb.Value {
	n := random.IntN(6)
	if depth > 5 {
		n %= 4
	}
	switch n {
	case 0:
		return structpb.NewNullValue()
	case 1:
		return structpb.NewBoolValue(random.IntN(2) == 0)
	case 2:
		numbers := []float64{0, 1, -1.5, 1e20, 1e-9, 1 << 53, -1e15, random.NormFloat64()}
		return structpb.NewNumberValue(numbers[random.IntN(len(numbers))])
	case 3:
		return structpb.NewStringValue(vocabulary[random.IntN(len(vocabulary))])
	case 4:
		listValue := &structpb.ListValue{}
		for range random.IntN(3) {
			listValue.Values = append(listValue.Values, randomValue(random, depth+1))
		}
		return structpb.NewListValue(listValue)
	default:
		s := &structpb.Struct{}
		fill(random, s.ProtoReflect(), depth+1)
		return structpb.NewStructValue(s)
	}
}

// TestWellKnownTypes shows that Istio's API has no types of google.protobuf that have a form of their own in JSON and
// that wellKnown does not know.
func TestWellKnownTypes(t *testing.T) {
	supported := map[protoreflect.Name]bool{
		"Duration": true, "Timestamp": true, "Struct": true, "Value": true, "ListValue": true, "BoolValue": true, "StringValue": true,
		"Int32Value": true, "UInt32Value": true, "Int64Value": true, "UInt64Value": true, "DoubleValue": true, "FloatValue": true,
		"BytesValue": true,
	}
	seen := map[protoreflect.FullName]bool{}
	var walk func(md protoreflect.MessageDescriptor)
	walk = func(md protoreflect.MessageDescriptor) {
		if seen[md.FullName()] {
			return
		}
		seen[md.FullName()] = true
		if md.ParentFile().Package() == "google.protobuf" && !md.IsMapEntry() && !supported[md.Name()] {
			t.Errorf("%s is not known", md.FullName())
		}
		for i := range md.Fields().Len() {
			if sub := md.Fields().Get(i).Message(); sub != nil {
				walk(sub)
			}
		}
	}
	for _, s := range schemas {
		walk(s.NewSpec().ProtoReflect().Descriptor())
	}
}

// FuzzSpecJSON compares with protojson, and where that refuses with Istio's own decoder, on specs in JSON.
func FuzzSpecJSON(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i, schema := range schemas {
		spec := schema.NewSpec()
		fill(rng, spec.ProtoReflect(), 0)
		text, err := protojson.Marshal(spec)
		require.NoError(f, err)
		f.Add(i, string(text))
	}
	f.Add(8, `{"hosts": null, "ports": [{"number": 1e1}], "resolution": 2, "location": "x"}`)
	f.Add(12, `{"http": [{"timeout": "1h", "retries": {"perTryTimeout": "+1.s"}}]}`)
	f.Fuzz(func(t *testing.T, i int, text string) {
		schema := schemas[uint(i)%uint(len(schemas))]
		if !json.Valid([]byte(text)) || text == "null" {
			return
		}
		want := schema.NewSpec()
		wantErr := protojson.Unmarshal([]byte(text), want)
		document := fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": "a"}, "spec": %s}`, schema.APIVersion(), schema.Kind, text)
		docs := Decode("x.json", []byte(document), Options{})
		require.Len(t, docs, 1)
		if docs[0].Resource == nil {
			if wantErr == nil && !strings.Contains(docs[0].Errors.Error(), "nested deeper") &&
				// protojson takes enum numbers that have no name, numbers too small or with too many digits, and invalid UTF-8 …
				!strings.Contains(docs[0].Errors.Error(), "want one of") && !strings.Contains(docs[0].Errors.Error(), "the number") &&
				!strings.Contains(docs[0].Errors.Error(), "duplicate key") && !strings.Contains(docs[0].Errors.Error(), "not valid UTF-8") {
				t.Errorf("refused, but protojson takes it: %v\n%s", docs[0].Errors, text)
			}
			return
		}
		if wantErr != nil {
			want = schema.NewSpec()
			if err := protomarshal.ApplyJSONStrict(text, want); err != nil {
				t.Fatalf("decoded, but protojson says %v, and Istio %v\n%s", wantErr, err, text)
			}
		}
		got, err := docs[0].Resource.Spec()
		require.NoError(t, err)
		if !proto.Equal(want, got) {
			t.Errorf("(-want +got):\n%s\n%s", cmp.Diff(want, got, protocmp.Transform()), text)
		}
	})
}
