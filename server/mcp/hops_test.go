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
	h := NewHops("self")
	catalog := New(memstore.New(resource.Schemas()...), Options{Hops: h})
	coll, _, err := catalog.Collection(t.Context(), nil, names.InstancesType)
	require.NoError(t, err)
	announced := func() []string {
		var packed anypb.Any
		require.NoError(t, proto.Unmarshal(coll.Get("instances").Any, &packed))
		var text wrapperspb.StringValue
		require.NoError(t, packed.UnmarshalTo(&text))
		require.Equal(t, h.list(), text.GetValue())
		return names.SplitInstances(text.GetValue())
	}
	require.Equal(t, []string{h.Self()}, announced())

	a, b := names.Instance("a"), names.Instance("b")
	h.Reads("one", []string{a, b})
	h.Reads("two", []string{b})
	require.Equal(t, h.Self(), announced()[0])
	require.ElementsMatch(t, []string{h.Self(), a, b}, announced())
	h.Reads("one", nil)
	require.Equal(t, []string{h.Self(), b}, announced())
	h.Reads("two", nil)
	require.Equal(t, []string{h.Self()}, announced())
	require.Empty(t, h.above)
}
