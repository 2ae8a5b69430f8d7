package mapping

import (
	"slices"
	"strings"

	"tributary/internal/names"
)

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
