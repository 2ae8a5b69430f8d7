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
		testutil.Cost(t, len(b), 200, func() {
			of, err := filterOf(&node, nil)
			if err != nil {
				require.Equal(t, codes.InvalidArgument, status.Code(err))
				return
			}
			require.True(t, slices.IsSorted(of.namespaces))
			require.NotContains(t, of.namespaces, "")
			require.LessOrEqual(t, len(of.namespaceKey()), 2*len(b)+2)
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
		of := func(rev, ns, allowed string) filter {
			one := filter{revision: rev}
			if ns != "" {
				one.namespaces = strings.Split(ns, "\n")
			}
			if allowed != "" {
				one.rights = access.NewRights(access.Permissions{Namespaces: strings.Split(allowed, "\n")})
			}
			return one
		}
		one, two := of(rev1, ns1, allowed1), of(rev2, ns2, allowed2)
		equal := one.revision == two.revision && slices.Equal(one.namespaces, two.namespaces) && one.rights.Key() == two.rights.Key()
		if one.key() == two.key() {
			require.True(t, equal, "%+v %+v", one, two)
		} else {
			require.False(t, equal && rev1 == rev2 && ns1 == ns2 && allowed1 == allowed2, "%+v", one)
		}
	})
}
