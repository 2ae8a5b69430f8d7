package mapping

import (
	"cmp"
	"strings"

	"tributary/internal/names"
	"tributary/sources/registry"
)

// Names gives each of all services a name of its own. Nacos tells names apart by case, and hosts have no case. Of services that would have
// one name, the one that is nearest to it has it. The order of ids does not matter.
func (m *Mapper) Names(ids []ID) map[ID]registry.Name {
	return names.Distinct(ids, func(a, b ID) int {
		far := func(id ID) int {
			return names.Distance(id.NacosGroup) + names.Distance(id.Service) + names.Distance(id.Cluster)
		}
		return cmp.Or(cmp.Compare(far(a), far(b)), a.Compare(b))
	}, func(id ID, toHash string) (n registry.Name, host, object string) {
		n = m.name(id, toHash)
		return n, n.Host, n.Object
	})
}

// name returns the name of a service; with something to hash it is not that of another.
func (m *Mapper) name(id ID, toHash string) registry.Name {
	service := names.Parts(id.Service)
	if len(service) == 0 {
		service = []string{names.Hashed("", id.String(), names.MaxLabel)}
	}
	if toHash != "" {
		last := len(service) - 1
		service[last] = names.Hashed(service[last], toHash, names.MaxLabel)
	}
	part := func(s string) string {
		return cmp.Or(strings.Join(names.Parts(s), "-"), names.Hashed("", s, names.MaxLabel))
	}
	group, namespace, cluster := part(id.NacosGroup), part(m.namespace), part(id.Cluster)
	host := strings.NewReplacer("{service}", strings.Join(service, "."), "{group}", group, "{namespace}", namespace, "{cluster}",
		cluster).Replace(m.o.HostTemplate)
	object := []string{strings.Join(service, "-"), group}
	if id.Cluster != "" {
		object = append(object, cluster)
	}
	if m.namespace != publicNamespace {
		object = append(object, namespace)
	}
	return registry.Name{
		Host:   names.FitHost(host, id.String()+toHash),
		Object: names.Fit(strings.Join(object, "."), id.String()+toHash, names.MaxName),
	}
}

// publicNamespace is the one that goes without saying in the names of objects.
const publicNamespace = "public"
