package xds

import (
	"cmp"
	"iter"
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

// Opinion returns what a client thinks of resources of a collection: whether it accepts all of those that it wants, or rejects one, and why.
func (s *Server) Opinion(streamID uint64, c *Collection, all []Resource) (o Opinion, why string) {
	o = Gone
	s.ask(streamID, func(sub *subscription) bool { return sub.coll == c }, func(_ *stream, sub *subscription) {
		if o = sub.opinion(all); o == Rejects {
			why = sub.reason()
		}
	})
	return o, why
}

// Complaint is what a client rejects of what it is to have.
type Complaint struct {
	AnswerInfo
	Rejected []Resource      // in order of name; that something is gone is nothing to complain of
	Lacks    map[string]bool // names of these of which the client has nothing else
}

// Complaint returns what a client rejects of a type. It rejects what it has rejected and neither accepted since nor been told otherwise. What it is yet to be told
// otherwise, or has been told once more, it may reject: as long as there is nothing else, it is undecided.
func (s *Server) Complaint(streamID uint64, typeURL string) (c Complaint, o Opinion) {
	o = Gone
	s.ask(streamID, func(sub *subscription) bool { return sub.coll.typ.URL == typeURL }, func(st *stream, sub *subscription) {
		c.AnswerInfo = st.answerInfo(sub, sub.reason())
		c.Rejected, o = sub.rejects()
		for _, r := range c.Rejected {
			if sub.verdict.accepted.get(r.Name) == nil {
				if c.Lacks == nil {
					c.Lacks = make(map[string]bool)
				}
				c.Lacks[r.Name] = true
			}
		}
	})
	return c, o
}

func (s *subscription) rejects() (all []Resource, o Opinion) {
	o = Accepts
	shown, partly := s.coll.shown.Load(), s.rejected && s.outstanding()
	for _, d := range s.verdict.doubts(s.has.at, &s.wants) {
		e := s.has.at.get(d.name)
		if e == nil || s.lacks(d.name) {
			continue
		}
		if o == Accepts {
			o = Undecided
		}
		_, retold := s.verdict.retold[d.name]
		if partly || retold && s.outstanding() || !shown.has(Resource{e.Name, e.Version}) {
			continue
		}
		all, o = append(all, Resource{e.Name, e.Version}), Rejects
	}
	return all, o
}

func (s *subscription) reason() string { return cmp.Or(s.status.NackError, "it does not say why") }

// ask calls f with the first subscription of a client that is so, if there is one.
func (s *Server) ask(streamID uint64, is func(*subscription) bool, f func(*stream, *subscription)) {
	s.mu.Lock()
	st := s.streams[streamID]
	s.mu.Unlock()
	if st == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if i := slices.IndexFunc(st.subs, is); i >= 0 && !st.closed {
		f(st, st.subs[i])
	}
}

func (s *Server) open() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.streams))
}

func (s *subscription) opinion(all []Resource) Opinion {
	if s.outstanding() {
		return Undecided
	}
	opinion := Accepts
	for _, r := range all {
		switch {
		case !s.wants.cover(r.Name):
		case s.lacks(r.Name), !s.has.at.has(r): // it is to be sent
			return Undecided
		case s.verdict.rejects(r), s.rejected && s.verdict.last != nil && !s.verdict.last.has(r): // be it that it goes on with what it had
			opinion = Rejects
		case !s.accepts(r):
			return Undecided
		}
	}
	return opinion
}

// answerTo says what the client answered by a request; s.mu is held.
func (s *stream) answerTo(sub *subscription, r *request) *AnswerInfo {
	why := ""
	if r.err != nil {
		why = cmp.Or(r.err.GetMessage(), "it does not say why")
	}
	a := s.answerInfo(sub, why)
	return &a
}

func (s *stream) answerInfo(sub *subscription, why string) AnswerInfo {
	return AnswerInfo{
		StreamID: s.id, Peer: s.peer, Host: s.host, Node: s.node.GetId(), TypeURL: sub.coll.typ.URL, Collection: sub.coll, Error: why,
	}
}

