package resource

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestRanks_PreserveTierOrder has objects pass through tiers. A reader of the last tier sees the order of its sources,
// and within each the order of the tier before.
func TestRanks_PreserveTierOrder(t *testing.T) {
	object := FromBody(Meta{Key: Key{Kind: Gateway, Namespace: "n", Name: "x"}}, nil)
	through := func(resource *Resource, places ...int) *Resource {
		for _, place := range places {
			resource = resource.Ranked(place)
			b, err := EncodeMCP(resource)
			require.NoError(t, err)
			var a anypb.Any
			require.NoError(t, proto.Unmarshal(b, &a))
			read, err := DecodeMCP("networking.istio.io/v1/Gateway", &a)
			require.NoError(t, err)
			require.Equal(t, resource.Version(), read.Version(), "the reader computes the same version")
			require.Equal(t, resource.Created(), read.Created())
			resource = read
		}
		return resource
	}
	last := -1
	for _, places := range [][]int{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {5, 1, 0}, {0, 0, 1}, {2, 0, 1}, {0, 3, 1}} {
		read := through(object, places...)
		require.Greater(t, read.Rank(), last, "%v", places)
		require.Zero(t, read.Own())
		require.True(t, Equal(object, read.Unranked()))
		last = read.Rank()
	}
	require.Same(t, object, object.Ranked(0), "an object without a rank is not copied")
	most := through(object, 1<<20, 1<<20, 1<<20, 1<<20)
	require.Less(t, most.Created().Year(), 2005)
	require.Zero(t, most.Own())

	dated := object.WithCreated(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	require.NotEqual(t, object.Version(), dated.Version(), "a time of its own is content")
	require.Same(t, dated, dated.Ranked(3))
	require.Equal(t, dated.Created(), through(dated, 3, 4).Created())
	require.Zero(t, dated.Rank())
	require.Equal(t, FromBody(dated.Meta(), nil).Version(), dated.Version())
	require.Equal(t, object.Version(), object.WithSeen(dated.Created()).Version(), "when it was first seen is not")

	mesh := FromBody(Meta{Key: Key{Kind: MeshConfig, Name: "mesh"}}, nil)
	require.Same(t, mesh, mesh.Ranked(3), "there is no place for it on the wire")
}

// TestDocumentsHaveNoRanks: a creation time in the form of a rank is no rank, so that an object is the same after it is
// written and read again.
func TestDocumentsHaveNoRanks(t *testing.T) {
	read := func(text string) *Resource {
		ds := Decode("x.yaml", []byte(text), Options{})
		require.Len(t, ds, 1)
		require.Empty(t, ds[0].Errors)
		return ds[0].Resource
	}
	const text = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: x, namespace: shop, creationTimestamp: %}\n"
	for _, year := range []string{"1960", "1970", "1999", "2003"} {
		require.Zero(t, read(strings.Replace(text, "%", year+"-05-06T07:08:09Z", 1)).Created(), year)
	}
	dated := read(strings.Replace(text, "%", "2005-05-06T07:08:09Z", 1))
	require.Equal(t, 2005, dated.Created().Year())
	for _, r := range []*Resource{dated, dated.WithCreated(time.Time{}).Ranked(7)} {
		written, err := MarshalYAML(r)
		require.NoError(t, err)
		require.True(t, Equal(r.Unranked(), read(string(written))))
	}
}
