// Package names makes names that Istio takes of names that registries take: those of hosts, labels and objects. It is pure.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The lengths of the longest names.
const (
	MaxLabel = 63  // of a DNS label, a label's value and the name in its key
	MaxName  = 253 // of a host, and of an object's name
)

// Join makes one text of several. Lists that differ never make the same text, whatever is in them: each part stands behind its length.
// Split takes the text apart again.
func Join(parts ...string) string {
	var b []byte
	for _, p := range parts {
		b = append(append(strconv.AppendInt(b, int64(len(p)), 10), ':'), p...)
	}
	return string(b)
}

// Split returns what Join made text of.
func Split(text string) (parts []string) {
	for text != "" {
		length, rest, _ := strings.Cut(text, ":")
		n, _ := strconv.Atoi(length)
		parts, text = append(parts, rest[:n]), rest[n:]
	}
	return parts
}

// hashed is how many bytes of a hash are used: so many that nobody who chooses a name can have it end up as that of another.
const hashed = 8

// Hash is short and the same everywhere.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:hashed])
}

// Clean makes a DNS label of any name: in lower case, with '-' for all that may not be in it. Different names may end up the same.
func Clean(name string) string {
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

// Label makes a DNS label of a name that need not be one, which whole tells apart.
func Label(name, whole string) string {
	if c := Clean(name); c != "" && c == name {
		return Fit(c, whole, MaxLabel)
	}
	return Hashed(Clean(name), whole, MaxLabel)
}

// Fit cuts s to n characters. What is cut is told apart by a hash of whole.
func Fit(s, whole string, n int) string {
	if len(s) <= n {
		return s
	}
	return Hashed(s, whole, n)
}

// Hashed puts a hash of whole at the end of s, within n characters.
func Hashed(s, whole string, n int) string {
	h := Hash(whole)
	s = strings.TrimRight(s[:min(len(s), n-len(h)-1)], "-._")
	if s == "" {
		s = "x"
	}
	return s + "-" + h
}

// Parts are the labels of a name that has dots, each cleaned, without what is none.
func Parts(name string) []string {
	all := strings.Split(name, ".")
	for i, p := range all {
		all[i] = Clean(p)
	}
	return slices.DeleteFunc(all, func(p string) bool { return p == "" })
}

// FitHost makes a host of a text of labels, at least one of which is not empty. What is cut is told apart by a hash of whole.
func FitHost(text, whole string) string {
	labels := strings.Split(text, ".")
	for i, l := range labels {
		labels[i] = Fit(strings.Trim(l, "-"), whole, MaxLabel)
	}
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
	last := len(labels) - 1
	if _, err := strconv.Atoi(labels[last]); err == nil { // else it would be taken for an IP address
		labels[last] = "x" + labels[last]
	}
	if host := strings.Join(labels, "."); len(host) <= MaxName {
		return host
	}
	return Hashed(labels[0], whole, MaxLabel) + "." + labels[last]
}

// IsDNSLabel reports whether s is one label of a host.
func IsDNSLabel(s string) bool {
	return s != "" && len(s) <= MaxLabel && Clean(s) == s
}

// IsHost reports whether s is a name that istiod takes for a host: in lower case, of DNS labels, and not a number at the end.
func IsHost(s string) bool {
	labels := strings.Split(s, ".")
	if _, err := strconv.Atoi(labels[len(labels)-1]); err == nil || len(s) > MaxName {
		return false
	}
	return !slices.ContainsFunc(labels, func(l string) bool { return !IsDNSLabel(l) })
}

// IsLabelText reports whether s may be a label's value, or the name in its key.
func IsLabelText(s string) bool {
	for i, c := range []byte(s) {
		inner := i > 0 && i < len(s)-1
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || inner && (c == '-' || c == '_' || c == '.')) {
			return false
		}
	}
	return s != "" && len(s) <= MaxLabel
}

// IsLabelKey reports whether s may be the key of a label.
func IsLabelKey(s string) bool {
	if prefix, name, ok := strings.Cut(s, "/"); ok {
		return len(prefix) <= MaxName && !slices.ContainsFunc(strings.Split(prefix, "."), func(l string) bool { return !IsDNSLabel(l) }) &&
			IsLabelText(name)
	}
	return IsLabelText(s)
}

// Host returns the host that a registry has, in the one way in which it is written here, so that equal ones compare equal. Registrations in
// Java have IPv6 addresses in brackets, in full, and with the interface that they are of, which means something only where the address is
// link-local. What is no address is a name, which has no case. Whether it can be called is for Address to say.
func Host(text string) string {
	if bare, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(bare, "]") {
		text = bare[:len(bare)-1]
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return strings.ToLower(strings.TrimSuffix(text, "."))
	}
	if a = a.Unmap(); !a.IsLinkLocalUnicast() {
		a = a.WithZone("")
	}
	return a.String()
}

// IsTrue reports whether a flag that a registry has as a text is set. To Java it has no case, and all else is false.
func IsTrue(flag string) bool { return strings.EqualFold(flag, "true") }

// Address returns an address as istiod takes it.
func Address(host string) (string, error) {
	host = Host(host)
	if a, err := netip.ParseAddr(host); err == nil {
		switch {
		case a.Is6() && a.IsLinkLocalUnicast():
			return "", errors.New("a link-local address has a meaning on its own link only")
		case a.IsUnspecified() || a.IsMulticast():
			return "", errors.New("no address that can be called")
		}
		return host, nil
	}
	if IsHost(host) {
		return host, nil
	}
	return "", errors.New("neither an IP address nor a host")
}

// Distance says how far a name is from a host: 0 if it is one but for dots, 1 if it is but for case, and 2 if it is not.
func Distance(name string) int {
	name = strings.ReplaceAll(name, ".", "-")
	switch Clean(name) {
	case name:
		return 0
	case strings.ToLower(name):
		return 1
	}
	return 2
}

// tries is how many hashes are tried for a name. More than one is needed only if two of 64 bits are the same.
const tries = 8

// Distinct gives each of all things a name of its own, no part of which is that part of another's: the host, and the name of the object. Of
// those that would have one name the first in the order of compare has it, and others get one with a hash, so that the order of ids does
// not matter. name returns the name of a thing and its parts; with something to hash, all of them have to differ from those with something
// else. What finds no name has none.
func Distinct[ID interface {
	comparable
	fmt.Stringer
}, Name any](ids []ID, compare func(a, b ID) int, name func(id ID, toHash string) (n Name, host, object string)) map[ID]Name {
	ids = slices.Compact(slices.SortedFunc(slices.Values(ids), compare))
	given := make(map[ID]Name, len(ids))
	hosts, objects := make(map[string]bool, len(ids)), make(map[string]bool, len(ids))
	for _, id := range ids {
		toHash := ""
		for try := range tries {
			n, host, object := name(id, toHash)
			if !hosts[host] && !objects[object] {
				given[id], hosts[host], objects[object] = n, true, true
				break
			}
			toHash = strings.Repeat("+", try) + id.String()
		}
	}
	return given
}
