package mapping

import (
	"strings"

	"tributary/internal/names"
)

// hash is that of several texts, told apart.
func hash(parts ...string) string { return names.Hash(strings.Join(parts, "\x00")) }

// labelOf returns the DNS label of a name that has no rival.
func labelOf(name string) string {
	c := names.Clean(name)
	if c == "" || len(c) > names.MaxLabel {
		return names.Hashed(c, name, names.MaxLabel)
	}
	return c
}

// rival reports whether a rather than b gets the label that both could have: the one that is this label, or differs by case
// only, or comes first.
func rival(a, b string) bool {
	if ra, rb := changes(a), changes(b); ra != rb {
		return ra < rb
	}
	return a < b
}

func changes(name string) int {
	switch names.Clean(name) {
	case name:
		return 0
	case strings.ToLower(name):
		return 1
	}
	return 2
}

// distinct gives each name a DNS label of its own: of several that would have the same, all but one get a hash at the end. The
// result does not depend on the order of names.
func distinct(all []string) map[string]string {
	labels := make(map[string]string, len(all))
	owner := make(map[string]string, len(all))
	for _, name := range all {
		l := labelOf(name)
		if o, taken := owner[l]; !taken || rival(name, o) {
			owner[l] = name
		}
	}
	for _, name := range all {
		l := labelOf(name)
		if owner[l] != name {
			l = names.Hashed(l, name, names.MaxLabel)
		}
		labels[name] = l
	}
	return labels
}
