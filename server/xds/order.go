package xds

import (
	"cmp"
	"slices"
	"time"
)

// Types with a rank depend on each other: a route uses a cluster, which has endpoints. An aggregated stream sends them
// so that a client never has a parent without its dependencies.
//
//   - The stream brings the types to one cut: the states that the collections had at one moment, between commits. It
//     takes a newer cut only when the client has all additions of the last one.
//   - Additions go in order of rank. While a client has yet to acknowledge new children (clusters, then their
//     endpoints), parents of higher rank wait.
//   - Clients that subscribe by name to the dependencies of a parent get an interim version of it first: see
//     preannounce.go.
//   - Removals go last, in reverse rank, when the parents are acknowledged. Clients that subscribe by name get
//     AckTimeout after each change of a parent to switch. No wait for one event is longer. If parents keep changing,
//     the stream takes no newer cut after removalTimeouts × AckTimeout until the removal is sent.
//
// Types of children (Type.ChildURL) go ahead of the cut: the newest endpoints of a cluster are never wrong.

// nextOrdered returns the subscription that is sent next and its response. The subscriptions depend on each other and
// are in order of rank.
func (s *stream) nextOrdered(subs []*subscription, now time.Time) (next *subscription, response responsePlan) {
	hasNoCut := s.cuts == nil
	for _, sub := range subs {
		if sub.coll.Synced() && (hasNoCut || sub.goal == initialState) {
			s.followCut(sub)
		}
	}
	for {
		next, response, pending, unanswered := s.additions(subs, now)
		if next == nil && !pending && !unanswered {
			next, response, pending = s.removals(subs, now)
		}
		if next != nil {
			return next, response
		}
		if pending || !s.cut(subs, now) {
			break
		}
	}
	for _, sub := range subs {
		parent := s.parent(sub)
		if parent == nil || !sub.coll.Synced() {
			continue
		}
		if response := parent.planAdditions(); response.adds {
			continue // the parents are about to be sent
		}
		s.followChildren(sub)
		if response := sub.planAdditions(); response.adds && s.maySend(sub, now) {
			return sub, response
		}
	}
	return nil, responsePlan{}
}

// additions returns the next addition. If none can be sent now, pending reports that one waits, and unanswered that the
// client still has to acknowledge children.
func (s *stream) additions(subs []*subscription, now time.Time) (next *subscription, response responsePlan, pending,
	unanswered bool,
) {
	var waiting *subscription // it waits for the client's answer before more is added
	for _, sub := range subs {
		if !sub.coll.Synced() {
			continue
		}
		parent := s.parent(sub)
		ahead := unanswered && parent == nil ||
			waiting != nil && (parent == nil || parent == waiting && !sub.client.answersRequest())
		awaiting := s.awaitsDependencies(sub, now)
		response := sub.planAdditions()
		switch {
		case !response.adds && !awaiting:
			sub.adoptGoal(&response)
			sub.preannounced = nil
		case response.adds && (ahead || s.awaitsResumption(sub, &response, now)):
			pending = true
		case response.adds && s.maySend(sub, now):
			return sub, s.preannounceFirst(sub, response), true, false
		default:
			pending = true
			if parent == nil {
				waiting = sub
			}
		}
		unanswered = s.parentsMustWait(sub, now) || unanswered
	}
	return nil, responsePlan{}, pending, unanswered
}

// removals returns the next removal. If none can be sent now, pending reports that one waits for an acknowledgement,
// and not merely for the client's time to switch (AckTimeout).
func (s *stream) removals(subs []*subscription, now time.Time) (
	next *subscription, response responsePlan, pending bool,
) {
	unanswered := false              // whether a parent is unanswered
	var switchTimeLeft time.Duration // the rest of the client's time to switch after a change of a parent
	hasRoutes := s.subscriptionTo(RouteURL) != nil
	for _, sub := range slices.Backward(subs) {
		if !sub.coll.Synced() {
			continue
		}
		parent := s.parent(sub)
		response := sub.planAll()
		switch {
		case !response.removes:
			sub.adoptGoal(&response)
			sub.removes = time.Time{}
		case s.dueIn(cmp.Or(parent, sub).keepFor(switchTimeLeft, s.server.opts.AckTimeout, now, hasRoutes)):
			if sub.removes.IsZero() {
				sub.removes = now
			}
		case unanswered || !s.maySend(sub, now):
			return nil, responsePlan{}, true
		default:
			return sub, response, true
		}
		if parent == nil {
			unanswered = !s.maySend(sub, now) || unanswered
			switchTimeLeft = max(switchTimeLeft, sub.lastMoved.Add(s.server.opts.AckTimeout).Sub(now))
		}
	}
	return nil, responsePlan{}, false
}

// keepFor returns how long a subscription with children, and its children, must keep all resources, although the client
// has acknowledged the parents. A client that subscribes by name has switchTimeLeft. A resumed client still has to name
// some of its resources, until it subscribes to routes, which come last in delta.
func (s *subscription) keepFor(switchTimeLeft, timeout time.Duration, now time.Time, hasRoutes bool) time.Duration {
	if s.coll.typ.ChildURL == "" {
		return 0
	}
	if s.selection.wildcard {
		switchTimeLeft = 0
	}
	if hasRoutes && s.delta {
		return switchTimeLeft
	}
	return max(switchTimeLeft, s.resumed.Add(timeout).Sub(now))
}

