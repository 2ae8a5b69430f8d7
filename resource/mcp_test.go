package resource

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcp "istio.io/api/mcp/v1alpha1"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"
)

// reference encodes the resource with the messages themselves.
func reference(t require.TestingT, resource *Resource) []byte {
	schema, _ := SchemaOf(resource.Key().Kind)
	body := &anypb.Any{TypeUrl: schema.BodyTypeURL(), Value: resource.Body()}
	a := body
	if !schema.Bare {
		created := &timestamppb.Timestamp{}
		if !resource.Created().IsZero() {
			created = timestamppb.New(resource.Created())
		}
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(&mcp.Resource{
			Metadata: &mcp.Metadata{
				Name: resource.Key().FullName(), Version: resource.Version(), CreateTime: created,
				Labels: resource.Labels(), Annotations: resource.Annotations(),
			},
			Body: body,
		})
		require.NoError(t, err)
		a = &anypb.Any{TypeUrl: MCPTypeURL, Value: value}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	require.NoError(t, err)
	return b
}

func TestEncodeMCP(t *testing.T) {
	texts := rapid.MapOf(rapid.StringMatching(`[a-z./]{0,20}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		schema := rapid.SampledFrom(schemas).Draw(t, "schema")
		meta := Meta{
			Key:         Key{Kind: schema.Kind, Namespace: "ns", Name: rapid.StringMatching(`[a-z]{1,200}`).Draw(t, "name")},
			Labels:      texts.Draw(t, "labels"),
			Annotations: texts.Draw(t, "annotations"),
		}
		if schema.Bare {
			meta = Meta{Key: Key{Kind: schema.Kind, Name: meshConfigName}}
		}
		if rapid.Bool().Draw(t, "dated") {
			meta.Created = time.Unix(rapid.Int64Range(-1<<34, 1<<34).Draw(t, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanos")).UTC()
			if meta.Created.Equal(time.Unix(0, 0)) || schema.Bare {
				meta.Created = time.Time{}
			}
		}
		resource := FromBody(meta, rapid.SliceOf(rapid.Byte()).Draw(t, "body"))

		got, err := EncodeMCP(resource)
		require.NoError(t, err)
		require.Equal(t, reference(t, resource), got)
		require.Equal(t, len(got), cap(got), "allocated as needed")

		var a anypb.Any
		require.NoError(t, proto.Unmarshal(got, &a))
		back, err := DecodeMCP(schema.TypeURL(), &a)
		require.NoError(t, err)
		require.True(t, Equal(resource, back))
		require.True(t, resource.Created().Equal(back.Created()))
	})
}

func TestEncodeMCPOnce(t *testing.T) {
	r := typicalResource(t)
	assert.InDelta(t, 1, testing.AllocsPerRun(100, func() { _, _ = EncodeMCP(r) }), 0.5)
	_, err := EncodeMCP(FromBody(Meta{Key: Key{Kind: "Other", Name: "x"}}, nil))
	require.ErrorContains(t, err, "unknown kind")
}

// TestEncodeMCPForIstiod reads the bytes as istiod does.
func TestEncodeMCPForIstiod(t *testing.T) {
	spec := &networking.ServiceEntry{Hosts: []string{"a.example.com"}}
	resource, err := New(Meta{Key: Key{ServiceEntry, "shop", "a"}, Labels: map[string]string{"k": "v"}}, spec)
	require.NoError(t, err)
	b, err := EncodeMCP(resource)
	require.NoError(t, err)

	var a anypb.Any
	require.NoError(t, proto.Unmarshal(b, &a))
	var m mcp.Resource
	require.NoError(t, a.UnmarshalTo(&m))
	assert.Equal(t, "shop/a", m.GetMetadata().GetName())
	assert.Equal(t, resource.Version(), m.GetMetadata().GetVersion())
	require.NotNil(t, m.GetMetadata().GetCreateTime(), "istiod up to 1.13 refuses metadata without a creation time")
	assert.Equal(t, time.Unix(0, 0).UTC(), m.GetMetadata().GetCreateTime().AsTime())
	body, err := m.GetBody().UnmarshalNew()
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(spec, body, protocmp.Transform()))
}

func TestDecodeMCP(t *testing.T) {
	const se = "networking.istio.io/v1beta1/ServiceEntry"
	body := &anypb.Any{TypeUrl: "type.googleapis.com/istio.networking.v1beta1.ServiceEntry", Value: []byte("\x0a\x01a\xf8\x07\x01")}
	wrap := func(m *mcp.Resource) *anypb.Any {
		a, err := anypb.New(m)
		require.NoError(t, err)
		return a
	}
	named := func(name string, body *anypb.Any) *anypb.Any {
		return wrap(&mcp.Resource{Metadata: &mcp.Metadata{Name: name}, Body: body})
	}
	resource, err := DecodeMCP(se, named("ns/a", body))
	require.NoError(t, err)
	assert.Equal(t, Key{ServiceEntry, "ns", "a"}, resource.Key())
	assert.Equal(t, body.Value, resource.Body(), "as received, with the unknown field")
	assert.NotEmpty(t, resource.Version())
	assert.True(t, resource.Created().IsZero())

	yearOne := wrap(&mcp.Resource{Metadata: &mcp.Metadata{Name: "ns/a", CreateTime: timestamppb.New(time.Time{})}, Body: body})
	resource, err = DecodeMCP(se, yearOne)
	require.NoError(t, err)
	assert.True(t, resource.Created().IsZero(), "istiod sends this for files")

	meshAny, err := anypb.New(&mesh.MeshConfig{IngressClass: "x"})
	require.NoError(t, err)
	resource, err = DecodeMCP("core/v1alpha1/MeshConfig", meshAny)
	require.NoError(t, err)
	assert.Equal(t, Key{Kind: MeshConfig, Name: "istio"}, resource.Key())

	for _, test := range []struct {
		name, typeURL string
		any           *anypb.Any
		want          string
	}{
		{"type", "a/b/C", meshAny, `unknown type URL "a/b/C"`},
		{"nil", se, nil, `resource of type ""`},
		{"not wrapped", se, meshAny, "want type.googleapis.com/istio.mcp.v1alpha1.Resource"},
		{"wrapped", "core/v1alpha1/MeshConfig", named("ns/a", body), "want type.googleapis.com/istio.mesh.v1alpha1.MeshConfig"},
		{"garbage", se, &anypb.Any{TypeUrl: MCPTypeURL, Value: []byte("\xff\xff")}, "decode"},
		{"no name", se, named("", body), `the name is ""`},
		{"no namespace", se, named("a", body), `the name is "a"`},
		{"empty namespace", se, named("/a", body), `the name is "/a"`},
		{"slashes", se, named("a/b/c", body), `the name is "a/b/c"`},
		{"no body", se, named("ns/a", nil), "no body"},
		{"empty body", se, named("ns/a", &anypb.Any{}), "has no type"},
		{
			"other body", se, named("ns/a", &anypb.Any{TypeUrl: "x/istio.networking.v1.Gateway"}),
			"want type.googleapis.com/istio.networking.v1alpha3.ServiceEntry",
		},
		{
			"bad time", se, wrap(&mcp.Resource{Metadata: &mcp.Metadata{Name: "ns/a", CreateTime: &timestamppb.Timestamp{Nanos: -1}}, Body: body}),
			"create_time",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := DecodeMCP(test.typeURL, test.any)
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, strings.TrimSpace(err.Error()), "\n")
		})
	}
}

func FuzzDecodeMCP(f *testing.F) {
	for _, d := range Decode("serviceentry.yaml", typical(f), Options{}) {
		b, err := EncodeMCP(d.Resource)
		require.NoError(f, err)
		var a anypb.Any
		require.NoError(f, proto.Unmarshal(b, &a))
		f.Add(a.GetTypeUrl(), a.GetValue())
	}
	f.Add("type.googleapis.com/istio.mesh.v1alpha1.MeshConfig", []byte("\x0a\x01a"))
	f.Add(MCPTypeURL, []byte("\x0a\x05\x0a\x03a/b\x12\x00"))
	f.Fuzz(func(t *testing.T, url string, value []byte) {
		for _, schema := range schemas {
			resource, err := DecodeMCP(schema.TypeURL(), &anypb.Any{TypeUrl: url, Value: value})
			if err != nil {
				continue
			}
			b, err := EncodeMCP(resource)
			require.NoError(t, err)
			require.Equal(t, reference(t, resource), b)
			var a anypb.Any
			require.NoError(t, proto.Unmarshal(b, &a))
			back, err := DecodeMCP(schema.TypeURL(), &a)
			require.NoError(t, err)
			require.True(t, Equal(resource, back))
			_, _ = Validate(resource) // must not panic
		}
	})
}
