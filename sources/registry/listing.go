package registry

import (
	"cmp"
	"slices"
	"time"
)

// Known is an item that a registry lists, or listed.
type Known[T any] struct {
	Value   T
	Since   time.Time // when it was first listed; zero if that was before this run
	Missing time.Time // when it went missing; zero while it is listed
}

// State is the state of an item in a registry. If an item has several, the first in this order counts.
type State int

// The states.
const (
	Listed     State = iota + 1 // it is there
	Disabled                    // it is there, but is to have no calls
	Unreadable                  // it may be there, in a part that cannot be read; a known one stays
	Unlisted                    // it counts as if the registry did not name it
)

// Report is the state of one item.
type Report[T any] struct {
	Value T
	State State
}

// Listing has the states of all items of a list at one moment.
type Listing[T any] struct {
	// Reports are in any order. An item may have several: of the listed ones the first counts.
	Reports []Report[T]
	// Until returns when the hold of a known item that is not listed ends. If that is not in the future, it goes.
	Until func(Known[T]) time.Time
}

// Forever is a hold without an end.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Settle returns the items after a listing. before and after are sorted by compare, without duplicates. held counts the
// unlisted items that stay, and next is when the first of their holds ends; zero if none does.
func (l Listing[T]) Settle(before []Known[T], compare func(a, b T) int, now time.Time) (after []Known[T], held int,
	next time.Time,
) {
	reports := slices.Clone(l.Reports)
	slices.SortStableFunc(reports, func(a, b Report[T]) int {
		return cmp.Or(compare(a.Value, b.Value),
			cmp.Compare(a.State, b.State))
	})
	reports = slices.CompactFunc(reports, func(a, b Report[T]) bool { return compare(a.Value, b.Value) == 0 })
	unlisted := func(item Known[T], state State) {
		deadline := Forever
		switch state {
		case Disabled:
			return
		case Unreadable:
			item.Missing = time.Time{}
		default:
			if item.Missing.IsZero() {
				item.Missing = now
			}
			deadline = l.Until(item)
		}
		if !now.Before(deadline) {
			return
		}
		after = append(after, item)
		held++
		if deadline.Before(Forever) {
			next = Earlier(next, deadline)
		}
	}
	for _, r := range reports {
		for len(before) > 0 && compare(before[0].Value, r.Value) < 0 {
			unlisted(before[0], Unlisted)
			before = before[1:]
		}
		var former *Known[T]
		if len(before) > 0 && compare(before[0].Value, r.Value) == 0 {
			former, before = &before[0], before[1:]
		}
		switch {
		case r.State == Listed && former == nil:
			after = append(after, Known[T]{Value: r.Value, Since: now})
		case r.State == Listed:
			after = append(after, Known[T]{Value: r.Value, Since: former.Since})
		case former != nil:
			unlisted(*former, r.State)
		}
	}
	for _, item := range before {
		unlisted(item, Unlisted)
	}
	return after, held, next
}

// Postpone moves the times at which items went missing.
func Postpone[T any](items []Known[T], pause time.Duration) {
	for n := range items {
		if !items[n].Missing.IsZero() {
			items[n].Missing = items[n].Missing.Add(pause)
		}
	}
}

// Suspicion is a time in which unlisted items need not have gone: the registry was away, and they may still register
// again. An item that was already missing when it began has no new hold: its own goes on. No hold runs while the
// registry is away, since nothing can register then.
type Suspicion struct {
	From, End time.Time
	Away      time.Time // since when the registry is away; zero while it is there
}

// Until returns how long an unlisted item stays; zero if it does not stay. Items registered after the registry's return
// are not in doubt: their sessions are new.
func (s Suspicion) Until(since, missing time.Time) time.Time {
	switch {
	case !since.Before(s.From):
		return time.Time{}
	case s.End.Before(Forever) && missing.Before(s.From):
		return missing.Add(s.End.Sub(s.From))
	}
	return s.End
}

// Leave returns the suspicion while the registry is away: without an end.
func (s Suspicion) Leave(now time.Time) Suspicion {
	if s.Away.IsZero() {
		s.Away = now
	}
	if now.Before(s.End) {
		s.End = Forever
	}
	return s
}

// Settle ends a suspicion whose time is over.
func (s Suspicion) Settle(now time.Time) Suspicion {
	if !now.Before(s.End) {
		return Suspicion{Away: s.Away}
	}
	return s
}

// Return returns the suspicion that begins when the registry is back, and for how long it was away: see Postpone.
func (s Suspicion) Return(now time.Time, hold time.Duration) (begun Suspicion, pause time.Duration) {
	if !s.Away.IsZero() {
		pause = max(0, now.Sub(s.Away))
	}
	return Suspicion{From: now, End: now.Add(hold)}, pause
}

// Earlier returns the earlier of two times. Zero means none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
