package xds

import "time"

// resumeSotW applies the version of an earlier stream. If the goal has the state of that version in its history, the
// client has that state. The response still has the names of the first request. Names without an entry in both states
// are gone.
func (s *subscription) resumeSotW() {
	former := s.goal.former(s.formerVersion)
	s.client.state = former
	s.formerVersion = ""
	for name := range s.selection.names {
		delete(s.client.notHeld, name)
		switch {
		case s.goal.get(name) != nil || former.get(name) != nil:
			s.client.mustResend(name)
		case !s.selection.wildcard && s.inFull(&s.selection) && s.coll.typ.ChildURL != "":
			put(&s.client.removed, name, "")
			s.childrenBehind = true
		default:
			s.client.mustAnswer(name)
		}
	}
}

// deletesGone reports whether a full response would only delete nonexistent resources that the client may still use:
// since the client came back, it has requested no other.
func (c *clientState) deletesGone(wanted *subscriptionNames, goal *state) bool {
	for name, sent := range c.notHeld {
		if !bool(sent) && goal.get(name) != nil {
			return false
		}
	}
	for name := range c.removed {
		if wanted.includes(name) && goal.get(name) == nil {
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

// awaitsResumption reports whether a response changes resources of the client before the client's first request for
// their dependencies: see preannounceFirst.
func (s *stream) awaitsResumption(sub *subscription, response *responsePlan, now time.Time) bool {
	typ := &sub.coll.typ
	return typ.Preannounce != nil && !sub.delta && sub.client.state.len > 0 &&
		s.subscriptionTo(typ.DependencyURL) == nil && sub.client.moves(response) &&
		s.dueIn(sub.resumed.Add(resumptionTime).Sub(now))
}
