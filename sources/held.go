package sources

import "tributary/resource"

// Holder is what a Sink is besides, for sources that can ask their system for no more than what is different.
type Holder interface {
	// Held returns what the group of that name holds, published by this run of the source or an earlier one, also of an
	// earlier process. It is nil if that need not be what the source published: the source has transforms, or something of the
	// group is quarantined. It must not be modified.
	Held(group string) []*resource.Resource
}

// Held implements Holder.
func (s *sink) Held(group string) []*resource.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.ledger.groups[group]
	if s.judge.transform != nil || g == nil || len(g.quarantine) > 0 {
		return nil
	}
	return g.has
}
