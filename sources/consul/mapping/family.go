package mapping

import (
	"cmp"
	"slices"
	"strings"

	"tributary/internal/names"
)

// family is one service of the mesh: the services with one name, namespace, partition and peer, in all datacenters. If
// the host names the datacenter, each datacenter has a family.
type family struct {
	service     Service // without entries; with a datacenter if the host names it
	identity    identity
	host        string
	datacenters []datacenter
}

type datacenter struct {
	name      string
	identity  identity
	alias     string // a further host; empty for none
	instances []*instance
}

// identity distinguishes families, in DNS labels; empty fields stand for the defaults.
type identity struct{ service, namespace, partition, peer, datacenter string }

// place names the family in messages.
func (f *family) place() string {
	var datacenters []string
	for _, d := range f.datacenters {
		datacenters = append(datacenters, d.name)
	}
	words := []string{"consul", strings.Join(datacenters, ",")}
	for _, field := range [][2]string{
		{"namespace", f.service.Namespace}, {"partition", f.service.Partition}, {"peer", f.service.Peer},
	} {
		if field[1] != "" {
			words = append(words, field[:]...)
		}
	}
	return valid(strings.Join(append(words, "service", f.service.Name), " "))
}

func (f *family) instances() (instances []*instance) {
	for _, d := range f.datacenters {
		instances = append(instances, d.instances...)
	}
	return instances
}

// families groups the services by family, in order, without those that only have sidecars and gateways.
func (m *Mapper) families(name, label string, scopes []Service) (families []*family) {
	scopes = slices.Clone(scopes)
	for i := range scopes {
		for _, field := range []*string{&scopes[i].Namespace, &scopes[i].Partition} {
			if *field == "default" {
				*field = ""
			}
		}
	}
	slices.SortStableFunc(scopes, func(a, b Service) int { return slices.Compare(a.fields(), b.fields()) })
	var labels [4]map[string]string // DNS labels by value, for each of the fields
	for i := range labels {
		var values []string
		for _, s := range scopes {
			if value := s.fields()[i]; value != "" && !slices.Contains(values, value) {
				values = append(values, value)
			}
		}
		labels[i] = distinct(values)
	}
	perDatacenter := strings.Contains(m.options.HostTemplate, "{datacenter}")
	callable := map[*family]bool{}
	for _, scope := range scopes {
		service := Service{Name: name, Namespace: scope.Namespace, Partition: scope.Partition, Peer: scope.Peer}
		if perDatacenter {
			service.Datacenter = scope.Datacenter
		}
		if len(families) == 0 || !slices.Equal(families[len(families)-1].service.fields(), service.fields()) {
			id := identity{
				label, labels[0][scope.Namespace], labels[1][scope.Partition], labels[2][scope.Peer], labels[3][service.Datacenter],
			}
			families = append(families, &family{service: service, identity: id, host: m.host(id)})
		}
		family := families[len(families)-1]
		if n := len(family.datacenters); n == 0 || family.datacenters[n-1].name != scope.Datacenter {
			datacenter := datacenter{name: scope.Datacenter, identity: family.identity}
			// Datacenters of peers have no name here.
			if m.options.Aliases == aliasesDatacenter && !perDatacenter && scope.Datacenter != "" && scope.Peer == "" {
				datacenter.identity.datacenter = labels[3][scope.Datacenter]
				datacenter.alias = m.host(datacenter.identity)
			}
			family.datacenters = append(family.datacenters, datacenter)
		}
		datacenter := &family.datacenters[len(family.datacenters)-1]
		callable[family] = callable[family] || len(scope.Entries) == 0
		for _, entry := range scope.Entries {
			if i := m.instanceOf(scope.Datacenter, entry); i != nil {
				callable[family] = true
				datacenter.instances = append(datacenter.instances, i)
			}
		}
		slices.SortFunc(datacenter.instances, compareInstances)
	}
	return slices.DeleteFunc(families, func(f *family) bool { return !callable[f] })
}

func (s Service) fields() []string { return []string{s.Namespace, s.Partition, s.Peer, s.Datacenter} }

