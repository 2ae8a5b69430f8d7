package eureka

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// Servers make their listings in advance. One that they make while an instance registers may lack it, and can stay for minutes, which
// neither its hash code nor anything else of it shows. So nothing goes because a listing says so, or has not had it for long, before the
// server was asked for that very instance.

// Bounds of what is asked.
const (
	fewDoubts  = 100            // instances in doubt of which nothing has to be decided yet, at a time
	manyDoubts = 16 * fewDoubts // the same while most of them turn out to be there
	maxVouched = 100            // of those that it vouched for, at a time
	pause      = time.Second    // before those are asked for of whom there was no time to ask
)

// vouched is an instance that its server lists when asked for it alone.
type vouched struct {
	wire.Instance
	memory int // that said so
	heard  time.Time
}

// advance takes what a reading says into the state, after the server was asked for what that would have go.
func advance(ctx context.Context, f *follower, s *state, r reading, at time.Time) error {
	due := s.due(at)
	if r.unchanged {
		s.read = at
	} else {
		s.note(r, at)
	}
	decide := due || !r.unchanged
	if keys := s.questions(at, f.again, decide); len(keys) > 0 {
		said, err := f.verify(ctx, keys)
		if err != nil {
			return err
		}
		decide = s.hear(said, keys, at) || decide
	}
	if decide {
		s.settle(at)
	}
	return nil
}

// verify asks the server that is followed for instances.
func (f *follower) verify(ctx context.Context, keys []wire.Key) (hearsay, error) {
	f.counts.singles.Add(1)
	return f.hear(ctx, []string{f.server}, keys)
}

// questions are those of whom the server is to be asked: who goes if it does not know them, when it is to be decided, and from time to time
// those it vouched for, and some that are in doubt, each in its turn.
func (s *state) questions(at time.Time, again time.Duration, decide bool) []wire.Key {
	usual := at.Sub(s.asked) >= again
	if !decide && (!usual || !s.lacking && len(s.vouched) == 0) {
		return nil
	}
	first, rest := map[wire.Key]bool{}, map[wire.Key]bool{}
	for p, of := range s.services {
		for _, k := range of.Endpoints {
			e := k.Of
			switch {
			case e.key == wire.Key{} || s.news.places[spotOf(e.Endpoint)][p] || s.judge(p, of, e) != registry.Missing:
			case s.lost(e, at).Gone(at, s.hold):
				first[e.key] = true
			default:
				rest[e.key] = true
			}
		}
	}
	here := map[wire.Key]bool{}
	for key := range s.vouched {
		if _, gone := s.news.deleted[mapping.InstanceOf(key)]; gone {
			first[key] = true
		} else {
			here[key] = true
		}
	}
	keys := slices.SortedFunc(maps.Keys(first), wire.Key.Compare)
	if usual {
		s.asked = at
		keys = append(keys, some(here, &s.vouchedTurn, maxVouched)...)
		keys = append(keys, some(rest, &s.turn, max(s.batch, fewDoubts))...)
	}
	// Of whom it said nothing the last time it is asked last, so that all others have their turn.
	slices.SortStableFunc(keys, func(a, b wire.Key) int { return cmp.Compare(s.silent.rank(a), s.silent.rank(b)) })
	return keys
}

// keySet is a set of instances.
type keySet map[wire.Key]bool

// rank puts what is in the set behind what is not.
func (k keySet) rank(key wire.Key) int {
	if k[key] {
		return 1
	}
	return 0
}

// some are at most so many of those whose turn it is.
func some(of map[wire.Key]bool, turn *wire.Key, most int) []wire.Key {
	keys := slices.SortedFunc(maps.Keys(of), wire.Key.Compare)
	n, _ := slices.BinarySearchFunc(keys, *turn, wire.Key.Compare)
	few := slices.Concat(keys[n:], keys[:n])
	if len(few) > most {
		*turn = few[most]
		few = few[:most]
	}
	return few
}

// hear notes what the server said of those of whom it was asked, and reports whether anything is to be decided because of it.
func (s *state) hear(said hearsay, keys []wire.Key, at time.Time) (news bool) {
	unheard := map[mapping.Instance]time.Time{}
	s.silent = said.silent
	doubts, there := 0, 0
	for _, key := range keys {
		i, found := said.found[key]
		was, vouches := s.vouched[key]
		if !vouches {
			doubts++
		}
		switch {
		case found:
			if !vouches {
				there++
			}
			s.vouched[key] = vouched{i, s.memory, at}
			news = true
		case vouches && (said.noes[key] > 0 || at.Sub(was.heard) >= s.hold):
			delete(s.vouched, key)
			news = true
		case said.noes[key] == 0 && !said.refused[key]: // there was no time for it, or no answer that can be read
			since, before := s.unheard[mapping.InstanceOf(key)]
			if !before {
				since = at
			}
			unheard[mapping.InstanceOf(key)] = since
		}
	}
	s.unheard = unheard
	// Where most are there, the listing is old, and the others are asked for without delay.
	if s.batch = fewDoubts; 2*there > doubts {
		s.batch, s.asked = min(2*doubts, manyDoubts), time.Time{}
	}
	if news {
		s.list(s.reading)
	}
	return news
}

// awaits reports whether an instance stays for which the server was asked without an answer. That has an end: one that never says anything
// keeps nobody.
func (s *state) awaits(i mapping.Instance, at time.Time) bool {
	since, unheard := s.unheard[i]
	return unheard && at.Sub(since) < s.hold
}

// doubtful are the keys of what is in doubt, by which the next run can ask for it.
func (s *state) doubtful() map[mapping.Instance]wire.Key {
	all := map[mapping.Instance]wire.Key{}
	for _, of := range s.services {
		for _, k := range of.Endpoints {
			if _, here := s.vouched[k.Of.key]; (here || !k.Of.since.IsZero()) && k.Of.key != (wire.Key{}) {
				all[k.Of.Instance] = k.Of.key
			}
		}
	}
	return all
}
