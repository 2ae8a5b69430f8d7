package mapping

import (
	"cmp"
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
// different parts may end up the same. Of services that would have one name, the one that is nearest to it has it. The order of ids does
// not matter.
func (m *Mapper) Names(ids []provider.ID) map[provider.ID]Name {
	return names.Distinct(ids, func(a, b provider.ID) int {
		return cmp.Or(cmp.Compare(names.Distance(a.Interface), names.Distance(b.Interface)), a.Compare(b))
	}, func(id provider.ID, toHash string) (n Name, host, object string) {
		n = m.name(id, toHash)
		return n, n.Host, n.base
	})
}

// name returns the name of a service; with something to hash it is not that of another.
func (m *Mapper) name(id provider.ID, toHash string) Name {
	labels := names.Parts(id.Interface)
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
		Host: names.FitHost(expand(m.o.HostTemplate, iface, id), id.String()+toHash),
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
