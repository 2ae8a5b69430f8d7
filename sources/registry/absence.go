package registry

import (
	"cmp"
	"slices"
	"time"
)

// Known is something that a registry lists, or listed, and since when; zero if it was before this run.
type Known[T any] struct {
	Of    T
	Since time.Time
}

// Judgement is what a registry says of one thing that may be registered. What becomes of it is Reading's to decide:
//
//	            | it was known                       | it was not
//	Listed      | it counts                          | it counts
//	Off         | it goes at once                    | -
//	Unreadable  | it stays, and is held              | -
//	Missing     | in doubt it stays, and is held     | -
//
// Of several things that are said of the same one the first in this order counts.
type Judgement int

// The judgements.
const (
	Listed     Judgement = iota + 1 // it is there
	Off                             // it is there, and those who run it want no calls to it
	Unreadable                      // it may be there: what would say so cannot be read
	Missing                         // it is not there, as far as the registry knows
)

// Said is what a registry says of something.
type Said[T any] struct {
	Of T
	Is Judgement
}

// Reading is what a registry says at some moment of all that is registered for one thing. No field may be left out: each is a case that
// else would be taken for another one.
type Reading[T any] struct {
	// Said are those that it names, in any order, and several times perhaps: of those that are listed the first counts.
	Said []Said[T]
	// Unsaid is what it says of one that was known, and that it does not name: not Listed.
	Unsaid func(T) Judgement
	// InDoubt says of one that is missing whether that proves nothing. See Suspicion.
	InDoubt func(Known[T]) bool
}

// Settle decides what is believed after a reading. before is in the order of compare, as is what is returned, and has nothing twice; held
// counts what stays though it is not listed.
func (r Reading[T]) Settle(before []Known[T], compare func(a, b T) int, at time.Time) (after []Known[T], held int) {
	said := slices.Clone(r.Said)
	slices.SortStableFunc(said, func(a, b Said[T]) int { return cmp.Or(compare(a.Of, b.Of), cmp.Compare(a.Is, b.Is)) })
	said = slices.CompactFunc(said, func(a, b Said[T]) bool { return compare(a.Of, b.Of) == 0 })
	one := func(known *Known[T], is Judgement) {
		if is == Unreadable || is == Missing && r.InDoubt(*known) {
			after = append(after, *known)
			held++
		}
	}
	for _, s := range said {
		for len(before) > 0 && compare(before[0].Of, s.Of) < 0 {
			one(&before[0], r.Unsaid(before[0].Of))
			before = before[1:]
		}
		var known *Known[T]
		if len(before) > 0 && compare(before[0].Of, s.Of) == 0 {
			known, before = &before[0], before[1:]
		}
		switch {
		case s.Is != Listed && known != nil:
			one(known, s.Is)
		case s.Is == Listed && known != nil:
			after = append(after, Known[T]{s.Of, known.Since})
		case s.Is == Listed:
			after = append(after, Known[T]{s.Of, at})
		}
	}
	for n := range before {
		one(&before[n], r.Unsaid(before[n].Of))
	}
	return after, held
}

// Suspicion is a time in which what a registry does not list need not have gone: it was away, and those that are registered do so anew.
type Suspicion struct{ From, Until time.Time }

// Covers reports whether something that is known since then stays although it is not listed. What was registered after the registry was
// back is not in doubt: its session is a new one.
func (s Suspicion) Covers(since, at time.Time) bool {
	return at.Before(s.Until) && since.Before(s.From)
}

// Away returns the suspicion as it is while the registry is away again: without an end, since nobody can register anew until it is back,
// when another one begins.
func (s Suspicion) Away(at time.Time) Suspicion {
	if at.Before(s.Until) {
		s.Until = at.Add(endless)
	}
	return s
}

// endless is longer than anything runs.
const endless = 100 * 365 * 24 * time.Hour

// Empty notes since when something has nothing left: the zero time while it has. It is kept for a while, so that who calls it finds a
// service that has nobody, and not none.
func Empty(since time.Time, has bool, at time.Time, keep time.Duration) (still time.Time, kept bool) {
	switch {
	case has:
		return time.Time{}, true
	case since.IsZero():
		since = at
	}
	return since, at.Sub(since) < keep
}

// Earlier returns the earlier of two times, of which zero is none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
