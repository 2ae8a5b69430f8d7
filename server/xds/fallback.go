package xds

import "time"

// fallBack notes that the client rejects an entry, and chooses the fallback. An entry that the client holds counts only
// if the client acknowledged it: an unanswered response leaves in doubt which one it holds.
func (s *subscription) fallBack(r *Rejection, e *Entry, now time.Time) {
	s.answers.without = nil
	fallback := s.coll.typ.Fallback
	if e.fallback && e != r.instead { // of an earlier answer
		return
	}
	if !e.fallback {
		r.Version, r.rejected, r.instead = e.Version, e, nil
	}
	if s.unanswered != 0 || r.held == nil && s.cameBack {
		r.held, r.unknown = nil, true
	}
	if fallback == nil || e.Name == "" || r.held == nil && !r.unknown {
		return
	}
	instead, description := fallback(r.held, r.rejected, e.fallback)
	if instead == nil || e.fallback && instead.Version == e.Version {
		return
	}
	instead.fallback = true
	r.instead, r.Fallback = instead, description
	s.pace.changed = time.Time{} // it does not wait
	if r.UnenforcedSince.IsZero() {
		r.UnenforcedSince = now
	}
}

// withFallbacks returns a state of the collection with the fallbacks for entries that the client rejects.
func (s *subscription) withFallbacks(goal *state) *state {
	a := &s.answers
	if len(a.rejected) == 0 || s.coll.typ.Fallback == nil {
		return goal
	}
	if a.without != goal {
		var fallbacks []*Entry
		for name, r := range a.rejected {
			switch e := goal.get(name); {
			case r.instead == nil || e == nil:
			case e.Version == r.Version:
				fallbacks = append(fallbacks, r.instead)
			case e.Version == r.instead.Version && r.UnenforcedSince.IsZero(): // the fallback is served now
				delete(a.rejected, name)
			}
		}
		a.without, a.withFallbacks = goal, goal.withPuts(fallbacks)
	}
	return a.withFallbacks
}

// shown returns the state of the collection that the client is to have.
func (s *subscription) shown() *state { return s.withFallbacks(s.coll.shown.Load()) }

// mentioned returns the entries that a type with fallbacks has sent and that the reason of a late rejection names. A
// truncated reason may name any of them.
func (s *subscription) mentioned(reason string) (entries []*Entry) {
	if s.coll.typ.Fallback == nil {
		return nil
	}
	for e := range s.client.state.all() {
		if isTruncated(reason) || mentions(reason, e.Name) {
			entries = append(entries, e)
		}
	}
	return entries
}
