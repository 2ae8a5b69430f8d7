package registry

import (
	"cmp"
	"slices"
	"time"
)

// Known is something that a registry lists, or listed.
type Known[T any] struct {
	Value   T
	Since   time.Time // when it was first listed; zero if that was before this run
	Missing time.Time // since when it is not listed; zero if it is
}

// State is what a registry says of one thing that is registered. Of several things that it says of the same one the first in this order
// counts.
type State int

// The states.
const (
	Listed     State = iota + 1 // it is there
	Disabled                    // it is there, and those who run it want no calls to it
	Unreadable                  // it may be there: what would say so cannot be read. If it was known, it stays
	Unlisted                    // as if the registry did not name it
)

// Report is what a registry says of one thing.
type Report[T any] struct {
	Value T
	State State
}

// Listing is what a registry says at some moment of all that is registered for one thing.
type Listing[T any] struct {
	// Reports are those that it names, in any order, and several times perhaps: of those that are listed the first counts.
	Reports []Report[T]
	// Until says until when one that was known and is not listed stays: a hold. It has gone if that is not in the future.
	Until func(Known[T]) time.Time
}

// Forever is a hold without an end.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Settle decides what is believed after a listing. before is in the order of compare, as is what is returned, and has nothing twice. held
// counts what stays though it is not listed, and next is when the first hold of these ends; zero if none does.
func (l Listing[T]) Settle(before []Known[T], compare func(a, b T) int, at time.Time) (after []Known[T], held int, next time.Time) {
	reports := slices.Clone(l.Reports)
	slices.SortStableFunc(reports, func(a, b Report[T]) int { return cmp.Or(compare(a.Value, b.Value), cmp.Compare(a.State, b.State)) })
	reports = slices.CompactFunc(reports, func(a, b Report[T]) bool { return compare(a.Value, b.Value) == 0 })
	unlisted := func(known Known[T], state State) {
		until := Forever
		switch state {
		case Disabled:
			return
		case Unreadable:
			known.Missing = time.Time{}
		default:
			if known.Missing.IsZero() {
				known.Missing = at
			}
			until = l.Until(known)
		}
		if !at.Before(until) {
			return
		}
		after = append(after, known)
		held++
		if until.Before(Forever) {
			next = Earlier(next, until)
		}
	}
	for _, r := range reports {
		for len(before) > 0 && compare(before[0].Value, r.Value) < 0 {
			unlisted(before[0], Unlisted)
			before = before[1:]
		}
		var known *Known[T]
		if len(before) > 0 && compare(before[0].Value, r.Value) == 0 {
			known, before = &before[0], before[1:]
		}
		switch {
		case r.State == Listed && known == nil:
			after = append(after, Known[T]{Value: r.Value, Since: at})
		case r.State == Listed:
			after = append(after, Known[T]{Value: r.Value, Since: known.Since})
		case known != nil:
			unlisted(*known, r.State)
		}
	}
	for _, known := range before {
		unlisted(known, Unlisted)
	}
	return after, held, next
}

// Suspicion is a time in which what a registry does not list need not have gone: it was away, and those that are registered do so anew.
type Suspicion struct{ From, End time.Time }

// Until is until when something that is known since then stays although it is not listed; zero if it does not. What was registered after
// the registry was back is not in doubt: its session is a new one.
func (s Suspicion) Until(since time.Time) time.Time {
	if since.Before(s.From) {
		return s.End
	}
	return time.Time{}
}

// Away returns the suspicion as it is while the registry is away again: without an end, since nobody can register anew until it is back,
// when another one begins.
func (s Suspicion) Away(at time.Time) Suspicion {
	if at.Before(s.End) {
		s.End = Forever
	}
	return s
}

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
