package mapping

import (
	"cmp"
	"strings"

	"tributary/internal/names"
	"tributary/sources/dubbo/provider"
	core "tributary/sources/registry"
)

// mainProtocol is the one whose object has the bare name.
const mainProtocol = "dubbo"

// objectOf returns the name of the object of a protocol. That of a host has no dot, so that no name is that of another.
func objectOf(n core.Name, protocol string) string {
	if protocol == mainProtocol {
		return n.Object
	}
	return n.Object + "." + names.Label(protocol, protocol)
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

// Names implements core.Mapping. Java tells names apart by case, and hosts have no case; dots and dashes of
// different parts may end up the same. Of services that would have one name, the one that is nearest to it has it.
func (m *Mapper) Names(hosts []ID) map[ID]core.Name {
	return names.Distinct(hosts, func(a, b ID) int {
		return cmp.Or(cmp.Compare(names.Distance(a.Service.Interface), names.Distance(b.Service.Interface)), a.Compare(b))
	}, func(id ID, toHash string) (n core.Name, host, object string) {
		n = m.name(id.Service, toHash)
		return n, n.Host, n.Object
	})
}

// name returns the name of a service; with something to hash it is not that of another.
func (m *Mapper) name(id provider.ID, toHash string) core.Name {
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
	return core.Name{
		Host:   names.FitHost(expand(m.o.HostTemplate, iface, id), id.String()+toHash),
		Object: names.Fit(base, id.String()+toHash, names.MaxName-1-names.MaxLabel), // with room for a protocol
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
