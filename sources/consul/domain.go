package consul

import (
	"regexp"
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
	for _, p := range [][2]string{{"datacenter", d.datacenter}, {"partition", d.partition}, {"namespace", d.namespace}, {"peer", d.peer}} {
		if p[1] != "" {
			parts = append(parts, p[:]...)
		}
	}
	return strings.Join(parts, " ")
}

// domains returns all that the settings name: every namespace of every partition of every datacenter, and of what peers
// export the same for the agent's own datacenter, the only one that Consul answers such queries for.
func (s Settings) domains() (all []domain) {
	orDefault := func(names []string) []string { // of the agent
		if len(names) == 0 {
			return []string{""}
		}
		return names
	}
	var whole []domain
	for _, dc := range orDefault(s.Datacenters) {
		whole = append(whole, domain{datacenter: dc})
	}
	for _, peer := range s.Peers {
		whole = append(whole, domain{peer: peer})
	}
	for _, d := range whole {
		for _, d.partition = range orDefault(s.Partitions) {
			for _, d.namespace = range orDefault(s.Namespaces) {
				all = append(all, d)
			}
		}
	}
	return all
}

// selection decides by name and tags which services are read at all.
type selection struct {
	services, skip *regexp.Regexp // nil for none
	tags           []string
	selects        func(name string, tags []string) bool // nil for all
}

// patterns returns an expression for names, in which * stands for any characters; nil for none.
func patterns(all []string) *regexp.Regexp {
	if len(all) == 0 {
		return nil
	}
	text := regexp.QuoteMeta(strings.ToValidUTF8(strings.Join(all, "\x00"), "?"))
	return regexp.MustCompile("^(?s:" + strings.NewReplacer(`\*`, ".*", "\x00", "|").Replace(text) + ")$")
}

// ownService is the service by which Consul's servers list themselves.
const ownService = "consul"

func (s selection) wants(name string, tags []string) bool {
	switch {
	case name == "" || name == ownService:
		return false
	case s.services != nil && !s.services.MatchString(name), s.skip != nil && s.skip.MatchString(name):
		return false
	case slices.ContainsFunc(s.tags, func(tag string) bool { return !slices.Contains(tags, tag) }):
		return false
	}
	return s.selects == nil || s.selects(name, tags)
}
