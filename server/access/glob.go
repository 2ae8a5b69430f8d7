package access

import (
	"fmt"
	"slices"
	"strings"
)

// globs are texts of which one is to match, as in Istio: a text itself, abc* for what begins with abc, *abc for what ends with it, and *
// for all.
type globs []string

// CheckGlob says what is wrong with a text of a list.
func CheckGlob(glob string) error {
	if inner := strings.Trim(glob, "*"); glob != "*" && (strings.Contains(inner, "*") ||
		strings.HasPrefix(glob, "*") && strings.HasSuffix(glob, "*") || strings.Contains(glob, "**")) {
		return fmt.Errorf("%q: a * stands at the beginning or at the end, once", glob)
	}
	return nil
}

func (g globs) match(text string) bool {
	return slices.ContainsFunc(g, func(one string) bool { return matches(one, text) })
}

// matchAny says whether one of texts is matched.
func (g globs) matchAny(texts []string) bool { return slices.ContainsFunc(texts, g.match) }

func matches(glob, text string) bool {
	if before, ok := strings.CutSuffix(glob, "*"); ok {
		return strings.HasPrefix(text, before)
	}
	if after, ok := strings.CutPrefix(glob, "*"); ok {
		return strings.HasSuffix(text, after)
	}
	return glob == text
}

// cover says whether g matches whatever one of others does.
func (g globs) cover(others globs) bool {
	return !slices.ContainsFunc(others, func(other string) bool {
		return !slices.ContainsFunc(g, func(one string) bool { return covers(one, other) })
	})
}

// covers says whether a glob matches whatever another does.
func covers(one, other string) bool {
	switch {
	case one == other || one == "*":
		return true
	case other == "*":
		return false
	case strings.HasSuffix(other, "*"):
		before, ok := strings.CutSuffix(one, "*")
		return ok && strings.HasPrefix(other, before)
	case strings.HasPrefix(other, "*"):
		after, ok := strings.CutPrefix(one, "*")
		return ok && strings.HasSuffix(other, after)
	}
	return matches(one, other)
}
