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

// What a question may have.
const (
	maxMatchers = 100     // of nodes, and of their metadata
	maxPattern  = 1 << 10 // bytes of a regular expression
	maxProgram  = 10_000  // instructions of all regular expressions together: a short one may stand for a million
	maxText     = 1 << 10 // bytes of what a regular expression matches; a longer text, which a client may make up, it does not match
)

// question is what was paid for of one.
type question struct{ matchers, program int }

// matcher counts one more.
func (q *question) matcher() error {
	if q.matchers++; q.matchers > maxMatchers {
		return fmt.Errorf("there are more than %d (maxMatchers): ask for fewer, or for all clients", maxMatchers)
	}
	return nil
}

// compile makes a program of a regular expression, if there is enough left for it.
func (q *question) compile(expr string) (*regexp.Regexp, error) {
	if len(expr) > maxPattern {
		return nil, fmt.Errorf("a regular expression of %d bytes: the limit is %d (maxPattern)", len(expr), maxPattern)
	}
	whole := "^(?:" + expr + ")$" // Envoy's match the whole
	parsed, err := syntax.Parse(whole, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if q.program += pattern.Size(parsed); q.program > maxProgram {
		return nil, fmt.Errorf("the regular expressions have more than %d instructions (maxProgram): repeat less", maxProgram)
	}
	return regexp.Compile(whole)
}

// nodes says which nodes one of matchers is about; all if there are none. A part of a matcher that is not known is an error: it would
// show others than were asked for.
func nodes(matchers []*matcherv3.NodeMatcher) (func(*corev3.Node) bool, error) {
	var any []func(*corev3.Node) bool
	var q question
	for _, m := range matchers {
		of, err := q.node(m)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "node_matchers: %v", err)
		}
		any = append(any, of)
	}
	return func(n *corev3.Node) bool {
		return len(any) == 0 || slices.ContainsFunc(any, func(matches func(*corev3.Node) bool) bool { return matches(n) })
	}, nil
}

func (q *question) node(m *matcherv3.NodeMatcher) (func(*corev3.Node) bool, error) {
	if err := q.matcher(); err != nil {
		return nil, err
	}
	var all []func(*corev3.Node) bool
	if m.GetNodeId() != nil {
		id, err := q.text(m.GetNodeId())
		if err != nil {
			return nil, err
		}
		all = append(all, func(n *corev3.Node) bool { return id(n.GetId()) })
	}
	for _, sm := range m.GetNodeMetadatas() {
		if err := q.matcher(); err != nil {
			return nil, err
		}
		holds, err := q.value(sm.GetValue())
		if err != nil {
			return nil, err
		}
		all = append(all, func(n *corev3.Node) bool { return holds(at(n.GetMetadata(), sm.GetPath())) })
	}
	return func(n *corev3.Node) bool {
		return !slices.ContainsFunc(all, func(matches func(*corev3.Node) bool) bool { return !matches(n) })
	}, nil
}

// at returns what a path leads to, or nil.
func at(s *structpb.Struct, path []*matcherv3.StructMatcher_PathSegment) (v *structpb.Value) {
	for i, segment := range path {
		if i > 0 && s == nil {
			return nil
		}
		v = s.GetFields()[segment.GetKey()]
		s = v.GetStructValue()
	}
	return v
}

func (q *question) value(m *matcherv3.ValueMatcher) (func(*structpb.Value) bool, error) {
	switch m := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		is, err := q.text(m.StringMatch)
		return func(v *structpb.Value) bool {
			s, ok := v.GetKind().(*structpb.Value_StringValue)
			return ok && is(s.StringValue)
		}, err
	case *matcherv3.ValueMatcher_BoolMatch:
		return func(v *structpb.Value) bool {
			b, ok := v.GetKind().(*structpb.Value_BoolValue)
			return ok && b.BoolValue == m.BoolMatch
		}, nil
	case *matcherv3.ValueMatcher_PresentMatch:
		return func(v *structpb.Value) bool { return (v != nil) == m.PresentMatch }, nil
	}
	return nil, status.Error(codes.InvalidArgument, "of metadata, texts, truth values and presence can be matched")
}

func (q *question) text(m *matcherv3.StringMatcher) (func(string) bool, error) {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	compare := func(matches func(s, part string) bool, part string) func(string) bool {
		return func(s string) bool { return matches(fold(s), fold(part)) }
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return compare(func(s, part string) bool { return s == part }, p.Exact), nil
	case *matcherv3.StringMatcher_Prefix:
		return compare(strings.HasPrefix, p.Prefix), nil
	case *matcherv3.StringMatcher_Suffix:
		return compare(strings.HasSuffix, p.Suffix), nil
	case *matcherv3.StringMatcher_Contains:
		return compare(strings.Contains, p.Contains), nil
	case *matcherv3.StringMatcher_SafeRegex:
		re, err := q.compile(p.SafeRegex.GetRegex())
		if err != nil {
			return nil, err
		}
		return func(s string) bool { return len(s) <= maxText && re.MatchString(s) }, nil
	}
	return nil, status.Error(codes.InvalidArgument, "such a match of texts is not known")
}