// host expands the template. Fields that the template lacks stand where Consul's DNS has them:
// service.service[.namespace.ns][.partition.ap][.peer.peer][.datacenter].consul, with ".dc" after a datacenter that
// follows others.
func (m *Mapper) host(id identity) string {
	var qualifiers []string
	replacements := []string{"{service}", id.service}
	for _, field := range [][4]string{
		{"{namespace}", id.namespace, "ns", "default"},
		{"{partition}", id.partition, "ap", "default"},
		{"{peer}", id.peer, "peer", "local"},
		{"{datacenter}", id.datacenter, "dc", "default"},
	} {
		placeholder, label, kind, defaultLabel := field[0], field[1], field[2], field[3]
		switch {
		case label == "" || strings.Contains(m.options.HostTemplate, placeholder):
		case kind == "dc" && len(qualifiers) == 0:
			qualifiers = append(qualifiers, label)
		default:
			qualifiers = append(qualifiers, label, kind)
		}
		if label == defaultLabel { // the default label stands for an empty field
			label = names.Hashed(label, label, names.MaxLabel)
		}
		replacements = append(replacements, placeholder, cmp.Or(label, defaultLabel))
	}
	labels := strings.Split(m.options.HostTemplate, ".")
	position := slices.IndexFunc(labels, func(label string) bool { return strings.Contains(label, "{service}") })
	position = max(position, slices.Index(labels, "service"))
	replacer := strings.NewReplacer(replacements...)
	for i, label := range labels {
		label = replacer.Replace(label)
		labels[i] = names.Fit(label, label, names.MaxLabel)
	}
	return strings.Join(slices.Insert(labels, position+1, qualifiers...), ".")
}

// object returns the name of the objects of an identity. It is unique, because the label of a service has no dot.
func (id identity) object() string {
	labels := []string{id.service}
	for _, field := range [][2]string{
		{id.namespace, "ns"}, {id.partition, "ap"}, {id.peer, "peer"}, {id.datacenter, "dc"},
	} {
		if field[0] != "" {
			labels = append(labels, field[:]...)
		}
	}
	return strings.Join(labels, ".")
}

// claim is the DNS label of a service among all services.
type claim struct {
	label   string // empty if another name stands for the same service
	warning string // another service claims the label, too; empty if none does
}

// Names receives the names of all services, whenever they change. Names that differ only by case or by characters that
// a host cannot have clash: one gets the label, and the others a label with a hash. Names returns the services whose
// label changed, in order.
//
// Consul ignores case, though it lists such names separately: it answers each with the instances of all.
func (m *Mapper) Names(services []string) (relabeled []string) {
	rivals := map[string][]string{}
	for _, name := range services {
		label := labelOf(name)
		rivals[label] = append(rivals[label], name)
	}
	before := m.claims
	m.claims = make(map[string]claim, len(services))
	for label, claimants := range rivals {
		first := slices.MinFunc(claimants, compareFit)
		for _, name := range claimants {
			spellings := slices.DeleteFunc(slices.Clone(claimants), func(claimant string) bool {
				return !strings.EqualFold(claimant, name)
			})
			best := slices.MinFunc(spellings, compareFit)
			place := "consul service " + name + ": "
			claim := claim{}
			switch name {
			case first:
				claim.label = label
			case best:
				claim.label = names.Hashed(label, strings.ToLower(name), names.MaxLabel)
				claim.warning = valid(place + `its host would be that of "` + first + `", and is "` + claim.label +
					`" therefore`)
			default:
				claim.warning = valid(place + `to Consul it is the same as "` + best + `", and is served as that`)
			}
			m.claims[name] = claim
			if previous, claimed := before[name]; claimed && previous.label != claim.label {
				relabeled = append(relabeled, name)
			}
		}
	}
	slices.Sort(relabeled)
	return relabeled
}

// labelOf returns the DNS label of a name without rivals.
func labelOf(name string) string {
	label := names.Clean(name)
	if label == "" || len(label) > names.MaxLabel {
		return names.Hashed(label, name, names.MaxLabel)
	}
	return label
}

// compareFit orders names with the same label: first the label itself, then the names that differ by case only.
func compareFit(first, second string) int {
	changes := func(name string) int {
		switch names.Clean(name) {
		case name:
			return 0
		case strings.ToLower(name):
			return 1
		}
		return 2
	}
	return cmp.Or(changes(first)-changes(second), strings.Compare(first, second))
}

// distinct gives each text a DNS label of its own. If several have the same label, all but one get a hash.
func distinct(texts []string) map[string]string {
	labels := make(map[string]string, len(texts))
	taken := make(map[string]bool, len(texts))
	for _, text := range slices.SortedFunc(slices.Values(texts), compareFit) {
		label := labelOf(text)
		if taken[label] {
			label = names.Hashed(label, text, names.MaxLabel)
		}
		labels[text] = label
		taken[label] = true
	}
	return labels
}

// hash returns a hash of several texts.
func hash(parts ...string) string { return names.Hash(strings.Join(parts, "\x00")) }
