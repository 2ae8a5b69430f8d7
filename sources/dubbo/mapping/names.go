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

// objectOf returns the name of the object of a protocol. n.Object has no dot, so that the names are distinct.
func objectOf(n core.Name, protocol string) string {
	if protocol == mainProtocol {
		return n.Object
	}
	return n.Object + "." + names.Label(protocol, protocol)
}

// ServiceOf returns the service to which a provider's ID belongs: the ID without a group or version that is not part of the host.
func (m *Mapper) ServiceOf(id provider.ID) provider.ID {
	if !strings.Contains(m.o.HostTemplate, "{group}") {
		id.Group = ""
	}
	if !strings.Contains(m.o.HostTemplate, "{version}") {
		id.Version = ""
	}
	return id
}

// Names implements core.Mapping. Names that differ only in case, dots or dashes may become the same host. Of such services the one whose
// name is nearest to the host gets it.
func (m *Mapper) Names(hosts []ID) map[ID]core.Name {
	return names.Distinct(hosts, func(a, b ID) int {
		return cmp.Or(cmp.Compare(names.Distance(a.Service.Interface), names.Distance(b.Service.Interface)), a.Compare(b))
	}, func(id ID, toHash string) (n core.Name, host, object string) {
		n = m.name(id.Service, toHash)
		return n, n.Host, n.Object
	})
}

// name returns the name of a service. A hash of toHash makes it unique.
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

// expand fills in a template. It drops the dash or dot before a missing group or version.
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
