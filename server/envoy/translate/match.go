package translate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pilot/pkg/security/authz/matcher"
	"istio.io/istio/pkg/jwt"

	"tributary/server/envoy/model"
)

// routeMatch converts a match; nil matches all requests. With claims, headers may stand for claims of verified tokens.
// Prefixes are of whole segments if bySegment is true.
func routeMatch(m *networking.HTTPMatchRequest, claims, bySegment bool) *routev3.RouteMatch {
	out := model.AnyPath()
	if m == nil {
		return out
	}
	add := func(headers map[string]*networking.StringMatch, inverted bool) {
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			if c := claimMatch(name, headers[name]); c != nil && claims {
				c.Invert = inverted
				out.DynamicMetadata = append(out.DynamicMetadata, c)
				continue
			}
			h := headerMatch(name, headers[name])
			h.InvertMatch, h.TreatMissingHeaderAsEmpty = inverted, inverted && !isPresence(headers[name])
			out.Headers = append(out.Headers, h)
		}
	}
	add(m.GetHeaders(), false)
	add(m.GetWithoutHeaders(), true)
	slices.SortStableFunc(out.Headers, func(a, b *routev3.HeaderMatcher) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	switch uri := m.GetUri().GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: uri.Exact}
	case *networking.StringMatch_Prefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: uri.Prefix}
		if bySegment && uri.Prefix != "/" {
			out.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: strings.TrimSuffix(uri.Prefix, "/")}
		}
	case *networking.StringMatch_Regex:
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: uri.Regex}}
	}
	out.CaseSensitive = wrapperspb.Bool(!m.GetIgnoreUriCase())
	for _, pseudo := range []struct {
		name  string
		match *networking.StringMatch
	}{{":method", m.GetMethod()}, {":authority", m.GetAuthority()}, {":scheme", m.GetScheme()}} {
		if pseudo.match != nil {
			out.Headers = append(out.Headers, headerMatch(pseudo.name, pseudo.match))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetQueryParams())) {
		q := &routev3.QueryParameterMatcher{Name: name}
		if match := m.GetQueryParams()[name]; isPresence(match) {
			q.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
		} else {
			q.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: stringMatch(match)}
		}
		out.QueryParameters = append(out.QueryParameters, q)
	}
	return out
}

// claimMatch matches a claim of a token that the filters of a gateway have verified, or returns nil for a header that
// stands for none.
func claimMatch(name string, m *networking.StringMatch) *matcherv3.MetadataMatcher {
	c := jwt.ToRoutingClaim(name)
	if !c.Match {
		return nil
	}
	value := matcher.StringMatcher("*")
	if !isPresence(m) {
		value = stringMatch(m)
	}
	return matcher.MetadataListMatcher(model.TokenFilter, append([]string{model.TokenPayload}, c.Claims...), value, true)
}

func headerMatch(name string, m *networking.StringMatch) *routev3.HeaderMatcher {
	if isPresence(m) {
		return &routev3.HeaderMatcher{
			Name:                 name,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true},
		}
	}
	return &routev3.HeaderMatcher{
		Name:                 name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: stringMatch(m)},
	}
}

// isPresence reports whether any value matches: there is no condition, or the asterisk, which is not a regular
// expression.
func isPresence(m *networking.StringMatch) bool {
	return m.GetMatchType() == nil || m.GetRegex() == "*"
}

func stringMatch(m *networking.StringMatch) *matcherv3.StringMatcher {
	switch t := m.GetMatchType().(type) {
	case *networking.StringMatch_Prefix:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: t.Prefix}}
	case *networking.StringMatch_Regex:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: t.Regex}}}
	default:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: m.GetExact()}}
	}
}
