package envoy

import (
	"cmp"
	"context"
	"slices"

	"tributary/resource"
)

// before orders suspects: what others are made with comes first, and of those that are alike what came first. So who makes the difference is the last one
// that came to what was good, and not what it came to.
func before(a, b *trial) int {
	return cmp.Or(cmp.Compare(classOf(a.key.Kind), classOf(b.key.Kind)), cmp.Compare(a.turn, b.turn), a.key.Compare(b.key))
}

func classOf(kind resource.Kind) int {
	if kind == resource.ServiceEntry || kind == resource.WorkloadEntry {
		return 0
	}
	return 1
}

// search is for those of the suspects that the client rejects.
type search struct {
	client   client
	suspects []*trial // in order
	guilty   []*aside
	good     int  // so many of the suspects, from the first, the client takes but for the guilty
	limited  bool // there are more than were looked for
	fresh    bool // the client never had anything of what it rejects: what the suspects were may be wrong as well
}

// client is who is asked.
type client interface {
	// try says whether the client takes what there is with objects set aside.
	try(ctx context.Context, tried []*aside) (bool, error)
	// turn counts the changes of objects.
	turn() uint64
	// doubt returns err, or errChanged if objects have changed since the search began.
	doubt(err error) error
}

// run finds who is guilty, at most so many. It is known that the client takes nothing of the suspects.
func (s *search) run(ctx context.Context, most int) error {
	for {
		takesAll, err := s.takes(ctx, len(s.suspects))
		switch {
		case err != nil || takesAll:
			return err
		case len(s.guilty) == most:
			s.limited = true
			return nil
		}
		if err := s.next(ctx); err != nil {
			return err
		}
	}
}

// next finds the first suspect that the client does not take with those before it.
func (s *search) next(ctx context.Context) error {
	for rejected := len(s.suspects); s.good+1 < rejected; {
		n := (s.good + rejected) / 2
		takes, err := s.takes(ctx, n)
		if err != nil {
			return err
		}
		if takes {
			s.good = n
		} else {
			rejected = n
		}
	}
	a, err := s.confirm(ctx, s.suspects[s.good])
	if err != nil {
		return err
	}
	s.guilty = append(s.guilty, a)
	s.good++
	return nil
}

// confirm returns how the suspect is to be set aside that makes the difference, if it does while nothing else changes: for the newest version of before
// that the client takes.
func (s *search) confirm(ctx context.Context, t *trial) (*aside, error) {
	const tries = 5 // while other objects change
	for range tries {
		turn := s.client.turn()
		takes, err := s.takes(ctx, s.good+1)
		if err != nil {
			return nil, err
		}
		if s.client.turn() != turn {
			continue
		}
		if takes {
			return nil, s.client.doubt(errNotContent)
		}
		others := s.asidesFrom(s.good + 1)
		last := s.bottom(t)
		for depth := range last.depth {
			a := &aside{trial: t, depth: depth}
			if takes, err = s.tries(ctx, append(slices.Clone(others), a)); err != nil || takes {
				return a, err
			}
		}
		return last, nil
	}
	return nil, errChanged
}

// takes says whether the client takes the first n suspects, but for the guilty ones among them.
func (s *search) takes(ctx context.Context, n int) (bool, error) {
	return s.tries(ctx, s.asidesFrom(n))
}

// tries says whether the client takes what is set aside so. If not, it is brought back to what it takes: what it was sent last and did not take is in doubt
// until then.
func (s *search) tries(ctx context.Context, tried []*aside) (bool, error) {
	takes, err := s.client.try(ctx, tried)
	if err != nil || takes {
		return takes, err
	}
	back, err := s.client.try(ctx, s.asidesFrom(s.good))
	if err == nil && !back {
		err = s.client.doubt(errNotContent)
	}
	return false, err
}

// asidesFrom are those that are guilty, and all suspects from the nth on, for what was certainly good.
func (s *search) asidesFrom(n int) []*aside {
	all := slices.Clone(s.guilty)
	for _, t := range s.suspects[n:] {
		all = append(all, s.bottom(t))
	}
	return all
}

// bottom is an object for what it was when it was certainly good: for a client that never had anything, that is nothing.
func (s *search) bottom(t *trial) *aside {
	depth := len(t.earlier) - 1
	if s.fresh && t.earlier[depth] != nil {
		depth++
	}
	return &aside{trial: t, depth: depth}
}
