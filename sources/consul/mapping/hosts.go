package mapping

import (
	"slices"
	"strings"

	"tributary/internal/names"
)

// identity is what a family is told apart by, in DNS labels; empty is the default one.
type identity struct{ service, namespace, partition, peer, datacenter string }

// host expands the template. What the template does not name is put where Consul's DNS has it:
// service.service[.namespace.ns][.partition.ap][.peer.peer][.datacenter].consul, with ".dc" after the datacenter where others go before it.
func (m *Mapper) host(id identity) string {
	var qualifiers []string
	for _, q := range []struct{ placeholder, label, kind string }{
		{"{namespace}", id.namespace, "ns"},
		{"{partition}", id.partition, "ap"},
		{"{peer}", id.peer, "peer"},
		{"{datacenter}", id.datacenter, "dc"},
	} {
		switch {
		case q.label == "" || strings.Contains(m.o.HostTemplate, q.placeholder):
		case q.kind == "dc" && len(qualifiers) == 0:
			qualifiers = append(qualifiers, q.label)
		default:
			qualifiers = append(qualifiers, q.label, q.kind)
		}
	}
	labels := strings.Split(m.o.HostTemplate, ".")
	at := slices.IndexFunc(labels, func(l string) bool { return strings.Contains(l, "{service}") })
	if i := slices.Index(labels, "service"); i > at {
		at = i
	}
	r := strings.NewReplacer("{service}", id.service, "{namespace}", orElse(id.namespace, "default"), "{partition}",
		orElse(id.partition, "default"),
		"{peer}", orElse(id.peer, "local"), "{datacenter}", orElse(id.datacenter, "default"))
	for i, l := range labels {
		l = r.Replace(l)
		labels[i] = names.Fit(l, l, names.MaxLabel)
	}
	return strings.Join(slices.Insert(labels, at+1, qualifiers...), ".")
}

// orElse returns a label, or what stands in for none; a label that is the same as that gets a hash.
func orElse(label, standIn string) string {
	switch label {
	case "":
		return standIn
	case standIn:
		return names.Hashed(label, label, names.MaxLabel)
	}
	return label
}

// objectName returns the name of the objects of an identity. A service's label has no dot, so that no name is that of another.
func objectName(id identity) string {
	name := []string{id.service}
	for _, q := range [][2]string{{id.namespace, "ns"}, {id.partition, "ap"}, {id.peer, "peer"}, {id.datacenter, "dc"}} {
		if q[0] != "" {
			name = append(name, q[0], q[1])
		}
	}
	return strings.Join(name, ".")
}

// nameFor returns the name of one object among those called name: for the port of that label, or without one the first.
func nameFor(name, port string) string {
	if port != "" {
		name += "." + port + ".port"
	}
	return names.Fit(name, name, names.MaxName)
}
