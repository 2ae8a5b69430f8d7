// Package names converts the names of registries to names that Istio accepts, for hosts, labels and objects. It is
// pure.
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

// Join joins texts so that different lists never have the same result: each part follows its length. Split is the
// inverse.
func Join(parts ...string) string {
	var b []byte
	for _, p := range parts {
		b = append(append(strconv.AppendInt(b, int64(len(p)), 10), ':'), p...)
	}
	return string(b)
}

// Split returns the parts of a text of Join.
func Split(text string) (parts []string) {
	for text != "" {
		length, rest, _ := strings.Cut(text, ":")
		n, _ := strconv.Atoi(length)
		parts, text = append(parts, rest[:n]), rest[n:]
	}
	return parts
}

// hashed is the number of bytes of a hash: enough that no chosen name collides with another one.
const hashed = 8

// Hash returns a short hash, the same on all machines.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:hashed])
}

// Clean converts a name to a DNS label: in lower case, with '-' for other characters. Different names may have one
// label.
func Clean(name string) string {
	b := []byte(name)
	for i, character := range b {
		switch {
		case character >= 'A' && character <= 'Z':
			b[i] = character + 'a' - 'A'
		case !(character >= 'a' && character <= 'z' || character >= '0' && character <= '9'):
			b[i] = '-'
		}
	}
	return strings.Trim(string(b), "-")
}

// Label converts a name to a DNS label. A hash of whole makes it unique if the name is no label.
func Label(name, original string) string {
	if c := Clean(name); c != "" && c == name {
		return Fit(c, original, MaxLabel)
	}
	return Hashed(Clean(name), original, MaxLabel)
}

// Fit cuts text to n characters. A hash of whole keeps cut names unique.
func Fit(text, original string, n int) string {
	if len(text) <= n {
		return text
	}
	return Hashed(text, original, n)
}

// Hashed appends a hash of whole to text, within n characters.
func Hashed(text, original string, n int) string {
	hash := Hash(original)
	text = strings.TrimRight(text[:min(len(text), n-len(hash)-1)], "-._")
	if text == "" {
		text = "x"
	}
	return text + "-" + hash
}

// Parts returns the cleaned labels of a name with dots, without empty ones.
func Parts(name string) []string {
	labels := strings.Split(name, ".")
	for i, p := range labels {
		labels[i] = Clean(p)
	}
	return slices.DeleteFunc(labels, func(p string) bool { return p == "" })
}

// FitHost converts labels, at least one of them not empty, to a host. A hash of whole keeps cut hosts unique.
func FitHost(text, original string) string {
	labels := strings.Split(text, ".")
	for i, l := range labels {
		labels[i] = Fit(strings.Trim(l, "-"), original, MaxLabel)
	}
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
	last := len(labels) - 1
	if _, err := strconv.Atoi(labels[last]); err == nil { // otherwise it looks like an IP address
		labels[last] = "x" + labels[last]
	}
	if host := strings.Join(labels, "."); len(host) <= MaxName {
		return host
	}
	return Hashed(labels[0], original, MaxLabel) + "." + labels[last]
}

// IsDNSLabel reports whether s is one label of a host.
func IsDNSLabel(s string) bool {
	return s != "" && len(s) <= MaxLabel && Clean(s) == s
}

// IsHost reports whether istiod accepts s as a host: DNS labels in lower case, the last of which is no number.
func IsHost(s string) bool {
	labels := strings.Split(s, ".")
	if _, err := strconv.Atoi(labels[len(labels)-1]); err == nil || len(s) > MaxName {
		return false
	}
	return !slices.ContainsFunc(labels, func(l string) bool { return !IsDNSLabel(l) })
}

// IsLabelText reports whether text may be a label's value, or the name in its key.
func IsLabelText(text string) bool {
	for i, character := range []byte(text) {
		inner := i > 0 && i < len(text)-1
		if !(character >= 'a' && character <= 'z' || character >= 'A' && character <= 'Z' ||
			character >= '0' && character <= '9' ||
			inner && (character == '-' || character == '_' || character == '.')) {
			return false
		}
	}
	return text != "" && len(text) <= MaxLabel
}

// IsLabelKey reports whether text may be the key of a label.
func IsLabelKey(text string) bool {
	if prefix, name, ok := strings.Cut(text, "/"); ok {
		return len(prefix) <= MaxName && !slices.ContainsFunc(strings.Split(prefix, "."),
			func(l string) bool { return !IsDNSLabel(l) }) &&
			IsLabelText(name)
	}
	return IsLabelText(text)
}

// Host returns the canonical form of a registry's host, so that equal hosts compare equal. Registrations in Java have
// IPv6 addresses in brackets, in full, and with an interface, which only matters for link-local addresses. Other hosts
// are names without case. Address reports whether it can be called.
func Host(text string) string {
	if bare, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(bare, "]") {
		text = bare[:len(bare)-1]
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return strings.ToLower(strings.TrimSuffix(text, "."))
	}
	if address = address.Unmap(); !address.IsLinkLocalUnicast() {
		address = address.WithZone("")
	}
	return address.String()
}

// IsTrue reports whether a flag in a registry is set. As in Java, it has no case, and all other texts are false.
func IsTrue(flag string) bool { return strings.EqualFold(flag, "true") }

// Address returns an address in istiod's form.
func Address(host string) (string, error) {
	host = Host(host)
	if address, err := netip.ParseAddr(host); err == nil {
		switch {
		case address.Is6() && address.IsLinkLocalUnicast():
			return "", errors.New("a link-local address has a meaning on its own link only")
		case address.IsUnspecified() || address.IsMulticast():
			return "", errors.New("no address that can be called")
		}
		return host, nil
	}
	if IsHost(host) {
		return host, nil
	}
	return "", errors.New("neither an IP address nor a host")
}

// Distance returns the distance of a name from a host: 0 for a host or one with other dots, 1 for other case, else 2.
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

// tries is the limit of hashes for a name. A second one is only needed if two of 64 bits are the same.
const tries = 8

// Distinct gives each thing a unique name, with unique parts: the host, and the name of the object. If several things
// have one name, the first one in the order of compare gets it, and the others one with a hash, so that the order of
// ids does not matter. name returns the name of a thing and its parts; they must depend on the text to hash. A thing
// without a unique name is left out.
func Distinct[ID interface {
	comparable
	fmt.Stringer
}, Name any](ids []ID, compare func(a, b ID) int,
	name func(id ID, toHash string) (n Name, host, object string),
) map[ID]Name {
	ids = slices.Compact(slices.SortedFunc(slices.Values(ids), compare))
	given := make(map[ID]Name, len(ids))
	hosts, objects := make(map[string]bool, len(ids)), make(map[string]bool, len(ids))
	for _, id := range ids {
		toHash := ""
		for attempt := range tries {
			n, host, object := name(id, toHash)
			if !hosts[host] && !objects[object] {
				given[id], hosts[host], objects[object] = n, true, true
				break
			}
			toHash = strings.Repeat("+", attempt) + id.String()
		}
	}
	return given
}
