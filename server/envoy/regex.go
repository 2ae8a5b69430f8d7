package envoy

import (
	"fmt"
	"iter"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	networking "istio.io/api/networking/v1alpha3"
)

// Envoy refuses all routes of a port, or all of a listener, for one regular expression that its RE2 does not take. Go's are nearly the same.

// whyNot says why RE2 would not take a regular expression, or returns nothing.
func whyNot(re string) string {
	if re == "" {
		return ""
	}
	parsed, err := syntax.Parse(re, syntax.Perl)
	if err != nil {
		return "it is no regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	for _, m := range unicodeClass.FindAllStringSubmatch(re, -1) {
		if name := m[1]; !isClass(name) {
			return fmt.Sprintf("Envoy's regular expressions have no class of characters %q", name)
		}
	}
	if size(parsed) > maxProgram {
		return "it is too large for Envoy's regular expressions"
	}
	return ""
}

var unicodeClass = regexp.MustCompile(`\\[pP]\{\^?([^}]*)\}`)

// isClass says whether RE2 knows a class of characters. Since version 1.25 Go knows more, and other spellings.
func isClass(name string) bool {
	_, script := unicode.Scripts[name]
	_, category := unicode.Categories[name]
	return name == "Any" || script || category && name != "Cn" && name != "LC"
}

// maxProgram is how large, by our reckoning, a regular expression may be: RE2 makes programs of 131,000 instructions at most, of which a range of
// characters beyond ASCII takes some.
const (
	maxProgram = 100_000
	rangeCost  = 4
)

// size is about how many instructions a regular expression has.
func size(re *syntax.Regexp) int {
	n := 1
	for _, sub := range re.Sub {
		n += size(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n += len(string(re.Rune))
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if n++; re.Rune[i+1] > unicode.MaxASCII {
				n += rangeCost - 1
			}
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n += 2 * rangeCost
	case syntax.OpRepeat:
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, 100*maxProgram)
}

// unsound yields what of a match is no condition that Envoy can be told, by its path, and why.
func unsound(m *networking.HTTPMatchRequest) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, f := range []struct {
			name  string
			match *networking.StringMatch
		}{{"uri", m.GetUri()}, {"method", m.GetMethod()}, {"authority", m.GetAuthority()}, {"scheme", m.GetScheme()}} {
			if why := whyNot(f.match.GetRegex()); why != "" && !yield(f.name, why) {
				return
			}
		}
		for _, f := range []struct {
			name    string
			matches map[string]*networking.StringMatch
		}{{"headers", m.GetHeaders()}, {"withoutHeaders", m.GetWithoutHeaders()}, {"queryParams", m.GetQueryParams()}} {
			for _, name := range slices.Sorted(maps.Keys(f.matches)) {
				if why := whyNot(f.matches[name].GetRegex()); why != "" && !isPresence(f.matches[name]) && !yield(f.name+"["+name+"]", why) {
					return
				}
			}
		}
	}
}

func isSound(m *networking.HTTPMatchRequest) bool {
	for range unsound(m) {
		return false
	}
	return true
}

// whyNotRewrite says why Envoy cannot rewrite paths so, or returns nothing.
func whyNotRewrite(r *networking.RegexRewrite) string { return whyNot(r.GetMatch()) }
