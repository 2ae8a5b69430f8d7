package sources

import (
	"slices"

	"tributary/resource"
)

// Recaller is what a Sink is besides, for sources that can ask their system for no more than what is different.
type Recaller interface {
	// Published returns what is served of the group of that name, published by this run of the source or an earlier one, also of an
	// earlier process, whatever its settings were. It must not be modified.
	Published(group string) []*resource.Resource
	// Exact reports whether Published returns what the source itself published by its present settings: no transform changed it, and nothing
	// of it is quarantined.
	Exact(group string) bool
}

// Published implements Recaller.
func (s *sink) Published(group string) []*resource.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.ledger.groups[group]
	if g == nil {
		return nil
	}
	all := slices.Clip(g.has)
	for key := range g.keeps {
		all = append(all, s.ledger.winners[key].resource)
	}
	return all
}

// Exact implements Recaller.
func (s *sink) Exact(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.ledger.groups[group]
	return s.judge.transform == nil && g != nil && !g.outdated && len(g.quarantine) == 0
}
