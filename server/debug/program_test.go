package debug

import (
	"strings"
	"testing"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/testutil"
)

// asks is a question about the nodes whose ids match one of n regular expressions.
func asks(n int, regex string) (all []*matcherv3.NodeMatcher) {
	for range n {
		all = append(all, &matcherv3.NodeMatcher{NodeId: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}},
		}})
	}
	return all
}

// A short regular expression can stand for a large program, and a question can have many of them.
func TestAQuestionHasAsManyMatchersAndAsLargeOnesAsArePaidFor(t *testing.T) {
	for _, tt := range []struct {
		n     int
		regex string
		want  string
	}{
		{1, "(?:" + strings.Repeat("a", 900) + "){1000}", "maxProgram"},
		{1, "((a{10}){10}){10}" + strings.Repeat("b{500}", 40), "maxProgram"},
		{maxMatchers, "(?:[a-z]{100}){9}", "maxProgram"},
		{maxMatchers + 1, "a", "maxMatchers"},
		{maxMatchers, "(?i)router~.*[.](shop|web)", ""},
		{1, strings.Repeat("a", maxPattern+1), "the limit is 1024"},
	} {
		testutil.Cost(t, tt.n*len(tt.regex), 1000, func() {
			_, err := nodeMatcher(asks(tt.n, tt.regex))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, codes.InvalidArgument, status.Code(err), err)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
