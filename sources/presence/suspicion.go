package presence

import "time"

// Suspicion is a period in which missing items may come back: the source was away, or lost data. The zero value is
// none. Between Leave and Return no hold runs, since no item can come back then.
type Suspicion struct {
	From time.Time `json:"-"`              // when it began
	End  time.Time `json:"until,omitzero"` // when its holds end
	Why  string    `json:"why,omitempty"`  // the message
	Away time.Time `json:"away,omitzero"`  // when the source went away; zero while it is there
}

// Forever is a hold without an end.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Suspect starts a suspicion.
func Suspect(now time.Time, hold time.Duration, why string) Suspicion {
	return Suspicion{From: now, End: now.Add(hold), Why: why}
}

// clock returns the time that counts for holds. It stands still while the source is away.
func (s Suspicion) clock(now time.Time) time.Time {
	if s.Away.IsZero() {
		return now
	}
	return s.Away
}

// Holds reports whether the suspicion lasts.
func (s Suspicion) Holds(now time.Time) bool { return s.clock(now).Before(s.End) }

// Next returns when the suspicion ends. It is zero without a suspicion, and while the source is away.
func (s Suspicion) Next() time.Time {
	if s.Away.IsZero() {
		return s.End
	}
	return time.Time{}
}

// Deadline returns when the hold of a missing item ends; zero if it has none. An item first listed after the begin is
// not in doubt: its session is new. An item that was missing before the begin keeps the hold that it had.
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

// Leave returns the suspicion of a source that goes away.
func (s Suspicion) Leave(now time.Time) Suspicion {
	if s.Away.IsZero() {
		s.Away = now
	}
	return s
}

// AwayFor returns for how long the source has been away.
func (s Suspicion) AwayFor(now time.Time) time.Duration { return max(0, now.Sub(s.clock(now))) }

// Return returns the suspicion of a source that is back. Its end moves by the time that the source was away.
func (s Suspicion) Return(now time.Time) Suspicion {
	if !s.End.IsZero() {
		s.End = s.End.Add(s.AwayFor(now))
	}
	s.Away = time.Time{}
	return s
}

// Expire returns the suspicion, or none after its end. A source that is away stays so.
func (s Suspicion) Expire(now time.Time) Suspicion {
	if s.Holds(now) {
		return s
	}
	return Suspicion{Away: s.Away}
}

// Restored returns a suspicion that an earlier run stored. It does not last longer than hold: the clock may have been
// wrong then, or the setting may have changed.
func (s Suspicion) Restored(now time.Time, hold time.Duration) Suspicion {
	if s.End.IsZero() && s.Why != "" { // earlier versions stored no end for a source that is away
		s.End = now.Add(hold)
		s.Away = now
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

// RestoredTime returns a time that an earlier run noted, but none in the future. It does not move when the clock is set
// later: a clock that was wrong prolongs a hold once.
func RestoredTime(noted, now time.Time) time.Time { return now.Add(-max(0, now.Sub(noted))) }

// Earlier returns the earlier of two times. Zero means none.
func Earlier(first, second time.Time) time.Time {
	if first.IsZero() || !second.IsZero() && second.Before(first) {
		return second
	}
	return first
}
