package debug

import (
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// maxPattern bounds a regular expression, in bytes.
const maxPattern = 1 << 10

// nodes says which nodes one of matchers is about; all if there are none. A part of a matcher that is not known is an error: it would
// show others than were asked for.
func nodes(matchers []*matcherv3.NodeMatcher) (func(*corev3.Node) bool, error) {
	var any []func(*corev3.Node) bool
	for _, m := range matchers {
		of, err := node(m)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "node_matchers: %v", err)
		}
		any = append(any, of)
	}
	return func(n *corev3.Node) bool {
		for _, of := range any {
			if of(n) {
				return true
			}
		}
		return len(any) == 0
	}, nil
}

func node(m *matcherv3.NodeMatcher) (func(*corev3.Node) bool, error) {
	var all []func(*corev3.Node) bool
	if m.GetNodeId() != nil {
		id, err := text(m.GetNodeId())
		if err != nil {
			return nil, err
		}
		all = append(all, func(n *corev3.Node) bool { return id(n.GetId()) })
	}
	for _, sm := range m.GetNodeMetadatas() {
		holds, err := value(sm.GetValue())
		if err != nil {
			return nil, err
		}
		all = append(all, func(n *corev3.Node) bool { return holds(at(n.GetMetadata(), sm.GetPath())) })
	}
	return func(n *corev3.Node) bool {
		for _, holds := range all {
			if !holds(n) {
				return false
			}
		}
		return true
	}, nil
}

// at returns what a path leads to, or nil.
func at(s *structpb.Struct, path []*matcherv3.StructMatcher_PathSegment) (v *structpb.Value) {
	for _, segment := range path {
		v = s.GetFields()[segment.GetKey()]
		s = v.GetStructValue()
	}
	return v
}

func value(m *matcherv3.ValueMatcher) (func(*structpb.Value) bool, error) {
	switch m := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		is, err := text(m.StringMatch)
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

func text(m *matcherv3.StringMatcher) (func(string) bool, error) {
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
		expr := p.SafeRegex.GetRegex()
		if len(expr) > maxPattern {
			return nil, status.Errorf(codes.InvalidArgument, "a regular expression of %d bytes: the limit is %d", len(expr), maxPattern)
		}
		re, err := regexp.Compile("^(?:" + expr + ")$") // Envoy's match the whole
		if err != nil {
			return nil, err
		}
		return re.MatchString, nil
	}
	return nil, status.Error(codes.InvalidArgument, "such a match of texts is not known")
}
