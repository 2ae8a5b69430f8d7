package sources

import "tributary/sources/lastgood"

// inherit makes the sink of a source that has not begun go on with what another one has, which has ended and was of the same source by
// other settings. What is read anew replaces that; what cannot be read, is not valid or is held stays.
func (s *sink) inherit(from *sink) {
	from.mu.Lock()
	had, note, name := from.ledger, from.note, from.source.String()
	from.ledger = newLedger(from.guard)
	from.mu.Unlock()

	s.guard.Inherit(from.guard)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger, had.held = had, s.guard
	if now := s.source.String(); now != name {
		s.ledger.relabel(now)
		s.guard.Relabel(now)
	}
	s.ledger.outdate()
	s.note = note
	if s.remember != nil {
		s.remember(note)
	}
}

// reread notes that what the source begins with was made by other settings, by an earlier run.
func (s *sink) reread() {
	s.guard.Reread()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.outdate()
}

// loaded returns what the source begins with, from where it is kept.
func loaded(spec Spec) (*lastgood.Kept, error) {
	if spec.Former == nil {
		return spec.Memory.Load()
	}
	spec.Former.Rename(spec.Name)
	return spec.Former.Load()
}
