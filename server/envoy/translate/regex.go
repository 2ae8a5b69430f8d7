package translate

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// MatchProblems returns the paths of the conditions of a match that Envoy refuses, with the reasons.
func MatchProblems(request *networking.HTTPMatchRequest, maxInstructions int) map[string]string {
	problems := make(map[string]string)
	check := func(field string, match *networking.StringMatch) {
		if reason := model.RegexProblem(match.GetRegex(), maxInstructions); reason != "" {
			problems[field] = reason
		}
	}
	check("uri", request.GetUri())
	check("method", request.GetMethod())
	check("authority", request.GetAuthority())
	check("scheme", request.GetScheme())
	for field, matches := range map[string]map[string]*networking.StringMatch{
		"headers": request.GetHeaders(), "withoutHeaders": request.GetWithoutHeaders(),
		"queryParams": request.GetQueryParams(),
	} {
		for name, match := range matches {
			if !isPresence(match) {
				check(field+"["+name+"]", match)
			}
		}
	}
	return problems
}

// checkMatch reports whether these Envoys accept the match and rewrite. It adds findings only for limits of these
// clients: package coverage reports patterns that no Envoy accepts.
func (r routeContext) checkMatch(
	route *networking.HTTPRoute, match *networking.HTTPMatchRequest, place model.Place,
) bool {
	rewrite := route.GetRewrite().GetUriRegexRewrite()
	if len(MatchProblems(match, model.LargeProgram)) > 0 || RewriteProblem(rewrite, model.LargeProgram) != "" {
		return false
	}
	usable := true
	for field, reason := range MatchProblems(match, r.view.Client.LargestProgram()) {
		r.findings.Note(place.Subfield("match.%s", field), "%s: requests that it may mean get 500", reason)
		usable = false
	}
	if reason := RewriteProblem(rewrite, r.view.Client.LargestProgram()); reason != "" {
		r.findings.Note(place.Subfield("rewrite.uriRegexRewrite"), "%s: its requests get 500", reason)
		usable = false
	}
	return usable
}

// refusedRoute returns a route in place of one that Envoy refuses. It answers 500 to all requests that the match may
// mean: the next route, which may allow more, must not get them. A regular expression that Envoy refuses stands for all
// paths with its literal prefix.
func (r routeContext) refusedRoute(httpRoute *networking.HTTPRoute, match *networking.HTTPMatchRequest) *routev3.Route {
	readable := proto.CloneOf(match)
	options := r.matchOptions()
	for field := range MatchProblems(match, min(model.LargeProgram, r.view.Client.LargestProgram())) {
		condition, name, _ := strings.Cut(strings.TrimSuffix(field, "]"), "[")
		switch condition {
		case "uri":
			prefix := literalPrefix(match.GetUri().GetRegex())
			readable.Uri = &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: prefix}}
			options.wholeSegments = false
		case "method":
			readable.Method = nil
		case "authority":
			readable.Authority = nil
		case "scheme":
			readable.Scheme = nil
		case "headers":
			delete(readable.GetHeaders(), name)
		case "withoutHeaders":
			delete(readable.GetWithoutHeaders(), name)
		case "queryParams":
			delete(readable.GetQueryParams(), name)
		}
	}
	route := &routev3.Route{
		Name:     httpRoute.GetName(),
		Match:    routeMatch(readable, options),
		Metadata: virtualServiceMetadata(r.virtualService.Key),
		Action:   directResponse(&networking.HTTPDirectResponse{Status: http.StatusInternalServerError}),
	}
	if model.Refused(route) != "" {
		route.Name = ""
		route.Match = routeMatch(nil, matchOptions{})
	}
	return route
}

// literalPrefix returns the common prefix of all paths that a regular expression matches.
func literalPrefix(expression string) string {
	compiled, err := regexp.Compile(strings.TrimPrefix(expression, "^"))
	if err != nil {
		return "/"
	}
	prefix, _ := compiled.LiteralPrefix()
	return cmp.Or(prefix, "/")
}

// RewriteProblem returns the reason that Envoy would refuse a rewrite of paths, or "".
func RewriteProblem(r *networking.RegexRewrite, maxInstructions int) string {
	return model.RegexProblem(r.GetMatch(), maxInstructions)
}
