package derive

import (
	"cmp"
	"maps"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// A rule that cannot be converted keeps its matches and answers 500: its requests must not go to a less exact rule. Its
// matches lose the conditions that cannot be read, so that it answers all requests that it may match. An empty
// StringMatch stands for such a condition until the rules of a host are in order, since the condition makes the rule
// more exact.

// pathCondition is the key of an unread path among the headers of a match, and otherCondition that of another unread
// condition.
const pathCondition, otherCondition = ":path", ""

// refuse reports the reason why a rule answers 500.
func (n node) refuse(format string, args ...any) {
	n.reportUnserved(format+": its requests get 500", args...)
	n.refused = true
}

// refusedRoute returns the route that answers 500 instead of another one.
func refusedRoute(route *networking.HTTPRoute) *networking.HTTPRoute {
	answer := &networking.HTTPDirectResponse{Status: http.StatusInternalServerError}
	return &networking.HTTPRoute{Name: route.GetName(), Match: route.GetMatch(), DirectResponse: answer}
}

// pathFolder returns a match of the longest path of whole segments above all paths that an unread pattern may match.
func pathFolder(pattern string) *networking.StringMatch {
	if i := strings.IndexAny(pattern, `\.+*?()|[]{}^$`); i >= 0 {
		pattern = pattern[:i]
	}
	folder := cmp.Or(pattern[:max(strings.LastIndex(pattern, "/"), 0)], "/")
	return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: folder}}
}

// withoutUnread returns a route without the conditions that could not be read.
func withoutUnread(route *networking.HTTPRoute) *networking.HTTPRoute {
	unread := func(_ string, condition *networking.StringMatch) bool { return condition.GetMatchType() == nil }
	for i, match := range route.GetMatch() {
		for _, conditions := range []map[string]*networking.StringMatch{match.GetHeaders(), match.GetQueryParams()} {
			for name, condition := range conditions {
				if unread(name, condition) {
					route = proto.CloneOf(route)
					maps.DeleteFunc(route.GetMatch()[i].GetHeaders(), unread)
					maps.DeleteFunc(route.GetMatch()[i].GetQueryParams(), unread)
					return route
				}
			}
		}
	}
	return route
}

// checked replaces routes that Istio's rules refuse by routes that answer 500, with as much of their match as the rules
// allow. It removes all routes if the rules refuse the host.
func (d *derivation) checked(contributed contribution, key string) contribution {
	var routes []*networking.HTTPRoute
	for _, route := range contributed.routes {
		only := func(r *networking.HTTPRoute) contribution {
			return contribution{contributed.object, contributed.host, contributed.gateway, []*networking.HTTPRoute{r}}
		}
		err := check(merged([]contribution{only(route)}))
		if err == nil {
			routes = append(routes, route)
			continue
		}
		d.spec(contributed.object).get("rules").reportUnserved("%v: its requests for %s get 500", err, key)
		for _, refused := range lessExact(refusedRoute(route)) {
			if check(merged([]contribution{only(refused)})) == nil {
				routes = append(routes, refused)
				break
			}
		}
	}
	contributed.routes = routes
	return contributed
}

// lessExact returns a route with its match, with the path only, and without a match.
func lessExact(route *networking.HTTPRoute) []*networking.HTTPRoute {
	path, anything := proto.CloneOf(route), proto.CloneOf(route)
	for i, match := range route.GetMatch() {
		path.Match[i] = &networking.HTTPMatchRequest{Port: match.GetPort(), Uri: match.GetUri()}
		anything.Match[i] = &networking.HTTPMatchRequest{Port: match.GetPort(), Uri: pathFolder(uriText(match))}
	}
	return []*networking.HTTPRoute{route, path, anything}
}

// uriText returns the path of a match of any type.
func uriText(match *networking.HTTPMatchRequest) string {
	uri := match.GetUri()
	return uri.GetExact() + uri.GetPrefix() + uri.GetRegex()
}
