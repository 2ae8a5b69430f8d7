package mapping

import (
	"cmp"
	"strings"

	"tributary/internal/names"
)

// Name is what a service is called in the mesh.
type Name struct{ Host, object string }

// Names gives each of all services a name of its own. Nacos tells names apart by case, and hosts have no case. Of services that would have
// one name, the one that is nearest to it has it. The order of ids does not matter.
func (m *Mapper) Names(ids []ID) map[ID]Name {
	return names.Distinct(ids, func(a, b ID) int {
		far := func(id ID) int {
			return names.Distance(id.Group) + names.Distance(id.Service) + names.Distance(id.Cluster)
		}
		return cmp.Or(cmp.Compare(far(a), far(b)), a.Compare(b))
	}, func(id ID, toHash string) (n Name, host, object string) {
		n = m.name(id, toHash)
		return n, n.Host, n.object
	})
}

// name returns the name of a service; with something to hash it is not that of another.
func (m *Mapper) name(id ID, toHash string) Name {
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
	group, namespace, cluster := part(id.Group), part(m.namespace), part(id.Cluster)
	host := strings.NewReplacer("{service}", strings.Join(service, "."), "{group}", group, "{namespace}", namespace, "{cluster}",
		cluster).Replace(m.o.HostTemplate)
	object := []string{strings.Join(service, "-"), group}
	if id.Cluster != "" {
		object = append(object, cluster)
	}
	if m.namespace != publicNamespace {
		object = append(object, namespace)
	}
	return Name{names.FitHost(host, id.String()+toHash), names.Fit(strings.Join(object, "."), id.String()+toHash, names.MaxName)}
}

// publicNamespace is the one that goes without saying in the names of objects.
const publicNamespace = "public"