// removalTimeouts is the number of AckTimeouts after which a waiting removal stops the stream from taking a newer cut.
const removalTimeouts = 3

// cut takes a newer cut, if there is one and it is not too early for one of the types.
func (s *stream) cut(subs []*subscription, now time.Time) bool {
	newer, early := false, false
	for _, sub := range subs {
		if !sub.removes.IsZero() && now.Sub(sub.removes) >= removalTimeouts*s.server.opts.AckTimeout {
			return false
		}
		if sub.childrenBehind { // the client has the routes of this cut already, and needs their clusters
			deletesGone := sub.client.deletesGone(&sub.selection, sub.goal)
			sub.childrenBehind = deletesGone || s.parentsMustWait(sub, now)
			if sub.childrenBehind {
				return false
			}
		}
		if sub.coll.Synced() && sub.goal != sub.shown() {
			newer = true
			early = s.dueIn(sub.paceWait(now, s.server.opts.Pacing)) || early
		}
	}
	if !newer || early {
		return false
	}
	clear(s.cuts)
	for _, sub := range subs {
		if sub.coll.Synced() {
			s.followCut(sub)
		}
	}
	return true
}

// followCut makes the state in the last cut the goal of sub.
func (s *stream) followCut(sub *subscription) { sub.setGoal(sub.withFallbacks(s.stateInCut(sub))) }

// stateInCut returns the state of sub in the last cut; it takes a cut if there is none.
func (s *stream) stateInCut(sub *subscription) *state {
	group := sub.coll.group
	if s.cuts[group] == nil {
		put(&s.cuts, group, *group.shown.Load())
	}
	return cmp.Or(s.cuts[group][sub.coll], sub.coll.shown.Load())
}

// followChildren makes the newest state the goal of a subscription to children. It keeps the entries that only the last
// cut has: they are still in use.
func (s *stream) followChildren(sub *subscription) {
	shown := sub.coll.shown.Load()
	goal, _ := shown.differenceFrom(s.stateInCut(sub)).additionsFirst(shown)
	sub.setGoal(goal)
}

// parent returns the subscription of sub's parents, or nil.
func (s *stream) parent(sub *subscription) *subscription {
	for _, p := range s.subs {
		if p.coll.typ.ChildURL == sub.coll.typ.URL {
			return p
		}
	}
	return nil
}

// subscriptionTo returns the subscription to a type, or nil.
func (s *stream) subscriptionTo(url string) *subscription {
	for _, sub := range s.subs {
		if sub.coll.typ.URL == url {
			return sub
		}
	}
	return nil
}

// expect notes the names that the client will subscribe to, or wait for, after a response: the children of new and
// changed entries. The client must have the children of new entries before parents of higher rank are sent.
func (s *stream) expect(sub *subscription, response *responsePlan, now time.Time) {
	if parent := s.parent(sub); parent != nil && len(parent.children) > 0 {
		sub.mentionedChildren = nil
		for name := range parent.children {
			if response.mentions(name) {
				sub.mentionedChildren = append(sub.mentionedChildren, name)
			}
		}
	}
	childURL := sub.coll.typ.ChildURL
	if childURL == "" {
		return
	}
	child := s.subscriptionTo(childURL)
	fresh := sub.client.fresh()
	for _, entry := range response.changed() {
		if entry.Child == "" {
			continue
		}
		if child != nil && child.selection.includes(entry.Child) {
			child.client.mustResend(entry.Child)
		} else if child == nil && sub.client.brought != nil {
			put(&s.awaited, childURL, append(s.awaited[childURL], entry.Child))
		}
		if _, isHeld := sub.client.heldVersion(entry.Name); !fresh && !isHeld && (child != nil || !s.childless[childURL]) {
			put(&sub.children, entry.Child, struct{}{})
		}
	}
	sub.expects = now
}

// noteAnswer notes that the client answered the last response of sub.
func (s *stream) noteAnswer(sub *subscription) {
	if len(sub.mentionedChildren) == 0 {
		return
	}
	if parent := s.parent(sub); parent != nil {
		for _, name := range sub.mentionedChildren {
			delete(parent.children, name)
		}
	}
	sub.mentionedChildren = nil
}

// parentsMustWait reports whether parents must wait: until the client acknowledges a subscription with children, or has
// its new children.
func (s *stream) parentsMustWait(sub *subscription, now time.Time) bool {
	childURL := sub.coll.typ.ChildURL
	if childURL == "" {
		return false
	}
	child := s.subscriptionTo(childURL)
	if child != nil && child.goal != initialState {
		for name := range sub.children {
			if child.goal.get(name) == nil {
				delete(sub.children, name) // it does not exist
			}
		}
	}
	if len(sub.children) > 0 {
		if s.dueIn(sub.expects.Add(s.server.opts.AckTimeout).Sub(now)) {
			return true
		}
		if child == nil { // the client gets them elsewhere, or not at all
			put(&s.childless, childURL, true)
		}
	}
	sub.children = nil
	return !s.maySend(sub, now)
}
