package translate

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/pattern"
	"tributary/server/envoy/model"
)

// Envoy refuses all routes of a port, or all of a listener, for one regular expression that its RE2 does not take. Go's are nearly the
// same.

// WhyNot says why an Envoy whose programs may have so many instructions would not take a regular expression, or returns nothing.
func WhyNot(re string, most int) string {
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
	if escape := beyondBytes(re); escape != "" {
		return fmt.Sprintf("Envoy's regular expressions are of bytes, and %s is none: characters beyond them are written as they are", escape)
	}
	if pattern.Size(parsed) > model.MaxProgram {
		return "it is too large for Envoy's regular expressions"
	}
	if n := model.ProgramSize(re); n+n/16 > most { // some are reckoned too small by so much
		return fmt.Sprintf("its program in RE2 has about %d instructions, and %d are allowed by the runtime of an Envoy, in "+
			"re2.max_program_size.error_level, unless it says otherwise", n, most)
	}
	return ""
}

// beyondBytes returns the first escape of a regular expression, which is one to Go, that stands for a number of more than a byte, or
// nothing. Envoy 1.40 refuses it.
func beyondBytes(re string) string {
	for rest := re; ; {
		i := strings.IndexByte(rest, '\\')
		if i < 0 || i+1 == len(rest) {
			return ""
		}
		rest = rest[i:]
		if strings.HasPrefix(rest, `\Q`) {
			_, rest, _ = strings.Cut(rest, `\E`)
			continue
		}
		if m := numbered.FindStringSubmatch(rest); m != nil {
			number, base := m[1], 16
			if number == "" {
				number, base = m[2], 8
			}
			if n, err := strconv.ParseUint(number, base, 32); err != nil || n > math.MaxUint8 {
				return m[0]
			}
		}
		rest = rest[2:]
	}
}

var numbered = regexp.MustCompile(`^\\(?:x\{([0-9A-Fa-f]+)\}|([0-7]{1,3}))`)

var unicodeClass = regexp.MustCompile(`\\[pP]\{\^?([^}]*)\}`)

// isClass says whether RE2 knows a class of characters. Since version 1.25 Go knows more, and other spellings.
func isClass(name string) bool {
	_, script := unicode.Scripts[name]
	_, category := unicode.Categories[name]
	return name == "Any" || script || category && name != "Cn" && name != "LC"
}

// Unsound yields what of a match is no condition that Envoy takes, by its path, and why.
func Unsound(m *networking.HTTPMatchRequest, most int) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, f := range []struct {
			name  string
			match *networking.StringMatch
		}{{"uri", m.GetUri()}, {"method", m.GetMethod()}, {"authority", m.GetAuthority()}, {"scheme", m.GetScheme()}} {
			if why := WhyNot(f.match.GetRegex(), most); why != "" && !yield(f.name, why) {
				return
			}
		}
		for _, f := range []struct {
			name    string
			matches map[string]*networking.StringMatch
		}{{"headers", m.GetHeaders()}, {"withoutHeaders", m.GetWithoutHeaders()}, {"queryParams", m.GetQueryParams()}} {
			for _, name := range slices.Sorted(maps.Keys(f.matches)) {
				if why := WhyNot(f.matches[name].GetRegex(), most); why != "" && !isPresence(f.matches[name]) && !yield(f.name+"["+name+"]", why) {
					return
				}
			}
		}
	}
}

// isSound says whether Envoys take a match and a rewrite of a route, which stands at a place. What none takes is found in the object,
// whoever asks; what these clients cannot is noted.
func (w routeContext) isSound(r *networking.HTTPRoute, m *networking.HTTPMatchRequest, at model.Place) bool {
	for range Unsound(m, model.LargeProgram) {
		return false
	}
	rewrite := r.GetRewrite().GetUriRegexRewrite()
	if WhyNotRewrite(rewrite, model.LargeProgram) != "" {
		return false
	}
	sound := true
	for field, why := range Unsound(m, w.client.LargestProgram()) {
		w.found.Note(at.In("match.%s", field), "%s: what it is a condition of is left out", why)
		sound = false
	}
	if why := WhyNotRewrite(rewrite, w.client.LargestProgram()); why != "" {
		w.found.Note(at.In("rewrite.uriRegexRewrite"), "%s: the route is left out", why)
		sound = false
	}
	return sound
}

// WhyNotRewrite says why Envoy cannot rewrite paths so, or returns nothing.
func WhyNotRewrite(r *networking.RegexRewrite, most int) string { return WhyNot(r.GetMatch(), most) }
