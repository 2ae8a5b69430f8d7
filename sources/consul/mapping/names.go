package mapping

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

const (
	maxLabel = 63  // of a DNS label, a label's value and the name in its key
	maxName  = 253 // of a host, and of an object's name
)

// hash is short and the same everywhere.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:4])
}

// clean makes a DNS label of any name: in lower case, with '-' for all that may not be in it. Different names may end up the same; see distinct.
func clean(name string) string {
	b := []byte(name)
	for i, c := range b {
		switch {
		case c >= 'A' && c <= 'Z':
			b[i] = c + 'a' - 'A'
		case !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9'):
			b[i] = '-'
		}
	}
	return strings.Trim(string(b), "-")
}

// fit cuts s to n characters. What is cut is told apart by a hash of whole.
func fit(s, whole string, n int) string {
	if len(s) <= n {
		return s
	}
	return hashed(s[:n], whole, n)
}

// hashed puts a hash of whole at the end of s, within n characters.
func hashed(s, whole string, n int) string {
	h := hash(whole)
	s = strings.TrimRight(s[:min(len(s), n-len(h)-1)], "-._")
	if s == "" {
		s = "x"
	}
	return s + "-" + h
}

// labelOf returns the DNS label of a name that has no rival.
func labelOf(name string) string {
	c := clean(name)
	if c == "" || len(c) > maxLabel {
		return hashed(c, name, maxLabel)
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
	switch clean(name) {
	case name:
		return 0
	case strings.ToLower(name):
		return 1
	}
	return 2
}

// distinct gives each name a DNS label of its own: of several that would have the same, all but one get a hash at the end. The
// result does not depend on the order of names.
func distinct(names []string) map[string]string {
	labels := make(map[string]string, len(names))
	owner := make(map[string]string, len(names))
	for _, name := range names {
		l := labelOf(name)
		if o, taken := owner[l]; !taken || rival(name, o) {
			owner[l] = name
		}
	}
	for _, name := range names {
		l := labelOf(name)
		if owner[l] != name {
			l = hashed(l, name, maxLabel)
		}
		labels[name] = l
	}
	return labels
}

func isDNSLabel(s string) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

// isHost reports whether s is a name that istiod takes for a host: in lower case, of DNS labels, and not a number at the end.
func isHost(s string) bool {
	labels := strings.Split(s, ".")
	if _, err := strconv.Atoi(labels[len(labels)-1]); err == nil || len(s) > maxName {
		return false
	}
	return !slices.ContainsFunc(labels, func(l string) bool { return !isDNSLabel(l) })
}

// isLabelText reports whether s may be a label's value, or the name in its key.
func isLabelText(s string) bool {
	for i, c := range []byte(s) {
		inner := i > 0 && i < len(s)-1
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || inner && (c == '-' || c == '_' || c == '.')) {
			return false
		}
	}
	return s != "" && len(s) <= maxLabel
}

func isLabelKey(s string) bool {
	if prefix, name, ok := strings.Cut(s, "/"); ok {
		return len(prefix) <= maxName && !slices.ContainsFunc(strings.Split(prefix, "."), func(l string) bool { return !isDNSLabel(l) }) &&
			isLabelText(name)
	}
	return isLabelText(s)
}
