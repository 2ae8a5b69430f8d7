package debug

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/internal/pattern"
)

// Limits of the matchers of a request.
const (
	maxMatchers = 100     // of nodes and of their metadata
	maxPattern  = 1 << 10 // bytes of a regular expression
	maxProgram  = 10_000  // instructions of all regular expressions: a short expression can have a million
	maxText     = 1 << 10 // bytes of a text that a regular expression matches: clients choose the texts
)

// matcherParser counts the matchers of a request and the instructions of their regular expressions.
type matcherParser struct{ matchers, program int }

// nodeMatcher reports whether a node matches one of the matchers; without matchers, each node does. An unknown part of
// a matcher is an error, since it would select other nodes.
func nodeMatcher(matchers []*matcherv3.NodeMatcher) (func(*corev3.Node) bool, error) {
	var alternatives []func(*corev3.Node) bool
	var parser matcherParser
	for _, matcher := range matchers {
		matches, err := parser.node(matcher)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "node_matchers: %v", err)
		}
		alternatives = append(alternatives, matches)
	}
	return func(node *corev3.Node) bool {
		return len(alternatives) == 0 ||
			slices.ContainsFunc(alternatives, func(matches func(*corev3.Node) bool) bool { return matches(node) })
	}, nil
}

func (p *matcherParser) node(matcher *matcherv3.NodeMatcher) (func(*corev3.Node) bool, error) {
	if p.matchers += 1 + len(matcher.GetNodeMetadatas()); p.matchers > maxMatchers {
		return nil, fmt.Errorf("there are more than %d (maxMatchers): ask for fewer, or for all clients", maxMatchers)
	}
	matchesID := func(string) bool { return true }
	var err error
	if matcher.GetNodeId() != nil {
		matchesID, err = p.text(matcher.GetNodeId())
	}
	var conditions []func(*structpb.Struct) bool
	for _, metadata := range matcher.GetNodeMetadatas() {
		matches, valueErr := p.value(metadata.GetValue())
		if valueErr != nil {
			return nil, valueErr
		}
		conditions = append(conditions, func(values *structpb.Struct) bool {
			return matches(valueAt(values, metadata.GetPath()))
		})
	}
	return func(node *corev3.Node) bool {
		return matchesID(node.GetId()) && !slices.ContainsFunc(conditions, func(matches func(*structpb.Struct) bool) bool {
			return !matches(node.GetMetadata())
		})
	}, err
}

// valueAt returns the value at a path, or nil.
func valueAt(values *structpb.Struct, path []*matcherv3.StructMatcher_PathSegment) (value *structpb.Value) {
	for _, segment := range path {
		value = values.GetFields()[segment.GetKey()]
		values = value.GetStructValue()
	}
	return value
}

func (p *matcherParser) value(matcher *matcherv3.ValueMatcher) (func(*structpb.Value) bool, error) {
	switch matcher := matcher.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		matches, err := p.text(matcher.StringMatch)
		return func(value *structpb.Value) bool {
			text, isText := value.GetKind().(*structpb.Value_StringValue)
			return isText && matches(text.StringValue)
		}, err
	case *matcherv3.ValueMatcher_BoolMatch:
		return func(value *structpb.Value) bool {
			boolean, isBool := value.GetKind().(*structpb.Value_BoolValue)
			return isBool && boolean.BoolValue == matcher.BoolMatch
		}, nil
	case *matcherv3.ValueMatcher_PresentMatch:
		return func(value *structpb.Value) bool { return (value != nil) == matcher.PresentMatch }, nil
	}
	return nil, status.Error(codes.InvalidArgument, "metadata can be matched by text, boolean value and presence")
}

func (p *matcherParser) text(matcher *matcherv3.StringMatcher) (func(string) bool, error) {
	compare := func(matches func(text, part string) bool, part string) (func(string) bool, error) {
		if matcher.GetIgnoreCase() {
			return func(text string) bool { return matches(strings.ToLower(text), strings.ToLower(part)) }, nil
		}
		return func(text string) bool { return matches(text, part) }, nil
	}
	switch match := matcher.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return compare(func(text, part string) bool { return text == part }, match.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return compare(strings.HasPrefix, match.Prefix)
	case *matcherv3.StringMatcher_Suffix:
		return compare(strings.HasSuffix, match.Suffix)
	case *matcherv3.StringMatcher_Contains:
		return compare(strings.Contains, match.Contains)
	case *matcherv3.StringMatcher_SafeRegex:
		expression, err := p.compile(match.SafeRegex.GetRegex())
		return func(text string) bool { return len(text) <= maxText && expression.MatchString(text) }, err
	}
	return nil, status.Error(codes.InvalidArgument, "unknown match of a text")
}

// compile compiles a regular expression within the limits.
func (p *matcherParser) compile(text string) (*regexp.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("a regular expression of %d bytes: the limit is %d (maxPattern)", len(text), maxPattern)
	}
	whole := "^(?:" + text + ")$" // like Envoy
	parsed, err := syntax.Parse(whole, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if p.program += pattern.Size(parsed); p.program > maxProgram {
		return nil, fmt.Errorf("the regular expressions have more than %d instructions (maxProgram): repeat less", maxProgram)
	}
	return regexp.Compile(whole)
}
