package index

import (
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
)

// The conditions of a delegate must lie within those of the one that delegates.
func TestNarrowed(t *testing.T) {
	exact := func(s string) *networking.StringMatch {
		return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: s}}
	}
	prefix := func(p string) *networking.HTTPMatchRequest {
		return &networking.HTTPMatchRequest{Uri: &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: p}}}
	}
	root := prefix("/a")
	root.Headers, root.Name = map[string]*networking.StringMatch{"x": exact("1")}, "root"
	merged := narrowedMatch(root, &networking.HTTPMatchRequest{
		Name: "of", Uri: exact("/a/b"),
		Headers: map[string]*networking.StringMatch{"y": exact("2")}, Port: 80,
	})
	require.Equal(t, "/a/b", merged.GetUri().GetExact())
	require.Len(t, merged.GetHeaders(), 2)
	require.Equal(t, "root-of", merged.GetName())
	require.Equal(t, uint32(80), merged.GetPort())
	require.Nil(t, narrowedMatch(root, &networking.HTTPMatchRequest{Uri: exact("/b")}))
	require.Nil(t, narrowedMatch(root, &networking.HTTPMatchRequest{Headers: map[string]*networking.StringMatch{"x": exact("2")}}))
	require.Nil(t, narrowedMatch(root, &networking.HTTPMatchRequest{IgnoreUriCase: true}))
	require.NotNil(t, narrowedMatch(root, prefix("/a/c")))
	require.Len(t, root.GetHeaders(), 1, "it was not changed")
}
