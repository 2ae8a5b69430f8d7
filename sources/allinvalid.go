package sources

import "fmt"

// isAllInvalid reports whether the source has objects, but not one that is valid, left out on purpose, kept or held. If all objects are
// invalid before anything was ever served, the cause is more often in how the source is read than in each object. Clients that are sent an
// empty answer would drop what they have. So such a source does not count as read. The caller holds mu.
func (s *sink) isAllInvalid() bool {
	return !s.partial && s.restored == nil && s.ledger.allInvalid() && s.guard.Snapshot().Len() == 0
}

func (l *ledger) allInvalid() bool {
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

// syncIfValid makes a source count as read that was read when all its objects were invalid, once that is no longer so.
func (s *sink) syncIfValid() {
	s.mu.Lock()
	due := s.allInvalid && !s.isAllInvalid()
	s.mu.Unlock()
	if due {
		s.Synced()
	}
}

// condition is the health as it is told: what the source says of itself, and that nothing of what it read is valid. The caller holds mu.
func (s *sink) condition() Health {
	h := s.health
	if !s.allInvalid {
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
