package xds

import (
	"cmp"
	"slices"
)

// response is what a subscription is to be sent to bring it to a state.
type response struct {
	sub  *subscription
	to   *state
	diff *diff // from what the client has; nil if it has nothing
	// What is to be said, apart from the names that are not covered. For a stream with nothing but a wildcard, the shared
	// diff says it, and these stay nil.
	puts    []*Entry
	removed []string
	private bool   // puts and removed count, not diff
	spans   []span // where puts stand in diff.puts, if they are to be sent from its encoding; else nil
}

// next returns what the client is to be told now, or nil. It moves the subscription's state along where nothing that the
// client asked for has changed.
func (s *subscription) next() *response {
	if !s.coll.Synced() {
		return nil
	}
	if !s.behind() {
		return nil
	}
	cur := s.coll.current.Load()
	r := &response{sub: s, to: cur}
	if s.state != nil {
		r.diff = cur.since(s.state)
	}
	var due bool
	if s.isDelta {
		due = r.planDelta()
	} else {
		due = r.planSotW()
	}
	if !due && !s.must {
		s.settle(cur)
		return nil
	}
	return r
}

// settle notes that the client is at state.
func (s *subscription) settle(at *state) {
	s.state = at
	s.must = false
	s.initial, s.have = nil, ""
	s.resend = nil // not cleared: an empty map keeps its memory
}

func (r *response) planSotW() (due bool) {
	s := r.sub
	if s.wildcard {
		if r.diff == nil {
			if s.have != "" && s.have == r.to.version {
				s.must = false // the client has it from an earlier stream
				return false
			}
			return true
		}
		return !r.diff.empty() || r.to.version != s.state.version || len(s.resend) > 0
	}
	r.private = true
	if s.coll.typ.Partial {
		r.puts, _ = r.namedChanges()
		return len(r.puts) > 0
	}
	puts, removed := r.namedChanges()
	for name := range s.names {
		if e := r.to.get(name); e != nil {
			r.puts = append(r.puts, e)
		}
	}
	sortEntries(r.puts)
	r.removed = removed
	return len(puts) > 0 || len(removed) > 0
}

func (r *response) planDelta() (due bool) {
	s := r.sub
	if s.initial != nil {
		r.private = true
		r.puts, r.removed = s.resume(r.to)
		return len(r.puts) > 0 || len(r.removed) > 0
	}
	if s.wildcard && len(s.resend) == 0 {
		return r.diff == nil || !r.diff.empty()
	}
	r.private = true
	r.puts, r.removed = r.namedChanges()
	return len(r.puts) > 0 || len(r.removed) > 0
}

// namedChanges returns the changes that the subscription covers, and those that it is owed, each name once.
func (r *response) namedChanges() (puts []*Entry, removed []string) {
	s := r.sub
	switch {
	case s.wildcard && r.diff == nil:
		puts = slices.Collect(r.to.all())
	case r.diff != nil:
		puts = r.coveredPuts()
		for _, e := range r.diff.removed {
			if s.covers(e.Name) {
				removed = append(removed, e.Name)
			}
		}
	}
	n, m := len(puts), len(removed) // both in order of name
	for name := range s.resend {
		e := r.to.get(name)
		if e == nil {
			if _, ok := slices.BinarySearch(removed[:m], name); !ok {
				removed = append(removed, name)
			}
		} else if _, ok := slices.BinarySearchFunc(puts[:n], name, func(e *Entry, name string) int { return cmp.Compare(e.Name, name) }); !ok {
			puts = append(puts, e)
		}
	}
	sortEntries(puts)
	slices.Sort(removed)
	return puts, removed
}

// sharedShare is the part of a difference that a stream must want for the difference to be encoded for all streams: one in
// so many of its entries.
const sharedShare = 16

// coveredPuts returns what of the difference the subscription covers, and notes where it stands.
func (r *response) coveredPuts() (puts []*Entry) {
	var spans []span
	for i, e := range r.diff.puts {
		if !r.sub.covers(e.Name) {
			continue
		}
		puts = append(puts, e)
		if last := len(spans) - 1; last >= 0 && spans[last].end == i {
			spans[last].end++
		} else {
			spans = append(spans, span{i, i + 1})
		}
	}
	if r.sub.isDelta && len(r.sub.resend) == 0 && len(puts)*sharedShare >= len(r.diff.puts) {
		r.spans = spans
	}
	return puts
}

// removes says whether the response takes something away from the client.
func (r *response) removes() bool {
	if r.private {
		return len(r.removed) > 0
	}
	return r.diff != nil && len(r.diff.removed) > 0
}

// adds says whether the response does more than that.
func (r *response) adds() bool {
	if r.private {
		return len(r.puts) > 0 || !r.removes()
	}
	return r.diff == nil || len(r.diff.puts) > 0 || !r.removes()
}

// withoutRemovals turns r into a response that leaves the removals for later, by leading to a state that still has what
// is removed. What it says of names that are merely missing stays.
func (r *response) withoutRemovals() *response {
	if r.diff == nil || len(r.diff.removed) == 0 {
		return r
	}
	c := *r
	c.to, c.diff = r.diff.before()
	if r.private {
		gone := names(r.diff.removed)
		c.removed = slices.DeleteFunc(slices.Clone(r.removed), func(name string) bool {
			_, ok := slices.BinarySearch(gone, name)
			return ok
		})
		if !r.sub.isDelta && !r.sub.coll.typ.Partial {
			c.puts = c.puts[:0:0]
			for name := range r.sub.names {
				if e := c.to.get(name); e != nil {
					c.puts = append(c.puts, e)
				}
			}
			sortEntries(c.puts)
		}
	}
	return &c
}

// changed returns the entries that are new to a client that had others before.
func (r *response) changed() []*Entry {
	if r.private {
		return r.puts
	}
	if r.diff != nil {
		return r.diff.puts
	}
	return nil
}

// bodies encodes the response: one body for SotW, one or more for delta.
func (r *response) bodies(f form) []*body {
	if r.to.minTTL == 0 {
		f = f.withoutTTL()
	}
	delta := r.sub.isDelta
	switch {
	case delta && r.spans != nil:
		return r.diff.deltaIn(f).bodies(r.spans, r.removed)
	case delta && r.private:
		return deltaBodies(r.puts, r.removed, f)
	case delta && r.diff != nil:
		return r.diff.deltaIn(f).wildcard
	case delta:
		return r.to.deltaBodiesAll(f)
	case r.private:
		return []*body{sotwBodyOf(r.puts, f)}
	default:
		return []*body{r.to.sotwBody(f)}
	}
}

func sortEntries(es []*Entry) {
	slices.SortFunc(es, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
}
