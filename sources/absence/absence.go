// Package absence decides what to make of what a registry of sessions no longer lists, as ZooKeeper, Nacos and Eureka do: who registers
// there is listed for as long as it is heard of, and a registry that was away lists less than there is until all have registered anew. It is
// pure: no I/O, no clock.
package absence

import "time"

// Known is something that a registry lists, or listed, and since when; zero if it was before this run.
type Known[T any] struct {
	Of    T
	Since time.Time
}

// Settle decides what is believed. before and now, what the registry lists, are in the order of compare, and have nothing twice. stays says of
// what is no longer listed whether it stays for now, as the registry proves nothing about it; held counts those.
func Settle[T any](before []Known[T], now []T, compare func(a, b T) int, stays func(Known[T]) bool, at time.Time) (after []Known[T], held int) {
	i := 0
	missing := func() {
		if stays(before[i]) {
			after = append(after, before[i])
			held++
		}
		i++
	}
	for _, one := range now {
		for i < len(before) && compare(before[i].Of, one) < 0 {
			missing()
		}
		since := at
		if i < len(before) && compare(before[i].Of, one) == 0 {
			since = before[i].Since
			i++
		}
		after = append(after, Known[T]{one, since})
	}
	for i < len(before) {
		missing()
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

// Away returns the suspicion as it is while the registry is away again: without an end, since nobody can register anew until it is back, when
// another one begins.
func (s Suspicion) Away(at time.Time) Suspicion {
	if at.Before(s.Until) {
		s.Until = at.Add(endless)
	}
	return s
}

// endless is longer than anything runs.
const endless = 100 * 365 * 24 * time.Hour

// Empty notes since when something has nothing left: the zero time while it has. It is kept for a while, so that who calls it finds a service
// that has nobody, and not none.
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
