package mapping

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/names"
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
	return n.base + "." + names.Label(protocol, protocol)
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
		return cmp.Or(cmp.Compare(names.Distance(a.Interface), names.Distance(b.Interface)), a.Compare(b))
	})
	ids = slices.Compact(ids)
	given := make(map[provider.ID]Name, len(ids))
	hosts, bases := make(map[string]bool, len(ids)), make(map[string]bool, len(ids))
	for _, id := range ids {
		n := m.name(id, "")
		for salt := 0; hosts[n.Host] || bases[n.base]; salt++ {
			n = m.name(id, strings.Repeat("+", salt)+id.String())
		}
		hosts[n.Host], bases[n.base] = true, true
		given[id] = n
	}
	return given
}

// name returns the name of a service; with something to hash it is not that of another.
func (m *Mapper) name(id provider.ID, toHash string) Name {
	labels := strings.Split(id.Interface, ".")
	for i, l := range labels {
		labels[i] = names.Clean(l)
	}
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
	if len(labels) == 0 {
		labels = []string{names.Hashed("", id.String(), names.MaxLabel)}
	}
	if toHash != "" {
		last := len(labels) - 1
		labels[last] = names.Hashed(labels[last], toHash, names.MaxLabel)
	}
	iface := strings.Join(labels, ".")
	base := strings.ReplaceAll(expand(defaultTemplate, iface, id), ".", "-")
	return Name{
		Host: fitHost(expand(m.o.HostTemplate, iface, id), id),
		base: names.Fit(base, id.String()+toHash, names.MaxName-1-names.MaxLabel), // with room for a protocol
	}
}

// expand fills a template in. Where there is no group or version, the dash or dot before it goes with it.
func expand(template, iface string, id provider.ID) string {
	parts := map[string]string{"{interface}": iface, "{group}": names.Clean(id.Group), "{version}": names.Clean(id.Version)}
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
		labels[i] = names.Fit(strings.Trim(l, "-"), id.String(), names.MaxLabel)
	}
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
	last := len(labels) - 1
	if _, err := strconv.Atoi(labels[last]); err == nil { // else it would be taken for an IP address
		labels[last] = "x" + labels[last]
	}
	if len(strings.Join(labels, ".")) > names.MaxName {
		return names.Hashed(labels[last], id.String(), names.MaxLabel)
	}
	return strings.Join(labels, ".")
}