// Sees says whether by is true of a stream and of a collection that it sees. wants says whether it asks for a resource of that; by must not wait, nor call
// the server.
func (s *Server) Sees(by func(streamID uint64, c *Collection, wants func(name string) bool) bool) bool {
	return slices.ContainsFunc(s.open(), func(st *stream) bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return slices.ContainsFunc(st.subs, func(sub *subscription) bool { return by(st.id, sub.coll, sub.wants.cover) })
	})
}

// Audience is who sees what, by collection, as it was when it was asked for.
type Audience map[*Collection][]*stream

// Audience returns those who see collections.
func (s *Server) Audience() Audience {
	a := make(Audience)
	for _, st := range s.open() {
		st.mu.Lock()
		for _, sub := range st.subs {
			a[sub.coll] = append(a[sub.coll], st)
		}
		st.mu.Unlock()
	}
	return a
}

// Accepted says whether a client of a collection, other than one, has accepted a response with the resource, or goes on having it from one before.
func (a Audience) Accepted(c *Collection, r Resource, other uint64) bool {
	return slices.ContainsFunc(a[c], func(st *stream) bool { return st.id != other && st.accepted(c, r) })
}

func (s *stream) accepted(c *Collection, r Resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.subs, func(sub *subscription) bool { return sub.coll == c && sub.wants.cover(r.Name) && sub.accepts(r) })
}

// verdict is what a client thought of what it was sent of a type. Who rejects a response is taken to have it, and is not sent it again; but it goes
// on with what it had, and to accept the next response, which is of other resources, does not mean to accept that.
type verdict struct {
	// accepted is what the client has accepted and goes on having, as far as we know: with nothing in doubt, all that it had when it last accepted a response, or
	// what says the same to it since; or nothing.
	accepted *state
	// asked are names that it asked for since, and was sent or told that there is nothing: whatever accepted has of these, it had nothing.
	asked map[string]struct{}
	// rejected is where the client was taken to be when it last rejected a response: in doubt is what is otherwise there than in accepted. Nil if nothing is.
	rejected *state
	between  *diff // from accepted to rejected, if it is known
	// retold are names of what is in doubt and in the last response once more.
	retold map[string]struct{}
	// goneAgain are names of which the client is to be told once more that they are gone, which it has rejected.
	goneAgain map[string]struct{}
	last      *state // what the client was taken to have before the last response, until that is accepted
}

// maxBehind is how many commits ago a state may have been of which all is kept, since a client accepted or rejected it. Of older ones, just names and
// versions are: who never answers again is not to hold on to what everybody else has long forgotten.
const maxBehind = 16

// states are those that are kept.
func (v *verdict) states() [3]**state {
	return [...]**state{&v.accepted, &v.rejected, &v.last}
}

// age lets go of what old states say, but for the one at which the client is.
func (v *verdict) age(at, goal *state) {
	for _, s := range v.states() {
		if *s != at && (*s).isBehind(goal) {
			*s, v.between = (*s).bare(), nil
		}
	}
}

// keepOnly takes from the client all but names, which are what it wanted until now.
func (v *verdict) keepOnly(names map[string]struct{}) {
	for _, s := range v.states() {
		*s = (*s).only(names)
	}
	v.between = nil
}

// lead notes that a client has been brought from one state to another that says the same to it, without a word.
func (v *verdict) lead(from, to *state) {
	if v.accepted == from && v.rejected == nil && len(v.asked) == 0 {
		v.accepted = to
	}
}

// ask notes what a client lacks of which it was told nothing: whatever it is told now, it had nothing of it. Of what it has rejected to be gone, it has what it had.
func (v *verdict) ask(lacks map[string]told) {
	for name, told := range lacks {
		if _, again := v.goneAgain[name]; bool(told) || again || v.accepted.get(name) == nil {
			continue
		}
		if v.asked == nil {
			v.asked = make(map[string]struct{})
		}
		v.asked[name] = struct{}{}
	}
	v.goneAgain = nil
}

