package xds

import "time"

// fallBack notes that the client rejects an entry, and chooses the fallback. An entry that the client holds counts only
// if the client acknowledged it: an unanswered response leaves in doubt which one it holds.
func (s *subscription) fallBack(rejection *Rejection, entry *Entry, now time.Time) {
	s.answers.fallbackGoal = nil
	fallback := s.coll.typ.Fallback
	if entry.fallback && entry != rejection.instead { // of an earlier answer
		return
	}
	if !entry.fallback {
		rejection.Version = entry.Version
		rejection.rejected = entry
		rejection.instead = nil
	}
	if s.unanswered != 0 || rejection.held == nil && s.returned {
		rejection.held = nil
		rejection.unknown = true
	}
	if fallback == nil || entry.Name == "" || rejection.held == nil && !rejection.unknown {
		return
	}
	instead, description := fallback(rejection.held, rejection.rejected, entry.fallback)
	if instead == nil || entry.fallback && instead.Version == entry.Version {
		return
	}
	instead.fallback = true
	rejection.instead = instead
	rejection.Fallback = description
	s.pace.changed = time.Time{} // it does not wait
	if rejection.UnenforcedSince.IsZero() {
		rejection.UnenforcedSince = now
	}
}

// withFallbacks returns a state of the collection with the fallbacks for entries that the client rejects.
func (s *subscription) withFallbacks(goal *state) *state {
	answers := &s.answers
	if len(answers.rejected) == 0 || s.coll.typ.Fallback == nil {
		return goal
	}
	if answers.fallbackGoal != goal {
		var fallbacks []*Entry
		for name, rejection := range answers.rejected {
			switch entry := goal.get(name); {
			case rejection.instead == nil || entry == nil:
			case entry.Version == rejection.Version:
				fallbacks = append(fallbacks, rejection.instead)
			case entry.Version == rejection.instead.Version && rejection.UnenforcedSince.IsZero(): // the fallback is served now
				delete(answers.rejected, name)
			}
		}
		answers.fallbackGoal = goal
		answers.fallbackState = goal.withPuts(fallbacks)
	}
	return answers.fallbackState
}

// shown returns the state of the collection that the client is to have.
func (s *subscription) shown() *state { return s.withFallbacks(s.coll.shown.Load()) }

// mentioned returns the entries that a type with fallbacks has sent and that the reason of a late rejection names. A
// truncated reason may name any of them.
func (s *subscription) mentioned(reason string) (entries []*Entry) {
	if s.coll.typ.Fallback == nil {
		return nil
	}
	for e := range s.client.state.entries() {
		if isTruncated(reason) || mentions(reason, e.Name) {
			entries = append(entries, e)
		}
	}
	return entries
}
