package mcp

import (
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/internal/names"
	"tributary/internal/testutil"
	"tributary/server/access"
)

// FuzzNode filters by arbitrary node metadata: the filter is sorted, and no larger than the metadata.
func FuzzNode(f *testing.F) {
	for _, namespaces := range []any{"a, b,,a", []any{"a", 5.0, "b,c", nil}} {
		metadata, err := structpb.NewStruct(map[string]any{metadataRevision: "r", metadataNamespaces: namespaces})
		require.NoError(f, err)
		b, err := proto.Marshal(&corev3.Node{Id: "a", Metadata: metadata})
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var node corev3.Node
		if proto.Unmarshal(b, &node) != nil {
			return
		}
		testutil.Cost(t, len(b), 200, func() {
			parsed, err := filterOf(&node, nil)
			if err != nil {
				require.Equal(t, codes.InvalidArgument, status.Code(err))
				return
			}
			require.True(t, slices.IsSorted(parsed.namespaces))
			require.NotContains(t, parsed.namespaces, "")
			require.LessOrEqual(t, len(parsed.namespaceKey()), 2*len(b)+2)
		})
		require.LessOrEqual(t, len(names.SplitInstances(node.GetId())), names.MaxInstances)
	})
}

// FuzzFilterKey has two filters of any revision, namespaces and rights: their keys are equal if they are, and only then.
func FuzzFilterKey(f *testing.F) {
	f.Add("", "priv pub", "", "", "priv\npub", "")
	f.Add("a/b", "", "", "a", "b", "")
	f.Add("", "", "c", "", "c", "")
	f.Fuzz(func(t *testing.T, rev1, ns1, allowed1, rev2, ns2, allowed2 string) {
		filterFrom := func(rev, ns, allowed string) filter {
			result := filter{revision: rev}
			if ns != "" {
				result.namespaces = strings.Split(ns, "\n")
			}
			if allowed != "" {
				result.rights = access.NewRights(access.Permissions{Namespaces: strings.Split(allowed, "\n")})
			}
			return result
		}
		first, two := filterFrom(rev1, ns1, allowed1), filterFrom(rev2, ns2, allowed2)
		equal := first.revision == two.revision && slices.Equal(first.namespaces, two.namespaces) && first.rights.Key() == two.rights.Key()
		if first.key() == two.key() {
			require.True(t, equal, "%+v %+v", first, two)
		} else {
			require.False(t, equal && rev1 == rev2 && ns1 == ns2 && allowed1 == allowed2, "%+v", first)
		}
	})
}
