package translate

import (
	"iter"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// MatchProblems yields the paths of the conditions of a match that Envoy refuses, and why.
func MatchProblems(m *networking.HTTPMatchRequest, maxInstructions int) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, f := range []struct {
			name  string
			match *networking.StringMatch
		}{{"uri", m.GetUri()}, {"method", m.GetMethod()}, {"authority", m.GetAuthority()}, {"scheme", m.GetScheme()}} {
			if why := model.RegexProblem(f.match.GetRegex(), maxInstructions); why != "" && !yield(f.name, why) {
				return
			}
		}
		for _, f := range []struct {
			name    string
			matches map[string]*networking.StringMatch
		}{{"headers", m.GetHeaders()}, {"withoutHeaders", m.GetWithoutHeaders()}, {"queryParams", m.GetQueryParams()}} {
			for _, name := range slices.Sorted(maps.Keys(f.matches)) {
				why := model.RegexProblem(f.matches[name].GetRegex(), maxInstructions)
				if why != "" && !isPresence(f.matches[name]) && !yield(f.name+"["+name+"]", why) {
					return
				}
			}
		}
	}
}

// matchUsable reports whether these Envoys accept the match and rewrite. What no Envoy accepts is reported with the object (coverage);
// what only these reject is noted here.
func (w routeContext) matchUsable(r *networking.HTTPRoute, m *networking.HTTPMatchRequest, at model.Place) bool {
	for range MatchProblems(m, model.LargeProgram) {
		return false
	}
	rewrite := r.GetRewrite().GetUriRegexRewrite()
	if RewriteProblem(rewrite, model.LargeProgram) != "" {
		return false
	}
	usable := true
	for field, why := range MatchProblems(m, w.client.LargestProgram()) {
		w.found.Note(at.In("match.%s", field), "%s: the match is left out", why)
		usable = false
	}
	if why := RewriteProblem(rewrite, w.client.LargestProgram()); why != "" {
		w.found.Note(at.In("rewrite.uriRegexRewrite"), "%s: the route is left out", why)
		usable = false
	}
	return usable
}

// RewriteProblem returns why Envoy would refuse a rewrite of paths, or "".
func RewriteProblem(r *networking.RegexRewrite, maxInstructions int) string {
	return model.RegexProblem(r.GetMatch(), maxInstructions)
}
