package model

import (
	"maps"
	"strconv"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/internal/testutil"
)

// FuzzNode makes profiles of arbitrary node metadata: each has a namespace, and is no larger than the metadata.
func FuzzNode(f *testing.F) {
	for id, fields := range map[string]map[string]any{
		"sidecar~10.0.0.1~a.shop~shop.svc.cluster.local": {
			MetadataLabels:       map[string]any{"app": "a", localityLabel: "r.z.s"},
			MetadataInterception: "TPROXY", MetadataIstio: "1.27",
		},
		"router~10.0.0.1~a~b": {MetadataCredentials: "a/", MetadataNamespace: "b"},
		"x":                   {metadataGenerator: "grpc", MetadataProgram: "1.2.3", MetadataLabels: 5},
	} {
		metadata, err := structpb.NewStruct(fields)
		require.NoError(f, err)
		b, err := proto.Marshal(&corev3.Node{Id: id, Metadata: metadata, Locality: &corev3.Locality{Region: "r"}})
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var node corev3.Node
		if proto.Unmarshal(b, &node) != nil {
			return
		}
		testutil.Cost(t, len(b), 200, func() {
			profile := ProfileOf(&node)
			require.NotEmpty(t, profile.Namespace)
			require.LessOrEqual(t, len(profile.LabelMap()), 1+len(b))
			require.LessOrEqual(t, profile.size(), 10_000+20*len(b))
			_ = profile.String()
		})
	})
}

// A node may have a quarter of a mebibyte of labels: reading them costs as much as they are, and not the square of it.
func TestManyLabels_CostTheirSize(t *testing.T) {
	labels, size := map[string]any{}, 0
	for i := range 20_000 {
		name := "label-" + strconv.Itoa(i)
		labels[name], size = "v", size+len(name)+1
	}
	metadata, err := structpb.NewStruct(map[string]any{MetadataLabels: labels})
	require.NoError(t, err)
	testutil.Cost(t, size, 100, func() { ProfileOf(&corev3.Node{Metadata: metadata}) })
}

// FuzzProfileLabels has clients with any labels: their profiles are equal if these are, and only then.
func FuzzProfileLabels(f *testing.F) {
	f.Add("a", "1\nb=2", "a", "1", "b", "2")
	f.Add("a=b", "c", "a", "b=c", "", "")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, name3, value3 string) {
		single, two := map[string]string{name1: value1}, map[string]string{name2: value2, name3: value3}
		require.Equal(t, maps.Equal(single, two), LabelText(single) == LabelText(two))
		p := Profile{Labels: LabelText(two)}
		require.Equal(t, two, p.LabelMap())
	})
}
