package access

import (
	"fmt"
	"slices"
	"strings"
)

// subjects are patterns of subjects in the form of RFC 2253, of which one is to match. A pattern is compared relative name by
// relative name, never as text, so that a comma within a value ends nothing. A * is for any value (CN=*), or, at the
// beginning or at the end (*,O=Example), for one or more names.
type subjects []string

// CheckSubject says what is wrong with a pattern.
func CheckSubject(pattern string) error {
	names := relativeNames(pattern, ',')
	for i, name := range names {
		kind, value, typed := strings.Cut(name, "=")
		switch {
		case name == "*" && (i == 0 || i == len(names)-1), typed && value == "*":
		case !typed || strings.Contains(kind, "*") || strings.HasSuffix(value, "*") && !strings.HasSuffix(value, `\*`) || strings.HasPrefix(value, "*"):
			return fmt.Errorf("%q: want names as in CN=istiod,O=Example; a * stands for a whole value (CN=*), "+
				"or for all names before or behind the others (*,O=Example)", pattern)
		}
	}
	return nil
}

func (s subjects) match(subject string) bool {
	return slices.ContainsFunc(s, func(pattern string) bool {
		return matchNames(relativeNames(pattern, ','), relativeNames(subject, ','))
	})
}

// cover reports whether s matches every subject that one of others does.
func (s subjects) cover(others subjects) bool {
	return !slices.ContainsFunc(others, func(other string) bool { return !s.match(other) })
}

func matchNames(pattern, names []string) bool {
	switch {
	case len(pattern) == 1 && pattern[0] == "*":
		return len(names) > 0
	case len(pattern) > 0 && pattern[0] == "*":
		n := len(names) - len(pattern) + 1
		return n > 0 && matchNames(pattern[1:], names[n:])
	case len(pattern) > 0 && pattern[len(pattern)-1] == "*":
		n := len(pattern) - 1
		return len(names) > n && matchNames(pattern[:n], names[:n])
	}
	return slices.EqualFunc(pattern, names, func(want, name string) bool {
		kind, anything := strings.CutSuffix(want, "=*")
		return want == name || anything && strings.HasPrefix(name, kind+"=") && len(relativeNames(name, '+')) == 1
	})
}

// relativeNames splits text at each separator without a backslash before it.
func relativeNames(text string, separator byte) (names []string) {
	start := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case separator:
			names = append(names, text[start:i])
			start = i + 1
		}
	}
	return append(names, text[start:])
}
