package debug

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/internal/testutil"
)

// FuzzMatchers has any question about clients, and any client that it is about: it is refused, or it can be answered.
func FuzzMatchers(f *testing.F) {
	contains := func(text string) *matcherv3.StringMatcher {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: text}, IgnoreCase: true}
	}
	metadata, err := structpb.NewStruct(map[string]any{"LABELS": map[string]any{"app": "a"}, "n": true})
	require.NoError(f, err)
	node, err := proto.Marshal(&corev3.Node{Id: "a", Metadata: metadata})
	require.NoError(f, err)
	for _, m := range []*matcherv3.NodeMatcher{
		{NodeId: contains("a")},
		{NodeId: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "(a{1,9}){1,9}"}},
		}},
	} {
		b, err := proto.Marshal(&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{m}})
		require.NoError(f, err)
		f.Add(b, node)
	}
	f.Fuzz(func(t *testing.T, question, encodedNode []byte) {
		var q statusv3.ClientStatusRequest
		var n corev3.Node
		if proto.Unmarshal(question, &q) != nil || proto.Unmarshal(encodedNode, &n) != nil {
			return
		}
		testutil.Cost(t, len(question)*(1+len(encodedNode)), 2000, func() {
			if about, err := nodeMatcher(q.GetNodeMatchers()); err == nil {
				about(&n)
				about(nil)
			}
		})
	})
}
