package access

import (
	"fmt"
	"slices"
	"strings"
)

// A pattern is a text, or abc*, *abc or *, as in Istio.

// CheckPattern returns an error for an invalid pattern.
func CheckPattern(pattern string) error {
	if strings.Count(pattern, "*") > 1 || strings.Contains(strings.Trim(pattern, "*"), "*") {
		return fmt.Errorf("%q: a * stands at the beginning or at the end, once", pattern)
	}
	return nil
}

// matches reports whether a pattern matches a text. If the text is a pattern too, matches reports whether the first one
// subsumes it: a valid pattern has a * only at one end, so that the rest is compared as a text.
func matches(pattern, text string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(text, prefix)
	}
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(text, suffix)
	}
	return pattern == text
}

// admits reports whether one of the patterns matches a text. No patterns admit each text.
func admits(patterns []string, text string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, text) })
}

// quantity is the number of values that patterns have to match.
type quantity bool

const (
	anyValue  quantity = false // at least one value, such as one of a client's names
	allValues quantity = true  // each value, and there is one, such as each pattern of a subsumed rule
)

// compare reports whether values match patterns. No patterns match each list of values.
func compare[T any](patterns, values []T, match func(pattern, value T) bool, required quantity) bool {
	if len(patterns) == 0 {
		return true
	}
	matched := 0
	for _, value := range values {
		if slices.ContainsFunc(patterns, func(pattern T) bool { return match(pattern, value) }) {
			matched++
		}
	}
	return matched > 0 && (required == anyValue || matched == len(values))
}
