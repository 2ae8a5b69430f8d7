package xds

import "time"

// resumeSotW applies the version of an earlier stream: its state, if the goal has that in its history, is the client's.
// The response still has the names of the first request. Names without an entry in both states are gone.
func (s *subscription) resumeSotW() {
	former := s.goal.former(s.formerVersion)
	s.client.state, s.formerVersion = former, ""
	for name := range s.selection.names {
		delete(s.client.notHeld, name)
		switch {
		case s.goal.get(name) != nil || former.get(name) != nil:
			s.client.mustResend(name)
		case !s.selection.wildcard && s.inFull(&s.selection) && s.coll.typ.ChildURL != "":
			put(&s.client.removed, name, "")
			s.behind = true
		default:
			s.client.mustAnswer(name)
		}
	}
}

// deletesGone says whether a full response would only delete resources that are gone, which the client may still use:
// since it came back, it has asked for no other.
func (h *clientState) deletesGone(w *subscriptionNames, goal *state) bool {
	for name, sent := range h.notHeld {
		if !bool(sent) && goal.get(name) != nil {
			return false
		}
	}
	for name := range h.removed {
		if w.includes(name) && goal.get(name) == nil {
			return true
		}
	}
	return false
}

// sentVersion returns the version of a response. To a client that subscribes by name, it is that of the collection,
// although the client may keep more: a later process has no other in its history.
func (s *subscription) sentVersion() string {
	if s.delta || s.selection.wildcard || s.preannounced != nil {
		return s.client.state.version
	}
	return s.goal.version
}

// resumptionTime bounds the time between the first requests of a SotW client that comes back: it sends them at once.
const resumptionTime = time.Second

// awaitsResumption says whether p changes resources of the client before the first request of their dependencies: see
// preannounceFirst.
func (s *stream) awaitsResumption(sub *subscription, p *responsePlan, now time.Time) bool {
	typ := &sub.coll.typ
	return typ.Preannounce != nil && !sub.delta && sub.client.state.len > 0 &&
		s.ofCollections(typ.DependencyURL) == nil && sub.client.moves(p) &&
		s.lookAgain(sub.resumed.Add(resumptionTime).Sub(now))
}
