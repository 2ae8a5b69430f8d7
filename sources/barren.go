package sources

import "fmt"

// isBarren reports whether something was found, and not one object of ours that is valid, left out on purpose, kept or held: then it is not
// known what there is. That all of it is wrong at once, before anything was ever served, is more often a mistake in how it is read than in
// each, and clients who are told that there is nothing drop what they have. The caller holds mu.
func (s *sink) isBarren() bool {
	return !s.partial && s.restored == nil && s.ledger.barren() && s.guard.Snapshot().Len() == 0
}

func (l *ledger) barren() bool {
	if l.quarantined == 0 || len(l.winners) > 0 {
		return false
	}
	found := false
	for _, g := range l.groups {
		if len(g.excluded) > 0 {
			return false
		}
		for _, q := range g.quarantine {
			found = found || !q.foreign
		}
	}
	return found
}

// revive makes the source count as read if it was, and is not barren any more.
func (s *sink) revive() {
	s.mu.Lock()
	due := s.barren && !s.isBarren()
	s.mu.Unlock()
	if due {
		s.Synced()
	}
}

// condition is the health as it is told: what the source says of itself, and that nothing of what it read is valid. The caller holds mu.
func (s *sink) condition() Health {
	h := s.health
	if !s.barren {
		return h
	}
	why := fmt.Sprintf("not synced, because not one object of what was found is valid (partialStart: true does without): %d in quarantine",
		s.ledger.quarantined)
	if h.Message != "" {
		why = h.Message + "; " + why
	}
	if h.State == Starting || h.State == Healthy {
		h.State = Degraded
	}
	return Health{State: h.State, Message: why}
}
