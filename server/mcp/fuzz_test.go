package mcp

import (
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/internal/costtest"
	"tributary/internal/hops"
)

// FuzzNode has a client say anything of itself: what it is filtered by is in order, and no larger than what it said.
func FuzzNode(f *testing.F) {
	for _, namespaces := range []any{"a, b,,a", []any{"a", 5.0, "b,c", nil}} {
		of, err := structpb.NewStruct(map[string]any{metadataRevision: "r", metadataNamespaces: namespaces})
		require.NoError(f, err)
		b, err := proto.Marshal(&corev3.Node{Id: "a", Metadata: of})
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var node corev3.Node
		if proto.Unmarshal(b, &node) != nil {
			return
		}
		costtest.Run(t, len(b), 200, func() {
			of := filterOf(&node, nil)
			require.True(t, slices.IsSorted(of.namespaces))
			require.NotContains(t, of.namespaces, "")
			require.LessOrEqual(t, len(of.own()), len(b)+2)
		})
		require.LessOrEqual(t, len(hops.Parse(node.GetId())), hops.Max)
	})
}
