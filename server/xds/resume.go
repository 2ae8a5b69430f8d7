package xds

import "time"

// resumeSotW applies the version of an earlier stream, for which the goal may know the state. It says what the client has; the names of
// the first request are answered all the same. A client that subscribes by name may hold what only newer responses kept for it: names
// that exist nowhere are gone.
func (s *subscription) resumeSotW() {
	former := s.goal.former(s.formerVersion)
	s.client.state, s.formerVersion = former, ""
	for name := range s.wants.names {
		delete(s.client.notHeld, name)
		switch {
		case s.goal.get(name) != nil || former.get(name) != nil:
			s.client.mustResend(name)
		case !s.wants.all && s.inFull(&s.wants) && s.coll.typ.ChildURL != "":
			put(&s.client.gone, name, "")
			s.behind = true
		default:
			s.client.mustAnswer(name)
		}
	}
}

// deletesGone says whether a full response would only delete resources that are gone, and which the client may still use: it has asked for
// nothing else since it came back.
func (h *clientState) deletesGone(w *subscriptionNames, goal *state) bool {
	for name, sent := range h.notHeld {
		if !bool(sent) && goal.get(name) != nil {
			return false
		}
	}
	for name := range h.gone {
		if w.includes(name) && goal.get(name) == nil {
			return true
		}
	}
	return false
}

// sentVersion returns the version of a response. To a client that subscribes by name, it is that of the collection, although the
// client may keep more: a later process knows no other.
func (s *subscription) sentVersion() string {
	if s.delta || s.wants.all || s.preannounced != nil {
		return s.client.state.version
	}
	return s.goal.version
}

// resumptionTime is how long a SotW client that comes back takes for the first requests of all types, which it sends at once.
const resumptionTime = time.Second

// awaitsResumption says whether p changes what the client has before it said which dependencies it has: see preannounceFirst.
func (s *stream) awaitsResumption(sub *subscription, p *responsePlan, now time.Time) bool {
	typ := &sub.coll.typ
	return typ.Preannounce != nil && !sub.delta && sub.client.state.len > 0 && s.ofCollections(typ.DependencyURL) == nil &&
		sub.client.moves(p) && s.lookAgain(sub.resumed.Add(resumptionTime).Sub(now))
}
