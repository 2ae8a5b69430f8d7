package translate

import (
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// TestRefusedRoutesAnswer holds that requests of a route that Envoy refuses do not go to the next one.
func TestRefusedRoutesAnswer(t *testing.T) {
	regex := func(text string) *networking.StringMatch {
		return &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: text}}
	}
	prefix := func(text string) *networking.StringMatch {
		return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: text}}
	}
	const large = "[0-9a-f]{90}[0-9a-f]{90}"
	type headers = map[string]*networking.StringMatch
	for name, tt := range map[string]struct {
		route           *networking.HTTPRoute
		path            string
		otherConditions int // conditions that stay beside the path
		derived         bool
	}{
		"path":              {route: byPath(regex("/admin/" + large)), path: "/admin/"},
		"anchored path":     {route: byPath(regex("^/admin" + large)), path: "/admin"},
		"derived path":      {route: byPath(regex("/admin" + large)), path: "/admin", derived: true},
		"alternatives":      {route: byPath(regex("/a" + large + "|/b")), path: "/"},
		"broken expression": {route: byPath(regex("/a(")), path: "/"},
		"other classes":     {route: byPath(regex(`/a\p{Nowhere}`)), path: "/"},
		"method": {route: &networking.HTTPRoute{Match: matchOf(&networking.HTTPMatchRequest{
			Uri: prefix("/admin"), Method: regex(large), Authority: prefix("a"),
		})}, path: "/admin", otherConditions: 1},
		"headers": {route: &networking.HTTPRoute{Match: matchOf(&networking.HTTPMatchRequest{
			Uri: prefix("/admin"), Headers: headers{"a": regex(large), "b": prefix("c")}, WithoutHeaders: headers{"d": regex(large)},
		})}, path: "/admin", otherConditions: 1},
		"parameters": {route: &networking.HTTPRoute{Match: matchOf(&networking.HTTPMatchRequest{
			Uri: prefix("/admin"), QueryParams: headers{"a": regex(large)},
		})}, path: "/admin"},
		"authority and scheme": {route: &networking.HTTPRoute{Match: matchOf(&networking.HTTPMatchRequest{
			Uri: prefix("/admin"), Authority: regex(large), Scheme: regex("("),
		})}, path: "/admin"},
		"rewrite": {route: &networking.HTTPRoute{
			Match:   matchOf(&networking.HTTPMatchRequest{Uri: prefix("/admin")}),
			Rewrite: &networking.HTTPRewrite{UriRegexRewrite: &networking.RegexRewrite{Match: large, Rewrite: "/"}},
		}, path: "/admin"},
		"value": {route: &networking.HTTPRoute{
			Match:          matchOf(&networking.HTTPMatchRequest{Uri: prefix("/admin")}),
			DirectResponse: &networking.HTTPDirectResponse{Status: 600},
		}, path: "/admin"},
		"value for all": {route: &networking.HTTPRoute{DirectResponse: &networking.HTTPDirectResponse{Status: 600}}, path: "/"},
		"refused header": {route: &networking.HTTPRoute{Match: matchOf(&networking.HTTPMatchRequest{
			Uri: prefix("/admin"), Headers: headers{"a\nb": prefix("c")},
		})}, path: "/"},
	} {
		t.Run(name, func(t *testing.T) {
			key := resource.Key{Kind: resource.VirtualService, Namespace: "a", Name: "b"}
			rule := &model.VirtualService{Key: key, Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{
				tt.route, {DirectResponse: &networking.HTTPDirectResponse{Status: 200}},
			}}}
			if tt.derived {
				rule.Derived = model.DerivedGateway
			}
			routes := routeContext{view: &model.View{}, rule: rule, findings: &model.Findings{}}.routes()
			require.Equal(t, uint32(500), routes[0].GetDirectResponse().GetStatus())
			match := routes[0].GetMatch()
			require.Equal(t, tt.path, match.GetPrefix()+match.GetPathSeparatedPrefix())
			require.Equal(t, tt.otherConditions, len(match.GetHeaders())+len(match.GetQueryParameters()))
			require.Empty(t, model.Refused(routes[0]))
			if matchesAll(match) {
				require.Len(t, routes, 1)
			} else {
				require.Equal(t, uint32(200), routes[1].GetDirectResponse().GetStatus())
			}
		})
	}
}

func byPath(uri *networking.StringMatch) *networking.HTTPRoute {
	return &networking.HTTPRoute{Match: matchOf(&networking.HTTPMatchRequest{Uri: uri})}
}

func matchOf(m *networking.HTTPMatchRequest) []*networking.HTTPMatchRequest {
	return []*networking.HTTPMatchRequest{m}
}
