package xds

import (
	"cmp"
	"slices"
	"time"
)

// Types with a rank depend on each other: a route leads to a cluster, which has endpoints. On an aggregated stream they are
// kept in an order in which a client never has a parent without what it leads to.
//
//   - The stream brings the types to one cut: the states that the collections had at one moment, between commits. It looks for
//     a newer cut only when all that the last one added is with the client.
//   - What is added goes in order of rank. While a client has yet to acknowledge new children (clusters, then their endpoints),
//     parents of higher rank wait.
//   - A client that asks by name for what a parent leads to is introduced to it first: see introduce.go.
//   - What is removed goes after that, in reverse order of rank, when the parents are acknowledged.
//   - Nothing waits longer than the acknowledgement timeout for any one thing. What clients by name are to lose waits that long
//     after each change of a parent. If parents do not rest of themselves, the stream stays with its cut until that is gone.
//
// Types of children (Type.ChildURL) go ahead of the cut: to have the newest endpoints of a cluster is never wrong.

// inOrder returns which of subs, which depend on each other and stand in order of rank, is next, and what it is to be sent.
func (s *stream) inOrder(subs []*subscription, now time.Time) (next *subscription, p step) {
	none := s.cuts == nil
	for _, sub := range subs {
		if sub.coll.Synced() && (none || sub.goal == nothing) {
			s.aim(sub)
		}
	}
	for {
		next, p, pending, unanswered := s.additions(subs, now)
		if next == nil && !pending && !unanswered {
			next, p, pending = s.removals(subs, now)
		}
		if next != nil {
			return next, p
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
		if p := parent.plan(true); p.adds {
			continue // it is about to go
		}
		s.aimAhead(sub)
		if p := sub.plan(true); p.adds && s.mayGo(sub, now) {
			return sub, p
		}
	}
	return nil, step{}
}

// additions returns what is to be added next. If there is nothing that can be, pending says whether something waits, and
// unanswered whether the client has yet to acknowledge children.
func (s *stream) additions(subs []*subscription, now time.Time) (next *subscription, p step, pending, unanswered bool) {
	var waiting *subscription // for the client's answer, to add more
	for _, sub := range subs {
		if !sub.coll.Synced() {
			continue
		}
		parent := s.parent(sub)
		ahead := unanswered && parent == nil || waiting != nil && (parent == nil || parent == waiting && !sub.has.asked())
		introducing := s.introducing(sub, now)
		switch p := sub.plan(true); {
		case !p.adds && !introducing:
			sub.rest(&p)
			sub.via = nil
		case p.adds && ahead:
			pending = true
		case p.adds && s.mayGo(sub, now):
			return sub, s.introduced(sub, p), true, false
		default:
			pending = true
			if parent == nil {
				waiting = sub
			}
		}
		unanswered = s.expecting(sub, now) || unanswered
	}
	return nil, step{}, pending, unanswered
}

// removals returns what is to be removed next. If there is nothing that can be, pending says whether something waits for the
// client's answer, and not only to give it time to follow.
func (s *stream) removals(subs []*subscription, now time.Time) (next *subscription, p step, pending bool) {
	unanswered := false         // a parent is
	var following time.Duration // for how long the client may ask for other names, since a parent has changed
	for _, sub := range slices.Backward(subs) {
		if !sub.coll.Synced() {
			continue
		}
		parent := s.parent(sub)
		switch p := sub.plan(false); {
		case !p.removes:
			sub.rest(&p)
			sub.removes = time.Time{}
		case s.lookAgain(cmp.Or(parent, sub).inUse(following, s.server.opts.AckTimeout, now)):
			if sub.removes.IsZero() {
				sub.removes = now
			}
		case unanswered || !s.mayGo(sub, now):
			return nil, step{}, true
		default:
			return sub, p, true
		}
		if parent == nil {
			unanswered = !s.mayGo(sub, now) || unanswered
			following = max(following, sub.led.Add(s.server.opts.AckTimeout).Sub(now))
		}
	}
	return nil, step{}, false
}

// inUse returns for how long sub, if it is of a type with children, and those, should lose nothing, although the parents are
// acknowledged. A client that asks by name is to ask for what the parents lead to now, which it may have done after following.
// One that came back has yet to say what else it has.
func (s *subscription) inUse(following, timeout time.Duration, now time.Time) time.Duration {
	if s.coll.typ.ChildURL == "" {
		return 0
	}
	if s.wants.all {
		following = 0
	}
	return max(following, s.resumed.Add(timeout).Sub(now))
}

// restless is after how many acknowledgement timeouts a removal no longer waits for parents to rest of themselves.
const restless = 3

// cut aims at a newer cut, if there is one and it is not too early for one of the types.
func (s *stream) cut(subs []*subscription, now time.Time) bool {
	newer, early := false, false
	for _, sub := range subs {
		if !sub.removes.IsZero() && now.Sub(sub.removes) >= restless*s.server.opts.AckTimeout {
			return false
		}
		if sub.coll.Synced() && sub.goal != sub.coll.shown.Load() {
			newer = true
			early = s.lookAgain(sub.paced(now, s.server.opts.Pacing)) || early
		}
	}
	if !newer || early {
		return false
	}
	clear(s.cuts)
	for _, sub := range subs {
		if sub.coll.Synced() {
			s.aim(sub)
		}
	}
	return true
}

// aim makes the goal of sub what the last cut has of it.
func (s *stream) aim(sub *subscription) { sub.head(s.ofCut(sub)) }

// ofCut returns what the last cut has of sub; it is made if there is none.
func (s *stream) ofCut(sub *subscription) *state {
	g := sub.coll.group
	if s.cuts == nil {
		s.cuts = make(map[*Group]cut)
	}
	if s.cuts[g] == nil {
		s.cuts[g] = *g.shown.Load()
	}
	return cmp.Or(s.cuts[g][sub.coll], sub.coll.shown.Load())
}

// aimAhead makes the goal of sub, a type of children, the newest there is, and what the last cut has besides: that is still
// in use.
func (s *stream) aimAhead(sub *subscription) {
	shown := sub.coll.shown.Load()
	goal, _ := shown.since(s.ofCut(sub)).before(shown)
	sub.head(goal)
}

// parent returns the subscription of the type of which sub has the children, or nil.
func (s *stream) parent(sub *subscription) *subscription {
	for _, p := range s.subs {
		if p.coll.typ.ChildURL == sub.coll.typ.URL {
			return p
		}
	}
	return nil
}

// child returns the subscription of the children of sub, or nil.
func (s *stream) child(sub *subscription) *subscription {
	for _, c := range s.subs {
		if c.coll.typ.URL == sub.coll.typ.ChildURL {
			return c
		}
	}
	return nil
}

// expect notes what the client will ask for, or wait for, when it has been sent p: the children of what is new or newer.
// Those of what is new are expected to be with the client before a parent leads to it.
func (s *stream) expect(sub *subscription, p *step, now time.Time) {
	if parent := s.parent(sub); parent != nil && len(parent.children) > 0 {
		sub.spoken = nil
		for name := range parent.children {
			if p.speaks(name) {
				sub.spoken = append(sub.spoken, name)
			}
		}
	}
	url := sub.coll.typ.ChildURL
	if url == "" {
		return
	}
	child, fresh := s.child(sub), sub.has.fresh()
	for _, e := range p.changed() {
		if e.Child == "" {
			continue
		}
		if child != nil && child.wants.cover(e.Child) {
			child.has.renew(e.Child)
		} else if child == nil && sub.has.brought != nil {
			if s.owed == nil {
				s.owed = make(map[string][]string)
			}
			s.owed[url] = append(s.owed[url], e.Child)
		}
		if _, had := sub.has.had(e.Name); !fresh && !had && (child != nil || !s.childless[url]) {
			if sub.children == nil {
				sub.children = make(map[string]struct{})
			}
			sub.children[e.Child] = struct{}{}
		}
	}
	sub.expects = now
}

// answered notes that the client answered the last response of sub.
func (s *stream) answered(sub *subscription) {
	if len(sub.spoken) == 0 {
		return
	}
	if parent := s.parent(sub); parent != nil {
		for _, name := range sub.spoken {
			delete(parent.children, name)
		}
	}
	sub.spoken = nil
}

// expecting says whether parents have to wait for the client to acknowledge sub, if it is of a type with children, or the new
// ones of those.
func (s *stream) expecting(sub *subscription, now time.Time) bool {
	url := sub.coll.typ.ChildURL
	if url == "" {
		return false
	}
	child := s.child(sub)
	if child != nil && child.goal != nothing {
		for name := range sub.children {
			if child.goal.get(name) == nil {
				delete(sub.children, name) // there is nothing to wait for
			}
		}
	}
	if len(sub.children) > 0 {
		if s.lookAgain(sub.expects.Add(s.server.opts.AckTimeout).Sub(now)) {
			return true
		}
		if child == nil { // the client gets them elsewhere, or not at all
			if s.childless == nil {
				s.childless = make(map[string]bool)
			}
			s.childless[url] = true
		}
	}
	sub.children = nil
	return !s.mayGo(sub, now)
}
