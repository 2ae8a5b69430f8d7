package aggregate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tributary/aggregate/conflicts"
	"tributary/resource"
)

// Merged says what a merged ServiceEntry is made of.
type Merged struct {
	Members    []Member   `json:"members"`             // in order of precedence; ports, labels and such are those of the first
	Refused    []Member   `json:"refused,omitempty"`   // in order of precedence
	Resolution string     `json:"resolution"`          // follows from what the endpoints are, whoever leads
	Endpoints  []Endpoint `json:"endpoints,omitempty"` // in order of address
}

// Member is what one source has of a merged ServiceEntry, or would have.
type Member struct {
	Statement
	Name   string `json:"name"`             // of the ServiceEntry in the source
	Reason string `json:"reason,omitempty"` // why it is refused
}

// Endpoint says where an endpoint comes from.
type Endpoint struct {
	Address  string            `json:"address"`
	Ports    map[uint32]uint32 `json:"ports,omitempty"` // from port of the service to port of the endpoint
	Network  string            `json:"network,omitempty"`
	Locality string            `json:"locality,omitempty"`
	Source   string            `json:"source"`            // whose word counts
	Place    string            `json:"place,omitempty"`   // where a person finds it
	Also     []string          `json:"also,omitempty"`    // the other sources that list it
	Standby  bool              `json:"standby,omitempty"` // not served while sources of a lower priority number list any
}

func (l *listing) provenance() Endpoint {
	e := Endpoint{
		Address: l.endpoint.Address, Ports: l.ports(), Network: l.endpoint.Network, Locality: l.endpoint.Locality,
		Source: l.from.name, Place: l.res.Origin().Place, Standby: l.standby,
	}
	if locality := l.from.merge.Locality; locality != "" {
		e.Locality = locality
	}
	for _, m := range l.also {
		if m.from.name != l.from.name && !slices.Contains(e.Also, m.from.name) {
			e.Also = append(e.Also, m.from.name)
		}
	}
	return e
}

// explain adds to e what the pool knows of its key.
func (p *pool) explain(e *Explanation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := e.Object.Key()
	if families := p.claims[key]; len(families) > 0 && e.Winner != nil && e.Winner.merged {
		for _, s := range p.services(families[0]) {
			if s.key() == key {
				e.merged(s)
			}
		}
	}
	if e.Winner != nil {
		return
	}
	var told []string
	for _, from := range p.having(key) {
		for _, s := range p.about(p.entries[entry{from, key}]) {
			told = append(told, s.tell(from, key)...)
		}
	}
	if told != nil {
		e.Why = strings.Join(told, "; ")
	}
}

// cite says in explanations that the source says r.
func (c *contributor) cite(r *resource.Resource) Statement {
	cited := statement(c.name, c.precedence, r)
	cited.Retiring = c.retired
	return cited
}

// having returns who has an entry of key, in order of precedence. The caller holds mu.
func (p *pool) having(key resource.Key) (all []*contributor) {
	for _, from := range p.contributors {
		if _, ok := p.entries[entry{from, key}]; ok {
			all = append(all, from)
		}
	}
	return all
}

// tell says what becomes of an entry, if it has to do with the service.
func (s *service) tell(from *contributor, key resource.Key) (told []string) {
	is := func(m *member) bool { return m.from == from && m.res.Key() == key }
	if slices.ContainsFunc(s.members, is) {
		told = append(told, fmt.Sprintf("that of %s is merged into %s", from.name, s.key().FullName()))
	}
	for _, r := range s.refused {
		if is(r.member) {
			told = append(told, fmt.Sprintf("that of %s cannot be merged into %s: %s", from.name, s.key().FullName(), r.reason))
		}
	}
	return told
}

