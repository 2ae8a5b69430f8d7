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

// matchOptions are the parts of a match's meaning that depend on the client and on the origin of the VirtualService.
type matchOptions struct {
	tokenClaims   bool // headers may stand for claims of verified tokens: at gateways
	wholeSegments bool // prefixes match whole segments of a path
}

// routeMatch converts a match; nil matches all requests.
func routeMatch(request *networking.HTTPMatchRequest, options matchOptions) *routev3.RouteMatch {
	result := model.AnyPath()
	if request == nil {
		return result
	}
	addMatchers := func(headers map[string]*networking.StringMatch, inverted bool) {
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			if claim := claimMatch(name, headers[name]); claim != nil && options.tokenClaims {
				claim.Invert = inverted
				result.DynamicMetadata = append(result.DynamicMetadata, claim)
				continue
			}
			header := headerMatch(name, headers[name])
			header.InvertMatch = inverted
			header.TreatMissingHeaderAsEmpty = inverted && !isPresence(headers[name])
			result.Headers = append(result.Headers, header)
		}
	}
	addMatchers(request.GetHeaders(), false)
	addMatchers(request.GetWithoutHeaders(), true)
	slices.SortStableFunc(result.Headers, func(a, b *routev3.HeaderMatcher) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	switch uri := request.GetUri().GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		result.PathSpecifier = &routev3.RouteMatch_Path{Path: uri.Exact}
	case *networking.StringMatch_Prefix:
		result.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: uri.Prefix}
		if options.wholeSegments && uri.Prefix != "/" {
			prefix := strings.TrimSuffix(uri.Prefix, "/")
			result.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: prefix}
		}
	case *networking.StringMatch_Regex:
		result.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: uri.Regex}}
	}
	result.CaseSensitive = wrapperspb.Bool(!request.GetIgnoreUriCase())
	for _, pseudo := range []struct {
		name  string
		match *networking.StringMatch
	}{{":method", request.GetMethod()}, {":authority", request.GetAuthority()}, {":scheme", request.GetScheme()}} {
		if pseudo.match != nil {
			result.Headers = append(result.Headers, headerMatch(pseudo.name, pseudo.match))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(request.GetQueryParams())) {
		parameter := &routev3.QueryParameterMatcher{Name: name}
		if match := request.GetQueryParams()[name]; isPresence(match) {
			parameter.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
		} else {
			parameter.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: stringMatch(match)}
		}
		result.QueryParameters = append(result.QueryParameters, parameter)
	}
	return result
}

// claimMatch returns the condition of a header that stands for a claim of a token, or nil for other headers. The
// filters of a gateway have verified the token.
func claimMatch(name string, match *networking.StringMatch) *matcherv3.MetadataMatcher {
	claim := jwt.ToRoutingClaim(name)
	if !claim.Match {
		return nil
	}
	value := matcher.StringMatcher("*")
	if !isPresence(match) {
		value = stringMatch(match)
	}
	path := append([]string{model.TokenPayload}, claim.Claims...)
	return matcher.MetadataListMatcher(model.TokenFilter, path, value, true)
}

func headerMatch(name string, match *networking.StringMatch) *routev3.HeaderMatcher {
	if isPresence(match) {
		return &routev3.HeaderMatcher{
			Name:                 name,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true},
		}
	}
	return &routev3.HeaderMatcher{
		Name:                 name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: stringMatch(match)},
	}
}

// isPresence reports whether any value matches: there is no condition, or the asterisk, which is not a regular
// expression.
func isPresence(m *networking.StringMatch) bool {
	return m.GetMatchType() == nil || m.GetRegex() == "*"
}

func stringMatch(match *networking.StringMatch) *matcherv3.StringMatcher {
	switch matchType := match.GetMatchType().(type) {
	case *networking.StringMatch_Prefix:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: matchType.Prefix}}
	case *networking.StringMatch_Regex:
		return &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: matchType.Regex}},
		}
	default:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: match.GetExact()}}
	}
}
