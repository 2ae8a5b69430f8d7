package mapping

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"tributary/sources/dubbo/provider"
)

// Name is what a service is called in the mesh.
type Name struct {
	Host string
	base string // of its objects
}

// mainProtocol is the one whose object has the bare name.
const mainProtocol = "dubbo"

// object returns the name of the object of a protocol. A base has no dot, so that no name is that of another.
func (n Name) object(protocol string) string {
	if protocol == mainProtocol {
		return n.base
	}
	return n.base + "." + label(protocol, protocol)
}

// ServiceOf returns the service to which a provider's ID belongs: the ID without what the host does not tell apart.
func (m *Mapper) ServiceOf(id provider.ID) provider.ID {
	if !strings.Contains(m.o.HostTemplate, "{group}") {
		id.Group = ""
	}
	if !strings.Contains(m.o.HostTemplate, "{version}") {
		id.Version = ""
	}
	return id
}

// Names gives each of all services a name of its own. Java tells names apart by case, and hosts have no case; dots and dashes of
// different parts may end up the same. Of services that would have one name, the one that is nearest to it has it, and others get a
// hash of what they are. The order of ids does not matter.
func (m *Mapper) Names(ids []provider.ID) map[provider.ID]Name {
	ids = slices.SortedFunc(slices.Values(ids), func(a, b provider.ID) int {
		return cmp.Or(cmp.Compare(changes(a.Interface), changes(b.Interface)), a.Compare(b))
	})
	ids = slices.Compact(ids)
	names := make(map[provider.ID]Name, len(ids))
	hosts, bases := make(map[string]bool, len(ids)), make(map[string]bool, len(ids))
	for _, id := range ids {
		n := m.name(id, "")
		for salt := 0; hosts[n.Host] || bases[n.base]; salt++ {
			n = m.name(id, strings.Repeat("+", salt)+id.String())
		}
		hosts[n.Host], bases[n.base] = true, true
		names[id] = n
	}
	return names
}

// name returns the name of a service; with something to hash it is not that of another.
func (m *Mapper) name(id provider.ID, toHash string) Name {
	labels := strings.Split(id.Interface, ".")
	for i, l := range labels {
		labels[i] = clean(l)
	}
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
	if len(labels) == 0 {
		labels = []string{hashed("", id.String(), maxLabel)}
	}
	if toHash != "" {
		last := len(labels) - 1
		labels[last] = hashed(labels[last], toHash, maxLabel)
	}
	iface := strings.Join(labels, ".")
	base := strings.ReplaceAll(expand(defaultTemplate, iface, id), ".", "-")
	return Name{
		Host: fitHost(expand(m.o.HostTemplate, iface, id), id),
		base: fit(base, id.String()+toHash, maxName-1-maxLabel), // with room for a protocol
	}
}

// expand fills a template in. Where there is no group or version, the dash or dot before it goes with it.
func expand(template, iface string, id provider.ID) string {
	parts := map[string]string{"{interface}": iface, "{group}": clean(id.Group), "{version}": clean(id.Version)}
	text := placeholder.ReplaceAllStringFunc(template, func(p string) string {
		at := strings.IndexByte(p, '{')
		value := parts[p[at:]]
		if value == "" {
			return ""
		}
		return p[:at] + value
	})
	return strings.Trim(text, "-.")
}

// fitHost makes a host of what a template gave.
func fitHost(text string, id provider.ID) string {
	labels := strings.Split(text, ".")
	for i, l := range labels {
		labels[i] = fit(strings.Trim(l, "-"), id.String(), maxLabel)
	}
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
	last := len(labels) - 1
	if _, err := strconv.Atoi(labels[last]); err == nil { // else it would be taken for an IP address
		labels[last] = "x" + labels[last]
	}
	if len(strings.Join(labels, ".")) > maxName {
		return hashed(labels[last], id.String(), maxLabel)
	}
	return strings.Join(labels, ".")
}

const (
	maxLabel = 63  // of a DNS label, a label's value and the name in its key
	maxName  = 253 // of a host, and of an object's name
)

// hash is short and the same everywhere.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// clean makes a DNS label of any name: in lower case, with '-' for all that may not be in it. Different names may end up the same.
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

// label makes a DNS label of a name that need not be one, which whole tells apart.
func label(name, whole string) string {
	if c := clean(name); c != "" && c == name {
		return fit(c, whole, maxLabel)
	}
	return hashed(clean(name), whole, maxLabel)
}

// fit cuts s to n characters. What is cut is told apart by a hash of whole.
func fit(s, whole string, n int) string {
	if len(s) <= n {
		return s
	}
	return hashed(s, whole, n)
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

// changes says how far an interface's name is from a host.
func changes(name string) int {
	name = strings.ReplaceAll(name, ".", "-")
	switch clean(name) {
	case name:
		return 0
	case strings.ToLower(name):
		return 1
	}
	return 2
}

func isDNSLabel(s string) bool {
	return s != "" && len(s) <= maxLabel && clean(s) == s
}

// isHost reports whether s is a name that istiod takes for a host: in lower case, of DNS labels, and not a number at the end.
func isHost(s string) bool {
	labels := strings.Split(s, ".")
	if _, err := strconv.Atoi(labels[len(labels)-1]); err == nil || len(s) > maxName {
		return false
	}
	return !slices.ContainsFunc(labels, func(l string) bool { return !isDNSLabel(l) })
}
