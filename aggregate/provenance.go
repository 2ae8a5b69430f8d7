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

func (l *listing) provenance() Endpoint {
	endpoint := Endpoint{
		Address: l.endpoint.Address, Ports: l.ports(), Network: l.endpoint.Network, Locality: l.endpoint.Locality,
		Source: l.from.name, Place: l.res.Origin().Place, Standby: l.standby,
	}
	if locality := l.from.merge.Locality; locality != "" {
		endpoint.Locality = locality
	}
	for _, m := range l.also {
		if m.from.name != l.from.name && !slices.Contains(endpoint.Also, m.from.name) {
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
		for _, s := range p.services(groups[0]) {
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
		for _, s := range p.related(p.entries[entry{from, key}]) {
			texts = append(texts, s.outcomes(from, key)...)
		}
	}
	if texts != nil {
		explanation.Why = strings.Join(texts, "; ")
	}
}

// describe describes object, of the source, for explanations.
func (c *contributor) describe(r *resource.Resource) Statement {
	st := statement(c.name, c.precedence, r)
	st.Retiring = c.retired
	return st
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

// outcomes tells whether an entry is merged into the service or refused by it.
func (s *service) outcomes(from *contributor, key resource.Key) (texts []string) {
	match := func(m *member) bool { return m.from == from && m.res.Key() == key }
	if slices.ContainsFunc(s.members, match) {
		texts = append(texts, fmt.Sprintf("the entry of %s is merged into %s", from.name, s.key().FullName()))
	}
	for _, refusal := range s.refused {
		if match(refusal.member) {
			texts = append(texts, fmt.Sprintf("the entry of %s cannot be merged into %s: %s", from.name, s.key().FullName(),
				refusal.reason))
		}
	}
	return texts
}

// addMerged adds the parts of a merged service.
func (e *Explanation) addMerged(service *service) {
	e.Merged = &Merged{}
	var names []string
	for _, member := range service.members {
		e.Merged.Members = append(e.Merged.Members, member.member(""))
		if !slices.Contains(names, member.from.name) {
			names = append(names, member.from.name)
		}
	}
	for _, r := range service.refused {
		e.Merged.Refused = append(e.Merged.Refused, r.member.member(r.reason))
	}
	e.Merged.Resolution, e.Merged.Endpoints = service.resolution.String(), service.provenance()
	if c, ok := service.conflict(); ok {
		e.Conflicts = append(e.Conflicts, c)
		slices.SortFunc(e.Conflicts, conflicts.Compare)
	}
	e.Why = strings.Join(append(append([]string{"endpoints are merged from " + strings.Join(names, ", ")},
		service.whyResolution()...), e.Why), "; ")
}

// whyResolution returns why the resolution is not that of the leading member.
func (s *service) whyResolution() []string {
	lead := s.members[0]
	switch {
	case s.resolution == lead.spec.GetResolution():
		return nil
	case idle(lead.spec):
		return []string{fmt.Sprintf("resolution is %s, by the endpoints of the others: %s has none", s.resolution,
			lead.from.name)}
	default:
		return []string{fmt.Sprintf("resolution is %s, not %s as in %s: addresses and names are mixed",
			s.resolution, lead.spec.GetResolution(), lead.from.name)}
	}
}

func (m *member) member(reason string) Member {
	return Member{Statement: m.from.describe(m.res), Name: m.res.Key().Name, Reason: reason}
}

// conflicts returns the services with refusals.
func (p *pool) conflicts() (disputes []conflicts.Conflict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g := range p.disputed {
		for _, s := range p.services(g) {
			if c, ok := s.conflict(); ok {
				disputes = append(disputes, c)
			}
		}
	}
	return disputes
}

// conflict returns the conflict of a service with the members that it refused, or false if there are none.
func (s *service) conflict() (conflicts.Conflict, bool) {
	if len(s.refused) == 0 {
		return conflicts.Conflict{}, false
	}
	lead := s.members[0]
	host, _, _ := strings.Cut(s.group.hosts, ",")
	conflict := conflicts.Conflict{
		Rule: conflicts.MergeEndpoints, Host: host, Subject: s.key().FullName(),
		Objects: []conflicts.Ref{conflicts.Ref(lead.res.Key())},
	}
	var reasons []string
	named := map[conflicts.Ref]bool{conflict.Objects[0]: true}
	for _, refusal := range s.refused {
		if ref := conflicts.Ref(refusal.res.Key()); !named[ref] { // the sources may have it under one key
			named[ref] = true
			conflict.Objects = append(conflict.Objects, ref)
		}
		reasons = append(reasons,
			fmt.Sprintf("%s of %s (%s)", refusal.res.Key().FullName(), refusal.from.name, refusal.reason))
	}
	reason := "which comes first in precedence"
	if first := s.refused[0]; first.from.rank < lead.from.rank {
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
	for g := range v.pool.disputed {
		for _, s := range v.pool.services(g) {
			winner := s.entry()
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
