package mapping

import (
	"cmp"
	"slices"
	"strings"

	"tributary/internal/names"
)

// family is one service of the mesh: what has the same name in the same namespace, partition and peer, in all datacenters
// or, if the host names the datacenter, in one.
type family struct {
	of          Service // its name, namespace, partition and peer in Consul, and its datacenter, if it is of one
	id          identity
	host        string
	datacenters []datacenter
}

type datacenter struct {
	name      string
	id        identity
	alias     string // host, or nothing
	instances []*instance
}

// identity is what a family is told apart by, in DNS labels; empty is the default one.
type identity struct{ service, namespace, partition, peer, datacenter string }

// place says where in Consul a family is.
func (f *family) place() string {
	var dcs []string
	for _, dc := range f.datacenters {
		dcs = append(dcs, dc.name)
	}
	words := []string{"consul", strings.Join(dcs, ",")}
	for _, q := range [][2]string{{"namespace", f.of.Namespace}, {"partition", f.of.Partition}, {"peer", f.of.Peer}} {
		if q[1] != "" {
			words = append(words, q[:]...)
		}
	}
	return valid(strings.Join(append(words, "service", f.of.Name), " "))
}

func (f *family) instances() (all []*instance) {
	for _, dc := range f.datacenters {
		all = append(all, dc.instances...)
	}
	return all
}

// families sorts what was read into services of the mesh, in order, without those that have sidecars and gateways alone.
func (m *Mapper) families(name, label string, in []Service) (all []*family) {
	in = slices.Clone(in)
	for i := range in {
		for _, q := range []*string{&in[i].Namespace, &in[i].Partition} {
			if *q == "default" { // the two ways to say it
				*q = ""
			}
		}
	}
	slices.SortStableFunc(in, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Peer, b.Peer),
			cmp.Compare(a.Datacenter, b.Datacenter))
	})
	labels := func(of func(Service) string) map[string]string {
		var all []string
		for _, s := range in {
			if q := of(s); q != "" {
				all = append(all, q)
			}
		}
		slices.Sort(all)
		return distinct(slices.Compact(all))
	}
	namespaces, partitions := labels(func(s Service) string { return s.Namespace }), labels(func(s Service) string { return s.Partition })
	peers, dcs := labels(func(s Service) string { return s.Peer }), labels(func(s Service) string { return s.Datacenter })
	perDatacenter := strings.Contains(m.o.HostTemplate, "{datacenter}")
	typical := map[*family]bool{}
	for _, s := range in {
		of := Service{Name: name, Namespace: s.Namespace, Partition: s.Partition, Peer: s.Peer}
		if perDatacenter {
			of.Datacenter = s.Datacenter
		}
		if len(all) == 0 || !all[len(all)-1].of.same(of) {
			id := identity{label, namespaces[of.Namespace], partitions[of.Partition], peers[of.Peer], dcs[of.Datacenter]}
			all = append(all, &family{of: of, id: id, host: m.host(id)})
		}
		f := all[len(all)-1]
		if n := len(f.datacenters); n == 0 || f.datacenters[n-1].name != s.Datacenter {
			d := datacenter{name: s.Datacenter, id: f.id}
			if m.o.Aliases == aliasesDatacenter && !perDatacenter && s.Datacenter != "" && s.Peer == "" { // a peer's have no names here
				d.id.datacenter = dcs[s.Datacenter]
				d.alias = m.host(d.id)
			}
			f.datacenters = append(f.datacenters, d)
		}
		dc := &f.datacenters[len(f.datacenters)-1]
		typical[f] = typical[f] || len(s.Entries) == 0
		for _, e := range s.Entries {
			if one := m.instanceOf(s.Datacenter, e); one != nil {
				typical[f] = true
				dc.instances = append(dc.instances, one)
			}
		}
		slices.SortFunc(dc.instances, compareInstances)
	}
	return slices.DeleteFunc(all, func(f *family) bool { return !typical[f] })
}

func (s Service) same(o Service) bool {
	return s.Namespace == o.Namespace && s.Partition == o.Partition && s.Peer == o.Peer && s.Datacenter == o.Datacenter
}

