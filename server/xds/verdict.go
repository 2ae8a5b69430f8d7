package xds

import (
	"cmp"
	"maps"
	"slices"
)

// AnswerInfo is what a client says of what it was sent last.
type AnswerInfo struct {
	StreamID         uint64 // as in ClientStatus
	Peer, Host, Node string // the host is the peer without its port, the node its id
	TypeURL          string
	Collection       *Collection
	// Error is why the client rejects the response; empty if it accepts it. It may have been cut.
	Error string
}

// Resource is a version of a resource; an empty one is that it is not there.
type Resource struct{ Name, Version string }

// Opinion is what a client thinks of some resources.
type Opinion int

// A client accepts what it accepted a response with, and was sent last. It rejects what it was sent last of a name, if it rejected that. Else it has not
// said yet.
const (
	Undecided Opinion = iota
	Accepts
	Rejects
	Gone // the client is
)

// Opinion returns what a client thinks of resources of a collection: whether it accepts all of those that it wants, or rejects one.
func (s *Server) Opinion(streamID uint64, c *Collection, all []Resource) (o Opinion) {
	o = Gone
	s.ask(streamID, c, func(sub *subscription) { o = sub.opinion(all) })
	return o
}

// Rejected returns what a client rejects of a collection, in order of name.
func (s *Server) Rejected(streamID uint64, c *Collection) (all []Resource) {
	s.ask(streamID, c, func(sub *subscription) {
		if sub.verdict.rejected == nil {
			return
		}
		for _, e := range sub.verdict.rejected.since(sub.verdict.before).puts {
			if sub.wants.cover(e.Name) {
				all = append(all, Resource{e.Name, e.Version})
			}
		}
	})
	return all
}

// ask calls f with the subscription of a client to a collection, if there is one.
func (s *Server) ask(streamID uint64, c *Collection, f func(*subscription)) {
	for _, st := range s.open() {
		if st.id != streamID {
			continue
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		if i := slices.IndexFunc(st.subs, func(sub *subscription) bool { return sub.coll == c }); i >= 0 {
			f(st.subs[i])
		}
		return
	}
}

func (s *Server) open() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.streams))
}

func (s *subscription) opinion(all []Resource) Opinion {
	if s.outstanding() {
		return Undecided
	}
	opinion := Accepts
	for _, r := range all {
		switch {
		case !s.wants.cover(r.Name):
		case !s.has.at.has(r): // it is to be sent
			return Undecided
		case s.verdict.rejects(r):
			opinion = Rejects
		case !s.verdict.accepts(r):
			return Undecided
		}
	}
	return opinion
}

// answerTo says what the client answered by a request; s.mu is held.
func (s *stream) answerTo(sub *subscription, r *request) *AnswerInfo {
	a := &AnswerInfo{
		StreamID: s.id, Peer: s.peer, Host: s.host, Node: s.node.GetId(), TypeURL: sub.coll.typ.URL, Collection: sub.coll,
	}
	if r.err != nil {
		a.Error = cmp.Or(r.err.GetMessage(), "it does not say why")
	}
	return a
}

// Accepted says whether a client has accepted a response with the resource, or goes on having it from one before. Only the streams count for
// which by is true; it must not wait, nor call the server.
func (s *Server) Accepted(r Resource, by func(streamID uint64, c *Collection) bool) bool {
	return slices.ContainsFunc(s.open(), func(st *stream) bool { return st.accepted(r, by) })
}

func (s *stream) accepted(r Resource, by func(streamID uint64, c *Collection) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subs {
		if sub.wants.cover(r.Name) && sub.verdict.accepts(r) && by(s.id, sub.coll) {
			return true
		}
	}
	return false
}

// verdict is what a client thought of what it was sent of a type. Who rejects a response is taken to have it, and is not sent it again; but it goes
// on with what it had, and to accept the next response, which is of other resources, does not mean to accept that.
type verdict struct {
	accepted *state // what the client had, as far as we know, when it last accepted a response; or nothing
	// What is in rejected and otherwise than in before was in a response that was rejected. Nil if there is nothing in doubt.
	before, rejected *state
	// retold are names of what is in doubt and in the last response once more.
	retold map[string]struct{}
}

// retell notes that the client is sent a step, perhaps with something that is in doubt.
func (v *verdict) retell(p *step) {
	v.retold = nil
	for _, d := range v.doubts(p.to) {
		if p.speaks(d.name) {
			if v.retold == nil {
				v.retold = make(map[string]struct{})
			}
			v.retold[d.name] = struct{}{}
		}
	}
}

func (v *verdict) reject(at *state) {
	if v.rejected == nil {
		v.before = v.accepted
	}
	v.rejected = at
}

// accept notes that the client accepted a response that brought it to at, which was everything again if it was in full. It reports whether something that was
// in doubt is otherwise there, and whether something still is in doubt.
func (v *verdict) accept(at *state, inFull bool) (otherwise, doubt bool) {
	v.accepted = at
	if v.rejected == nil {
		return false, false
	}
	if inFull {
		v.before, v.rejected = nil, nil
		return false, false
	}
	all := v.rejected.since(v.before)
	doubts := v.doubts(at)
	otherwise = len(doubts) < len(all.puts)+len(all.removed)
	doubts = slices.DeleteFunc(doubts, func(d change) bool { _, ok := v.retold[d.name]; return ok })
	if len(doubts) == 0 {
		v.before, v.rejected = nil, nil
		return otherwise, false
	}
	v.before, v.rejected = at.but(doubts), at
	return otherwise, true
}

// comeBack notes what of goal a client had that came back, and is sent the rest.
func (v *verdict) comeBack(goal *state, rest []*Entry) {
	if v.accepted != nothing {
		return
	}
	changes := make([]change, len(rest))
	for i, e := range rest {
		changes[i] = change{name: e.Name}
	}
	v.accepted = goal.but(changes)
}

// doubts returns what the client rejected and at has no otherwise, each with what the client has of that in truth.
func (v *verdict) doubts(at *state) (doubts []change) {
	if v.rejected == nil {
		return nil
	}
	all := v.rejected.since(v.before)
	for _, e := range all.puts {
		if now := at.get(e.Name); now != nil && now.Version == e.Version {
			doubts = append(doubts, change{e.Name, v.before.get(e.Name)})
		}
	}
	for _, e := range all.removed {
		if at.get(e.Name) == nil {
			doubts = append(doubts, change{e.Name, e})
		}
	}
	return doubts
}

// rejects says whether the client was sent a version of a resource and rejected the response, as far as we know.
func (v *verdict) rejects(r Resource) bool {
	return v.rejected != nil && v.rejected.has(r) && !v.before.has(r)
}

// accepts says whether the client accepted a version of a resource, and has it.
func (v *verdict) accepts(r Resource) bool { return v.accepted.has(r) && !v.rejects(r) }

// has says whether the state has a resource in a version.
func (s *state) has(r Resource) bool {
	e := s.get(r.Name)
	return e == nil && r.Version == "" || e != nil && e.Version == r.Version
}
