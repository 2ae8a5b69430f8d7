package presence

import "time"

// Suspicion is a time when missing items may come back: the source was away, or lost data. The zero value is none.
// Between Leave and Back no hold runs, since no item can come back then.
type Suspicion struct {
	From time.Time `json:"-"`              // its begin
	End  time.Time `json:"until,omitzero"` // its end
	Why  string    `json:"why,omitempty"`  // the message
	Away time.Time `json:"away,omitzero"`  // since when the source is away; zero while it is there
}

// Forever is a hold without an end.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Suspect returns a suspicion that begins.
func Suspect(now time.Time, hold time.Duration, why string) Suspicion {
	return Suspicion{From: now, End: now.Add(hold), Why: why}
}

// clock returns the time of holds, which stands still while the source is away.
func (s Suspicion) clock(now time.Time) time.Time {
	if s.Away.IsZero() {
		return now
	}
	return s.Away
}

// Holds reports whether the suspicion lasts.
func (s Suspicion) Holds(now time.Time) bool { return s.clock(now).Before(s.End) }

// Next returns when the suspicion ends by itself; zero if there is none, or while the source is away.
func (s Suspicion) Next() time.Time {
	if s.Away.IsZero() {
		return s.End
	}
	return time.Time{}
}

// Deadline returns when the hold of a missing item ends; zero if it has none. An item first listed after the begin is
// not in doubt: its session is new. An item that was missing before has no new hold: its own goes on.
func (s Suspicion) Deadline(firstListed, missing time.Time) time.Time {
	switch {
	case !firstListed.Before(s.From):
		return time.Time{}
	case s.Away.Before(s.End) && !s.Away.IsZero():
		return Forever
	case missing.Before(s.From):
		return missing.Add(s.End.Sub(s.From))
	}
	return s.End
}

// Leave returns the suspicion while the source is away.
func (s Suspicion) Leave(now time.Time) Suspicion {
	if s.Away.IsZero() {
		s.Away = now
	}
	return s
}

// Pause returns for how long the source was away until now.
func (s Suspicion) Pause(now time.Time) time.Duration { return max(0, now.Sub(s.clock(now))) }

// Back returns the suspicion when the source is back: it lasts longer by the pause.
func (s Suspicion) Back(now time.Time) Suspicion {
	if !s.End.IsZero() {
		s.End = s.End.Add(s.Pause(now))
	}
	s.Away = time.Time{}
	return s
}

// Expire returns no suspicion if its time is over.
func (s Suspicion) Expire(now time.Time) Suspicion {
	if s.Holds(now) {
		return s
	}
	return Suspicion{Away: s.Away}
}

// Restored returns a suspicion that an earlier run stored. It does not last longer than hold: the clock may have been
// wrong then, or the setting another one.
func (s Suspicion) Restored(now time.Time, hold time.Duration) Suspicion {
	if s.End.IsZero() && s.Why != "" { // earlier versions stored no end for a source that is away
		s.End, s.Away = now.Add(hold), now
	}
	if s.End.IsZero() {
		return s
	}
	s.End = now.Add(min(hold, s.End.Sub(s.clock(now)))) // monotonic from here on
	if !s.Away.IsZero() {
		s.Away = now
	}
	return s
}

// Recalled returns a time that an earlier run noted. It is not in the future, and it does not move when the clock is
// set: a clock that was wrong prolongs a hold once.
func Recalled(noted, now time.Time) time.Time { return now.Add(-max(0, now.Sub(noted))) }

// Earlier returns the earlier of two times. Zero means none.
func Earlier(first, second time.Time) time.Time {
	if first.IsZero() || !second.IsZero() && second.Before(first) {
		return second
	}
	return first
}
