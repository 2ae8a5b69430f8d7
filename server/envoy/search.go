package envoy

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"tributary/resource"
)

// booth is where a client is heard: its stream is told what there is in a scope of its own, in which objects are tried. Nobody else sees any of that.
type booth struct {
	stream uint64
	tried  []*aside // with which it begins
	left   func()   // called when the stream does not see it any more

	once  sync.Once
	scope *scope // nil until the client has come
}

// enter returns the scope of the booth, for a client of a profile, for as long as that is heard there.
func (b *booth) enter(c *Catalog, p profile) *scope {
	b.once.Do(func() { b.scope = c.newScope(p, b.tried...) })
	return b.scope
}

// boothOf returns where a stream is heard, or nil.
func (c *Catalog) boothOf(stream uint64) *booth {
	if b := c.booth.Load(); b != nil && b.stream == stream {
		return b
	}
	return nil
}

// apart calls f while the client is heard, in a scope of its own in which objects are tried from the start. It returns errGone if the client is.
func (h *hearing) apart(tried []*aside, f func() error) error {
	h.booth = &booth{stream: h.about.StreamID, tried: tried, left: h.judge.ring}
	h.Catalog.booth.Store(h.booth)
	h.witnesses().ReviewOf(h.about.StreamID)
	defer func() {
		h.Catalog.booth.Store(nil)
		h.witnesses().ReviewOf(h.about.StreamID)
		h.booth.once.Do(func() {})
		if h.booth.scope != nil {
			h.drop(h.booth.scope)
		}
	}()
	if h.booth.scope == nil {
		return errGone
	}
	return f()
}

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
	*hearing
	suspects []*trial // in order
	guilty   []*aside
	good     int // so many of the suspects, from the first, the client takes but for the guilty
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
		turn := s.turn()
		takes, err := s.takes(ctx, s.good+1)
		if err != nil {
			return nil, err
		}
		if s.turn() != turn {
			continue
		}
		if takes {
			return nil, s.doubt(errNotContent)
		}
		others := s.asidesFrom(s.good + 1)
		for depth := range len(t.earlier) - 1 {
			a := &aside{trial: t, depth: depth}
			if takes, err = s.tries(ctx, append(slices.Clone(others), a)); err != nil || takes {
				return a, err
			}
		}
		return &aside{trial: t, depth: len(t.earlier) - 1}, nil
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
	takes, err := s.try(ctx, tried)
	if err != nil || takes {
		return takes, err
	}
	back, err := s.try(ctx, s.asidesFrom(s.good))
	if err == nil && !back {
		err = s.doubt(errNotContent)
	}
	return false, err
}

// asidesFrom are those that are guilty, and all suspects from the nth on, for what they were when they were certainly good.
func (s *search) asidesFrom(n int) []*aside {
	all := slices.Clone(s.guilty)
	for _, t := range s.suspects[n:] {
		all = append(all, &aside{trial: t, depth: maxEarlier})
	}
	return all
}
