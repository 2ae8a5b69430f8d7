package consul

import (
	"fmt"
	"slices"
	"strings"
)

// domain is a part of Consul that can fail on its own: a datacenter, with a namespace, a partition, and what a peer
// exports to it. Empty fields are what the agent takes for them.
type domain struct {
	datacenter, namespace, partition, peer string
}

// String names the domain in messages.
func (d domain) String() string {
	var parts []string
	for _, p := range []struct{ name, value string }{
		{"datacenter", d.datacenter}, {"partition", d.partition}, {"namespace", d.namespace}, {"peer", d.peer},
	} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	return strings.Join(parts, " ")
}

// domains returns all that the settings name: every namespace of every partition of every datacenter, and of what peers
// export the same for the agent's own datacenter, the only one that Consul answers such queries for.
func (s Settings) domains() []domain {
	var all []domain
	for _, dc := range orDefault(s.Datacenters) {
		for _, partition := range orDefault(s.Partitions) {
			for _, namespace := range orDefault(s.Namespaces) {
				all = append(all, domain{datacenter: dc, namespace: namespace, partition: partition})
			}
		}
	}
	for _, peer := range s.Peers {
		for _, partition := range orDefault(s.Partitions) {
			for _, namespace := range orDefault(s.Namespaces) {
				all = append(all, domain{peer: peer, namespace: namespace, partition: partition})
			}
		}
	}
	return all
}

// orDefault returns the names, or the one that stands for the agent's default.
func orDefault(names []string) []string {
	if len(names) == 0 {
		return []string{""}
	}
	return names
}

// checkNames refuses lists with a name that is empty or there twice.
func checkNames(names []string) error {
	for i, n := range names {
		if strings.TrimSpace(n) == "" {
			return fmt.Errorf("entry %d is empty", i+1)
		}
		if slices.Contains(names[:i], n) {
			return fmt.Errorf("%s is there twice", n)
		}
	}
	return nil
}

// selection decides by name and tags which services are read at all.
type selection struct {
	services, skip []string // patterns in which * stands for anything
	tags           []string
	selects        func(name string, tags []string) bool // nil for all
}

// ownService is the service by which Consul's servers list themselves.
const ownService = "consul"

func (s selection) wants(name string, tags []string) bool {
	matches := func(pattern string) bool { return matchPattern(pattern, name) }
	switch {
	case name == "" || name == ownService:
		return false
	case len(s.services) > 0 && !slices.ContainsFunc(s.services, matches):
		return false
	case slices.ContainsFunc(s.skip, matches):
		return false
	}
	for _, tag := range s.tags {
		if !slices.Contains(tags, tag) {
			return false
		}
	}
	return s.selects == nil || s.selects(name, tags)
}

// matchPattern reports whether name is of the form of pattern, in which * stands for any number of characters.
func matchPattern(pattern, name string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	if !ok {
		return false
	}
	for {
		var part string
		part, rest, wild = strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
}
