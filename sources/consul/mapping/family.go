package mapping

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// family is one service of the mesh: what has the same name in the same namespace, partition and peer, in all datacenters
// or, if the host names the datacenter, in one.
type family struct {
	name                       string // in Consul
	namespace, partition, peer string // empty for the default ones
	id                         identity
	host                       string
	datacenters                []datacenter
}

type datacenter struct {
	name      string
	id        identity
	alias     string // host, or nothing
	instances []*instance
}

// place says where in Consul a family is.
func (f *family) place() string {
	var b strings.Builder
	b.WriteString("consul")
	for i, dc := range f.datacenters {
		b.WriteString([]string{" ", ","}[min(i, 1)] + dc.name)
	}
	for _, q := range []struct{ what, name string }{{"namespace", f.namespace}, {"partition", f.partition}, {"peer", f.peer}} {
		if q.name != "" {
			b.WriteString(" " + q.what + " " + q.name)
		}
	}
	return strings.ToValidUTF8(b.String()+" service "+f.name, "?")
}

func (f *family) instances() []*instance {
	var all []*instance
	for _, dc := range f.datacenters {
		all = append(all, dc.instances...)
	}
	return all
}

// qualifiers are namespace, partition and peer of services, with the DNS labels of these.
type qualifiers struct{ namespaces, partitions, peers, datacenters map[string]string }

// families sorts what was read into services of the mesh, in order.
func (m *Mapper) families(name, label string, in []Service, w *warner) []*family {
	in = slices.Clone(in)
	for i := range in {
		s := &in[i]
		s.Namespace, s.Partition = orDefault(s.Namespace), orDefault(s.Partition)
	}
	q := qualifiers{
		labelsFor(in, func(s Service) string { return s.Namespace }), labelsFor(in, func(s Service) string { return s.Partition }),
		labelsFor(in, func(s Service) string { return s.Peer }), labelsFor(in, func(s Service) string { return s.Datacenter }),
	}
	perDatacenter := strings.Contains(m.o.HostTemplate, "{datacenter}")
	type id struct{ namespace, partition, peer, datacenter string }
	byID := map[id]map[string][]Service{}
	for _, s := range in {
		k := id{s.Namespace, s.Partition, s.Peer, ""}
		if perDatacenter {
			k.datacenter = s.Datacenter
		}
		if byID[k] == nil {
			byID[k] = map[string][]Service{}
		}
		byID[k][s.Datacenter] = append(byID[k][s.Datacenter], s)
	}
	ids := slices.SortedFunc(maps.Keys(byID), func(a, b id) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.partition, b.partition),
			cmp.Compare(a.peer, b.peer), cmp.Compare(a.datacenter, b.datacenter))
	})
	var all []*family
	for _, k := range ids {
		f := &family{name: name, namespace: k.namespace, partition: k.partition, peer: k.peer}
		f.id = identity{label, q.namespaces[k.namespace], q.partitions[k.partition], q.peers[k.peer], q.datacenters[k.datacenter]}
		f.host = m.host(f.id)
		for _, dc := range slices.Sorted(maps.Keys(byID[k])) {
			d := datacenter{name: dc, id: f.id}
			// A peer's datacenters have no names here.
			if m.o.Aliases == aliasesDatacenter && !perDatacenter && dc != "" && k.peer == "" {
				d.id.datacenter = q.datacenters[dc]
				d.alias = m.host(d.id)
			}
			f.datacenters = append(f.datacenters, d)
		}
		w.place = f.place()
		typical := false
		for i := range f.datacenters {
			dc := &f.datacenters[i]
			for _, s := range byID[k][dc.name] {
				typical = typical || len(s.Entries) == 0
				for _, e := range s.Entries {
					if one := m.instanceOf(dc.name, e, w.addInstance); one != nil {
						typical = true
						dc.instances = append(dc.instances, one)
					}
				}
			}
			slices.SortFunc(dc.instances, compareInstances)
		}
		if typical {
			all = append(all, f)
		}
	}
	w.place = ""
	return all
}

// orDefault folds the two ways to say that something is in the default namespace or partition.
func orDefault(s string) string {
	if s == "default" {
		return ""
	}
	return s
}

func labelsFor(in []Service, of func(Service) string) map[string]string {
	var names []string
	for _, s := range in {
		names = append(names, of(s))
	}
	slices.Sort(names)
	return distinct(slices.DeleteFunc(slices.Compact(names), func(s string) bool { return s == "" }))
}
