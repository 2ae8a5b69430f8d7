package aggregate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tributary/aggregate/conflicts"
	"tributary/resource"
)

// Merged describes the parts of a merged ServiceEntry.
type Merged struct {
	Members    []Member   `json:"members"`             // in order of precedence; ports, labels etc. come from the first
	Refused    []Member   `json:"refused,omitempty"`   // in order of precedence
	Resolution string     `json:"resolution"`          // follows from the endpoints of all members
	Endpoints  []Endpoint `json:"endpoints,omitempty"` // in order of address
}

// Member is one source's part of a merged ServiceEntry, served or refused.
type Member struct {
	Statement
	Name   string `json:"name"`             // the name of the ServiceEntry in the source
	Reason string `json:"reason,omitempty"` // why it is refused
}

// Endpoint describes an endpoint and its sources.
type Endpoint struct {
	Address  string            `json:"address"`
	Ports    map[uint32]uint32 `json:"ports,omitempty"` // from port of the service to port of the endpoint
	Network  string            `json:"network,omitempty"`
	Locality string            `json:"locality,omitempty"`
	Source   string            `json:"source"`            // the source that decides its properties
	Place    string            `json:"place,omitempty"`   // the place of its definition
	Also     []string          `json:"also,omitempty"`    // the other sources that list it
	Standby  bool              `json:"standby,omitempty"` // not served while sources of a lower priority number list any
}

func (e *memberEndpoint) provenance() Endpoint {
	endpoint := Endpoint{
		Address: e.endpoint.Address, Ports: e.ports(), Network: e.endpoint.Network, Locality: e.endpoint.Locality,
		Source: e.from.name, Place: e.res.Origin().Place, Standby: e.standby,
	}
	if locality := e.from.merge.Locality; locality != "" {
		endpoint.Locality = locality
	}
	for _, m := range e.duplicates {
		if m.from.name != e.from.name && !slices.Contains(endpoint.Also, m.from.name) {
			endpoint.Also = append(endpoint.Also, m.from.name)
		}
	}
	return endpoint
}

// explain adds the pool's part to an explanation.
func (p *pool) explain(explanation *Explanation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := explanation.Object.Key()
	if groups := p.claims[key]; len(groups) > 0 && explanation.Winner != nil && explanation.Winner.fromPool {
		for _, s := range p.ownedEntries(groups[0]) {
			if s.key() == key {
				explanation.addMerged(s)
			}
		}
	}
	if explanation.Winner != nil {
		return
	}
	var texts []string
	for _, from := range p.holders(key) {
		for _, s := range p.relatedEntries(p.entries[entry{from, key}]) {
			texts = append(texts, s.outcomes(from, key)...)
		}
	}
	if texts != nil {
		explanation.Why = strings.Join(texts, "; ")
	}
}

// describe describes object, of the source, for explanations.
func (c *contributor) describe(r *resource.Resource) Statement {
	description := statement(c.name, c.precedence, r)
	description.Retired = c.retired
	return description
}

// holders returns the sources with an entry of key, in order of precedence. The caller holds mu.
func (p *pool) holders(key resource.Key) (contributors []*contributor) {
	for _, from := range p.contributors {
		if _, ok := p.entries[entry{from, key}]; ok {
			contributors = append(contributors, from)
		}
	}
	return contributors
}

// outcomes returns sentences that tell whether a source's entry of key is a member, or was refused.
func (m *mergedEntry) outcomes(from *contributor, key resource.Key) (texts []string) {
	match := func(m *member) bool { return m.from == from && m.res.Key() == key }
	if slices.ContainsFunc(m.members, match) {
		texts = append(texts, fmt.Sprintf("the entry of %s is merged into %s", from.name, m.key().FullName()))
	}
	for _, refusal := range m.refused {
		if match(refusal.member) {
			texts = append(texts, fmt.Sprintf("the entry of %s cannot be merged into %s: %s", from.name, m.key().FullName(),
				refusal.reason))
		}
	}
	return texts
}