// merged adds to e what s is made of.
func (e *Explanation) merged(s *service) {
	e.Merged = &Merged{}
	var names []string
	for _, m := range s.members {
		e.Merged.Members = append(e.Merged.Members, m.member(""))
		if !slices.Contains(names, m.from.name) {
			names = append(names, m.from.name)
		}
	}
	for _, r := range s.refused {
		e.Merged.Refused = append(e.Merged.Refused, r.member.member(r.reason))
	}
	e.Merged.Resolution, e.Merged.Endpoints = s.resolution.String(), s.provenance()
	if c, ok := s.conflict(); ok {
		e.Conflicts = append(e.Conflicts, c)
		slices.SortFunc(e.Conflicts, conflicts.Compare)
	}
	e.Why = strings.Join(append(append([]string{"endpoints are merged from " + strings.Join(names, ", ")}, s.whyResolution()...), e.Why), "; ")
}

// whyResolution says why the resolution is another than that of the leading member.
func (s *service) whyResolution() []string {
	lead := s.members[0]
	switch {
	case s.resolution == lead.spec.GetResolution():
		return nil
	case idle(lead.spec):
		return []string{fmt.Sprintf("resolution is %s: %s has no endpoints, and those of the others count", s.resolution, lead.from.name)}
	default:
		return []string{fmt.Sprintf("resolution is %s, not %s as in %s, so that addresses and names of all sources and ports of the host can "+
			"stand together",
			s.resolution, lead.spec.GetResolution(), lead.from.name)}
	}
}

func (m *member) member(reason string) Member {
	return Member{Statement: m.from.cite(m.res), Name: m.res.Key().Name, Reason: reason}
}

// conflicts returns the services with refusals.
func (p *pool) conflicts() (all []conflicts.Conflict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.disputed {
		for _, s := range p.services(f) {
			if c, ok := s.conflict(); ok {
				all = append(all, c)
			}
		}
	}
	return all
}

// conflict returns the conflict of a service with those that it refused, or false if there are none.
func (s *service) conflict() (conflicts.Conflict, bool) {
	if len(s.refused) == 0 {
		return conflicts.Conflict{}, false
	}
	lead := s.members[0]
	host, _, _ := strings.Cut(s.family.hosts, ",")
	c := conflicts.Conflict{
		Rule: conflicts.MergeEndpoints, Host: host, Subject: s.key().FullName(),
		Objects: []conflicts.Ref{conflicts.Ref(lead.res.Key())},
	}
	var reasons []string
	named := map[conflicts.Ref]bool{c.Objects[0]: true}
	for _, r := range s.refused {
		if ref := conflicts.Ref(r.res.Key()); !named[ref] { // the sources may have it under one key
			named[ref] = true
			c.Objects = append(c.Objects, ref)
		}
		reasons = append(reasons, fmt.Sprintf("%s of %s (%s)", r.res.Key().FullName(), r.from.name, r.reason))
	}
	why := "which comes first in precedence"
	if first := s.refused[0]; first.from.rank < lead.from.rank {
		why = "the first in precedence that has endpoints"
	}
	c.Message = fmt.Sprintf("%s of %s is served, %s; what cannot be merged with it is not: %s",
		lead.res.Key().FullName(), lead.from.name, why, strings.Join(reasons, "; "))
	return c, true
}

// Refusal is a ServiceEntry that was to be merged, does not fit, and is not served for that.
type Refusal struct {
	Key    resource.Key // in its source
	Winner Candidate    // the merged entry that has its host and port
	Loser  Candidate
	Reason string
}

// Refusals returns what cannot be merged, in order of key.
func (v *View) Refusals() (all []Refusal) {
	v.pool.mu.Lock()
	defer v.pool.mu.Unlock()
	for f := range v.pool.disputed {
		for _, s := range v.pool.services(f) {
			winner := s.merged()
			for _, r := range s.refused {
				all = append(all, Refusal{
					Key: r.res.Key(), Winner: Candidate{winner.Origin().Source, winner}, Loser: Candidate{r.from.name, r.res}, Reason: r.reason,
				})
			}
		}
	}
	slices.SortFunc(all, func(a, b Refusal) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Loser.Source, b.Loser.Source))
	})
	return all
}