// tellGone notes that a client is to be told once more that something is gone.
func (v *verdict) tellGone(name string) {
	if v.goneAgain == nil {
		v.goneAgain = make(map[string]struct{})
	}
	v.goneAgain[name] = struct{}{}
}

// retell notes that a client that is taken to be at a state is sent a step, perhaps with something that is in doubt.
func (v *verdict) retell(at *state, p *step, w *wants) {
	v.retold, v.last = nil, at
	for _, d := range v.doubts(p.to, w) {
		if p.speaks(d.name) {
			if v.retold == nil {
				v.retold = make(map[string]struct{})
			}
			v.retold[d.name] = struct{}{}
		}
	}
}

// reject notes that a client rejects what brought it to at.
func (v *verdict) reject(at *state) {
	if len(v.asked) > 0 {
		never := make([]change, 0, len(v.asked))
		for name := range v.asked {
			never = append(never, change{name: name})
		}
		v.accepted, v.asked = v.accepted.but(never), nil
	}
	v.rejected, v.between = at, nil
}

// accept notes that the client accepted a response that brought it to at, which was everything again if it was in full. It reports whether something that was
// in doubt is otherwise there, and whether something still is in doubt.
func (v *verdict) accept(at *state, w *wants, inFull bool) (otherwise, doubt bool) {
	v.asked, v.last = nil, nil
	if v.rejected == nil || inFull {
		v.accepted, v.rejected, v.between = at, nil, nil
		return false, false
	}
	all, doubts := 0, v.doubts(at, w)
	for range v.inDoubt(w) {
		all++
	}
	otherwise = len(doubts) < all
	doubts = slices.DeleteFunc(doubts, func(d change) bool { _, ok := v.retold[d.name]; return ok })
	v.between = nil
	if len(doubts) == 0 {
		v.accepted, v.rejected = at, nil
		return otherwise, false
	}
	v.accepted, v.rejected = at.but(doubts), at
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
	if v.last != nil {
		v.last = v.accepted
	}
}

// inDoubt yields the names that the client wants and of which it rejected something.
func (v *verdict) inDoubt(w *wants) iter.Seq2[string, *Entry] {
	return func(yield func(name string, now *Entry) bool) {
		if v.rejected == nil {
			return
		}
		if v.between == nil {
			v.between = v.rejected.since(v.accepted)
		}
		for _, e := range v.between.puts {
			if w.cover(e.Name) && !yield(e.Name, e) {
				return
			}
		}
		for _, e := range v.between.removed {
			if w.cover(e.Name) && !yield(e.Name, nil) {
				return
			}
		}
	}
}

// doubts returns what the client rejected and at has no otherwise, each with what the client has of that in truth.
func (v *verdict) doubts(at *state, w *wants) (doubts []change) {
	for name, e := range v.inDoubt(w) {
		if now := at.get(name); now == nil && e == nil || now != nil && e != nil && now.Version == e.Version {
			doubts = append(doubts, change{name, v.accepted.get(name)})
		}
	}
	return doubts
}

// rejects says whether the client was sent a version of a resource and rejected the response, as far as we know.
func (v *verdict) rejects(r Resource) bool {
	return v.rejected != nil && v.rejected.has(r) && !v.accepted.has(r)
}

// accepts says whether the client accepted a version of a resource that it wants, and has it.
func (s *subscription) accepts(r Resource) bool {
	_, asked := s.verdict.asked[r.Name]
	return !s.lacks(r.Name) && !asked && s.verdict.accepted.has(r)
}

// lacks says whether the client has nothing of a name that it wants, or is to be told of it whatever it has.
func (s *subscription) lacks(name string) bool {
	_, lacks := s.has.lacks[name]
	if !lacks && s.has.again && s.wants.all {
		_, named := s.wants.names[name]
		return !named
	}
	return lacks
}

// has says whether the state has a resource in a version.
func (s *state) has(r Resource) bool {
	e := s.get(r.Name)
	return e == nil && r.Version == "" || e != nil && e.Version == r.Version
}