// addMerged adds the parts of a merged entry.
func (e *Explanation) addMerged(merged *mergedEntry) {
	e.Merged = &Merged{}
	var names []string
	for _, member := range merged.members {
		e.Merged.Members = append(e.Merged.Members, member.member(""))
		if !slices.Contains(names, member.from.name) {
			names = append(names, member.from.name)
		}
	}
	for _, r := range merged.refused {
		e.Merged.Refused = append(e.Merged.Refused, r.member.member(r.reason))
	}
	e.Merged.Resolution = merged.resolution.String()
	e.Merged.Endpoints = merged.provenance()
	if c, ok := merged.conflict(); ok {
		e.Conflicts = append(e.Conflicts, c)
		slices.SortFunc(e.Conflicts, conflicts.Compare)
	}
	sentences := []string{"endpoints are merged from " + strings.Join(names, ", ")}
	sentences = append(sentences, merged.whyResolution()...)
	e.Why = strings.Join(append(sentences, e.Why), "; ")
}

// whyResolution returns why the resolution is not that of the leading member.
func (m *mergedEntry) whyResolution() []string {
	lead := m.members[0]
	switch {
	case m.resolution == lead.spec.GetResolution():
		return nil
	case idle(lead.spec):
		return []string{fmt.Sprintf("resolution is %s, by the endpoints of the others: %s has none", m.resolution,
			lead.from.name)}
	default:
		return []string{fmt.Sprintf("resolution is %s, not %s as in %s: addresses and names are mixed",
			m.resolution, lead.spec.GetResolution(), lead.from.name)}
	}
}

func (m *member) member(reason string) Member {
	return Member{Statement: m.from.describe(m.res), Name: m.res.Key().Name, Reason: reason}
}

// conflicts returns the conflicts of all merged entries with the members that they refused.
func (p *pool) conflicts() (disputes []conflicts.Conflict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g := range p.hasRefusals {
		for _, s := range p.ownedEntries(g) {
			if c, ok := s.conflict(); ok {
				disputes = append(disputes, c)
			}
		}
	}
	return disputes
}

// conflict returns the conflict of a merged entry with the members that it refused, or false if there are none.
func (m *mergedEntry) conflict() (conflicts.Conflict, bool) {
	if len(m.refused) == 0 {
		return conflicts.Conflict{}, false
	}
	lead := m.members[0]
	host, _, _ := strings.Cut(m.group.hosts, ",")
	conflict := conflicts.Conflict{
		Rule: conflicts.MergeEndpoints, Host: host, Subject: m.key().FullName(),
		Objects: []conflicts.Ref{conflicts.Ref(lead.res.Key())},
	}
	var reasons []string
	named := map[conflicts.Ref]bool{conflict.Objects[0]: true}
	for _, refusal := range m.refused {
		if ref := conflicts.Ref(refusal.res.Key()); !named[ref] { // the sources may have it under one key
			named[ref] = true
			conflict.Objects = append(conflict.Objects, ref)
		}
		reasons = append(reasons,
			fmt.Sprintf("%s of %s (%s)", refusal.res.Key().FullName(), refusal.from.name, refusal.reason))
	}
	reason := "which comes first in precedence"
	if first := m.refused[0]; first.from.rank < lead.from.rank {
		reason = "the first in precedence that has endpoints"
	}
	conflict.Message = fmt.Sprintf("%s of %s is served, %s; refused, as they cannot be merged with it: %s",
		lead.res.Key().FullName(), lead.from.name, reason, strings.Join(reasons, "; "))
	return conflict, true
}

// Refusal is a ServiceEntry that is not served, since it cannot be merged.
type Refusal struct {
	Key    resource.Key // in its source
	Winner Candidate    // the merged entry that has its host and port
	Loser  Candidate
	Reason string
}

// Refusals returns the refused ServiceEntries, in order of key.
func (v *View) Refusals() (refusals []Refusal) {
	v.pool.mu.Lock()
	defer v.pool.mu.Unlock()
	for g := range v.pool.hasRefusals {
		for _, s := range v.pool.ownedEntries(g) {
			winner := s.object()
			for _, refusal := range s.refused {
				refusals = append(refusals, Refusal{
					Key: refusal.res.Key(), Winner: Candidate{winner.Origin().Source, winner},
					Loser:  Candidate{refusal.from.name, refusal.res},
					Reason: refusal.reason,
				})
			}
		}
	}
	slices.SortFunc(refusals, func(a, b Refusal) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Loser.Source, b.Loser.Source))
	})
	return refusals
}
