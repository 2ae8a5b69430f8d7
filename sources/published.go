package sources

import "tributary/resource"

// Recaller is what a Sink is besides, for sources that can ask their system for no more than what is different.
type Recaller interface {
	// Published returns what the group of that name has, published by this run of the source or an earlier one, also of an
	// earlier process. It is nil if that need not be what the source published: the source has transforms, or had other
	// settings, or something of the group is quarantined. It must not be modified.
	Published(group string) []*resource.Resource
}

// Published implements Recaller.
func (s *sink) Published(group string) []*resource.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.ledger.groups[group]
	if s.judge.transform != nil || g == nil || g.outdated || len(g.quarantine) > 0 {
		return nil
	}
	return g.has
}