// host expands the template. What the template does not name is put where Consul's DNS has it:
// service.service[.namespace.ns][.partition.ap][.peer.peer][.datacenter].consul, with ".dc" after the datacenter where others go before it.
func (m *Mapper) host(id identity) string {
	var qualifiers []string
	stands := []string{"{service}", id.service}
	for _, q := range [][4]string{
		{"{namespace}", id.namespace, "ns", "default"},
		{"{partition}", id.partition, "ap", "default"},
		{"{peer}", id.peer, "peer", "local"},
		{"{datacenter}", id.datacenter, "dc", "default"},
	} {
		placeholder, label, kind, standIn := q[0], q[1], q[2], q[3]
		switch {
		case label == "" || strings.Contains(m.o.HostTemplate, placeholder):
		case kind == "dc" && len(qualifiers) == 0:
			qualifiers = append(qualifiers, label)
		default:
			qualifiers = append(qualifiers, label, kind)
		}
		if label == standIn { // which stands for none
			label = names.Hashed(label, label, names.MaxLabel)
		}
		stands = append(stands, placeholder, cmp.Or(label, standIn))
	}
	labels := strings.Split(m.o.HostTemplate, ".")
	at := slices.IndexFunc(labels, func(l string) bool { return strings.Contains(l, "{service}") })
	at = max(at, slices.Index(labels, "service"))
	r := strings.NewReplacer(stands...)
	for i, l := range labels {
		l = r.Replace(l)
		labels[i] = names.Fit(l, l, names.MaxLabel)
	}
	return strings.Join(slices.Insert(labels, at+1, qualifiers...), ".")
}

// object returns the name of the objects of an identity. A service's label has no dot, so that no name is that of another.
func (id identity) object() string {
	parts := []string{id.service}
	for _, q := range [][2]string{{id.namespace, "ns"}, {id.partition, "ap"}, {id.peer, "peer"}, {id.datacenter, "dc"}} {
		if q[0] != "" {
			parts = append(parts, q[:]...)
		}
	}
	return strings.Join(parts, ".")
}

// claim is what a service is known by among all others.
type claim struct {
	label   string // of DNS; empty if another name is for the same service
	warning string // another service has the label of its name; empty if none has
}

// Names tells the mapper the names of all services, whenever these change. Names that are the same but for case or for
// characters that a host may not have clash: one gets the host, and others one with a hash in it. Of services that were known,
// those that have to be mapped again because of that are returned, in order.
//
// To Consul case does not matter, though it lists such names apart: asked for either it answers with the instances of both.
func (m *Mapper) Names(all []string) (again []string) {
	rivals := map[string][]string{}
	for _, name := range all {
		l := labelOf(name)
		rivals[l] = append(rivals[l], name)
	}
	before := m.claims
	m.claims = make(map[string]claim, len(all))
	for label, claimants := range rivals {
		first := slices.MinFunc(claimants, compareFit)
		for _, name := range claimants {
			alike := slices.DeleteFunc(slices.Clone(claimants), func(n string) bool { return !strings.EqualFold(n, name) })
			best, c, about := slices.MinFunc(alike, compareFit), claim{}, "consul service "+name+": "
			switch name {
			case first:
				c.label = label
			case best:
				c.label = names.Hashed(label, strings.ToLower(name), names.MaxLabel)
				c.warning = valid(about + `its host would be that of "` + first + `", and is "` + c.label + `" therefore`)
			default:
				c.warning = valid(about + `to Consul it is the same as "` + best + `", and is served as that`)
			}
			m.claims[name] = c
			if was, known := before[name]; known && was.label != c.label {
				again = append(again, name)
			}
		}
	}
	slices.Sort(again)
	return again
}

// labelOf returns the DNS label of a name that has no rival.
func labelOf(name string) string {
	c := names.Clean(name)
	if c == "" || len(c) > names.MaxLabel {
		return names.Hashed(c, name, names.MaxLabel)
	}
	return c
}

// compareFit orders names that could have one label: first the one that is this label, then those that differ by case only.
func compareFit(a, b string) int {
	changes := func(name string) int {
		switch names.Clean(name) {
		case name:
			return 0
		case strings.ToLower(name):
			return 1
		}
		return 2
	}
	if d := changes(a) - changes(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// distinct gives each name a DNS label of its own: of several that would have the same, all but one get a hash at the end. The
// result does not depend on the order of names.
func distinct(all []string) map[string]string {
	labels, taken := make(map[string]string, len(all)), make(map[string]bool, len(all))
	for _, name := range slices.SortedFunc(slices.Values(all), compareFit) {
		l := labelOf(name)
		if taken[l] {
			l = names.Hashed(l, name, names.MaxLabel)
		}
		labels[name], taken[l] = l, true
	}
	return labels
}

// hash is that of several texts, told apart.
func hash(parts ...string) string { return names.Hash(strings.Join(parts, "\x00")) }
