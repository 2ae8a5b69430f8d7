package resource

import (
	"fmt"
	"os"
	"testing"
)

// typical is a ServiceEntry of the size that registries make: two ports, four endpoints with labels.
func typical(tb testing.TB) []byte {
	tb.Helper()
	data, err := os.ReadFile("testdata/bench/serviceentry.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func typicalResource(tb testing.TB) *Resource {
	tb.Helper()
	docs := Decode("serviceentry.yaml", typical(tb), Options{})
	if len(docs) != 1 || docs[0].Resource == nil {
		tb.Fatalf("decoded %+v", docs)
	}
	return docs[0].Resource
}

func BenchmarkDecode(b *testing.B) {
	b.Run("yaml", func(b *testing.B) {
		data := typical(b)
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if docs := Decode("x.yaml", data, Options{}); docs[0].Resource == nil {
				b.Fatal(docs[0].Errors)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		data, err := MarshalJSON(typicalResource(b))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if docs := Decode("x.json", data, Options{}); docs[0].Resource == nil {
				b.Fatal(docs[0].Errors)
			}
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	r := typicalResource(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Validate(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeMCP(b *testing.B) {
	r := typicalResource(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeMCP(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMarshalYAML(b *testing.B) {
	r := typicalResource(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := MarshalYAML(r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeIncremental decodes a file of 100 objects after a change of one, with and without the earlier result.
func BenchmarkDecodeIncremental(b *testing.B) {
	text := func(change int) []byte {
		var file []byte
		for i := range 100 {
			file = append(file, fmt.Sprintf("---\n# %d\n", i)...)
			if i == 50 {
				file = append(file, fmt.Sprintf("# change %d\n", change)...)
			}
			file = append(file, typical(b)...)
		}
		return file
	}
	opts := Options{Validate: true}
	b.Run("unknown", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			Decode("x.yaml", text(i), opts)
		}
	})
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		_, earlier := DecodeIncremental("x.yaml", text(-1), opts, new(DecodeCache))
		for i := range b.N {
			_, earlier = DecodeIncremental("x.yaml", text(i), opts, earlier)
		}
	})
}
