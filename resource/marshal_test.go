package resource

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"
)

func TestMarshal(t *testing.T) {
	resource, err := New(Meta{
		Key:         Key{VirtualService, "shop", "reviews"},
		Labels:      map[string]string{"b": "2", "a": "1"},
		Annotations: map[string]string{"note": "<&>"},
		Created:     time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC),
		Origin:      Origin{Source: "rules", Place: "x.yaml:1"},
	}, &networking.VirtualService{
		Hosts: []string{"reviews"},
		Http: []*networking.HTTPRoute{{
			Timeout: &durationpb.Duration{Seconds: -1, Nanos: -500_000_000},
			Route:   []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "reviews"}, Weight: 100}},
		}},
	})
	require.NoError(t, err)

	text, err := MarshalYAML(resource)
	require.NoError(t, err)
	assert.Equal(t, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: reviews
  namespace: shop
  labels:
    a: "1"
    b: "2"
  annotations:
    note: <&>
  creationTimestamp: "2024-05-06T07:08:09Z"
spec:
  hosts:
    - reviews
  http:
    - route:
        - destination:
            host: reviews
          weight: 100
      timeout: -1.5s
`, string(text))

	text, err = MarshalJSON(resource)
	require.NoError(t, err)
	//nolint:testifylint // the order of fields is what a person reads
	assert.Equal(t, `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"reviews","namespace":"shop",`+
		`"labels":{"a":"1","b":"2"},"annotations":{"note":"<&>"},"creationTimestamp":"2024-05-06T07:08:09Z"},`+
		`"spec":{"hosts":["reviews"],"http":[{"route":[{"destination":{"host":"reviews"},"weight":100}],"timeout":"-1.5s"}]}}`, string(text))
}

// TestMarshalOddStrings covers strings with a special meaning in YAML, including those that kubectl's own writer gets
// wrong.
func TestMarshalOddStrings(t *testing.T) {
	odd := append([]string{
		"\x7f", "\u0085", "\ufeff", "a\u0085b", "a\x00b", "\x1b[0m", "\ue000\U0010ffff", "a\rb", "\r", "\n", "\n\n a",
		" \n", "<<",
	}, vocabulary...)
	for _, s := range odd {
		fields := map[string]*structpb.Value{s: structpb.NewStringValue(s)}
		r, err := New(Meta{Key: Key{EnvoyFilter, "ns", "odd"}, Annotations: map[string]string{"k": s}}, &networking.EnvoyFilter{
			ConfigPatches: []*networking.EnvoyFilter_EnvoyConfigObjectPatch{
				{Patch: &networking.EnvoyFilter_Patch{Value: &structpb.Struct{Fields: fields}}},
			},
		})
		require.NoError(t, err)
		for path, marshal := range map[string]func(*Resource) ([]byte, error){"x.yaml": MarshalYAML, "x.json": MarshalJSON} {
			text, err := marshal(r)
			require.NoError(t, err)
			docs := Decode(path, text, Options{})
			require.Len(t, docs, 1, "%q", text)
			require.Empty(t, docs[0].Errors, "%s", text)
			assert.True(t, Equal(r, docs[0].Resource), "%s", text)
		}
	}
}

func TestMarshalNumbers(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 1: "1", -1.5: "-1.5", 1e15: "1e+15", 123456789012345: "123456789012345", 1e300: "1e+300", 1e-7: "1e-07",
		math.Copysign(0, -1): "-0.0", math.Inf(1): "Infinity", math.Inf(-1): "-Infinity", 1 << 60: "1.152921504606847e+18",
	} {
		node := number(f, 64)
		assert.Equal(t, want, node.Value)
		if node.Tag != "!!str" {
			assert.True(t, json.Valid([]byte(node.Value)))
		}
		got, ok := floatOf(node)
		assert.True(t, ok)
		assert.Equal(t, math.Float64bits(f), math.Float64bits(got))
	}
	assert.Equal(t, "NaN", number(math.NaN(), 64).Value)
}

func TestMarshalUnknown(t *testing.T) {
	_, err := MarshalYAML(FromBody(Meta{Key: Key{"Other", "a", "b"}}, nil))
	require.ErrorContains(t, err, `unknown kind "Other"`)
	_, err = MarshalJSON(FromBody(Meta{Key: Key{Gateway, "a", "b"}}, []byte("\xff")))
	require.ErrorContains(t, err, "Gateway a/b: decode spec")
}
