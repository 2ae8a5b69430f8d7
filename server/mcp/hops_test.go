package mcp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/internal/names"
	"tributary/memstore"
	"tributary/resource"
)

func TestHops_JoinAllSources(t *testing.T) {
	hops := NewHops("self")
	catalog := New(memstore.New(resource.Schemas()...), Options{Hops: hops})
	coll, _, err := catalog.Collection(t.Context(), nil, names.InstancesType)
	require.NoError(t, err)
	announced := func() []string {
		var packed anypb.Any
		require.NoError(t, proto.Unmarshal(coll.Get("instances").Any, &packed))
		var text wrapperspb.StringValue
		require.NoError(t, packed.UnmarshalTo(&text))
		require.Equal(t, hops.list(), text.GetValue())
		return names.SplitInstances(text.GetValue())
	}
	require.Equal(t, []string{hops.Self()}, announced())

	a, b := names.Instance("a"), names.Instance("b")
	hops.Reads("one", []string{a, b})
	hops.Reads("two", []string{b})
	require.Equal(t, hops.Self(), announced()[0])
	require.ElementsMatch(t, []string{hops.Self(), a, b}, announced())
	hops.Reads("one", nil)
	require.Equal(t, []string{hops.Self(), b}, announced())
	hops.Reads("two", nil)
	require.Equal(t, []string{hops.Self()}, announced())
	require.Empty(t, hops.above)
}
