package debug

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxMatchers limits the node matchers of a request.
const maxMatchers = 100

// nodeMatcher returns a function that reports whether a node matches one of the matchers by its ID. Without matchers,
// each node matches. A matcher by other properties is an error: to ignore it would select other nodes.
func nodeMatcher(matchers []*matcherv3.NodeMatcher) (func(*corev3.Node) bool, error) {
	if len(matchers) > maxMatchers {
		return nil, status.Errorf(codes.InvalidArgument,
			"node_matchers: there are more than %d (maxMatchers): ask for fewer, or for all clients", maxMatchers)
	}
	alternatives := []func(nodeID string) bool{}
	for _, matcher := range matchers {
		matches := textMatcher(matcher.GetNodeId())
		if matches == nil || len(matcher.GetNodeMetadatas()) > 0 {
			return nil, status.Error(codes.InvalidArgument,
				"node_matchers: nodes are selected by node_id, with exact, prefix, suffix or contains")
		}
		alternatives = append(alternatives, matches)
	}
	return func(node *corev3.Node) bool {
		return len(alternatives) == 0 ||
			slices.ContainsFunc(alternatives, func(matches func(string) bool) bool { return matches(node.GetId()) })
	}, nil
}

// textMatcher returns the function of a matcher by exact text, prefix, suffix or contained text, and nil for others.
func textMatcher(matcher *matcherv3.StringMatcher) func(string) bool {
	normalize := func(text string) string { return text }
	if matcher.GetIgnoreCase() {
		normalize = strings.ToLower
	}
	compare := func(matches func(text, part string) bool, part string) func(string) bool {
		part = normalize(part)
		return func(text string) bool { return matches(normalize(text), part) }
	}
	switch match := matcher.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return compare(func(text, exact string) bool { return text == exact }, match.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return compare(strings.HasPrefix, match.Prefix)
	case *matcherv3.StringMatcher_Suffix:
		return compare(strings.HasSuffix, match.Suffix)
	case *matcherv3.StringMatcher_Contains:
		return compare(strings.Contains, match.Contains)
	}
	return nil
}
