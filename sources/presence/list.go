package presence

import (
	"cmp"
	"slices"
	"time"
)

// Item is an item that a source lists, or listed.
type Item[T any] struct {
	Value       T
	FirstListed time.Time // when it was first listed; zero if that was before this run
	Missing     time.Time // when it went missing; zero while it is listed
}

// State is the state of an item in a source. If an item has several, the first in this order counts.
type State int

// The states.
const (
	Listed     State = iota + 1 // it is there
	Disabled                    // it is there, but must not be called
	Unreadable                  // it may be there, in a part that cannot be read; it stays if it was there before
	Unlisted                    // it counts as if the source did not name it
)

// Report is the state of one item in an answer.
type Report[T any] struct {
	Value T
	State State
}

// Fold returns the items after an answer. reports has the reports of the answer, in any order. If an item has several
// listed reports, the first counts. An item that is not listed is gone if its deadline is not in the future. before and
// after are sorted by compare, without duplicates. held counts the unlisted items that stay. next is when the first of
// their holds ends; zero if none does.
func Fold[T any](before []Item[T], reports []Report[T], compare func(a, b T) int,
	deadline func(Item[T]) time.Time, now time.Time,
) (after []Item[T], held int, next time.Time) {
	reports = slices.Clone(reports)
	slices.SortStableFunc(reports, func(a, b Report[T]) int {
		return cmp.Or(compare(a.Value, b.Value), cmp.Compare(a.State, b.State))
	})
	reports = slices.CompactFunc(reports, func(a, b Report[T]) bool { return compare(a.Value, b.Value) == 0 })
	unlisted := func(item Item[T], state State) {
		end := Forever
		switch state {
		case Disabled:
			return
		case Unreadable:
			item.Missing = time.Time{}
		default:
			if item.Missing.IsZero() {
				item.Missing = now
			}
			end = deadline(item)
		}
		if !now.Before(end) {
			return
		}
		after = append(after, item)
		held++
		if end.Before(Forever) {
			next = Earlier(next, end)
		}
	}
	for _, report := range reports {
		for len(before) > 0 && compare(before[0].Value, report.Value) < 0 {
			unlisted(before[0], Unlisted)
			before = before[1:]
		}
		var previous *Item[T]
		if len(before) > 0 && compare(before[0].Value, report.Value) == 0 {
			previous = &before[0]
			before = before[1:]
		}
		switch {
		case report.State == Listed && previous == nil:
			after = append(after, Item[T]{Value: report.Value, FirstListed: now})
		case report.State == Listed:
			after = append(after, Item[T]{Value: report.Value, FirstListed: previous.FirstListed})
		case previous != nil:
			unlisted(*previous, report.State)
		}
	}
	for _, item := range before {
		unlisted(item, Unlisted)
	}
	return after, held, next
}

// Postpone moves the times at which items went missing.
func Postpone[T any](items []Item[T], pause time.Duration) {
	for index := range items {
		if !items[index].Missing.IsZero() {
			items[index].Missing = items[index].Missing.Add(pause)
		}
	}
}
