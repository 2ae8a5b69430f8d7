package xds

import "time"

// again is when a client is sent once more what it was sent in a response that it rejected.
//
// Who rejects a response has nothing of it, as far as the protocol goes, and is sent nothing of it anew while all of that is as it was: it would say the same. When
// the client has taken something of it as it is now, that may have been what was wrong, and the rest is sent once more. If that is rejected as well, it waits for
// longer each time: others than one that is wrong may change often.
type again struct {
	due   bool
	after time.Time
	tries int // since nothing was in doubt
}

const (
	firstAgain = 10 * time.Second // doubled with each try
	lastAgain  = 10 * time.Minute
)

// took notes that the client took a response, and whether something of what it had rejected is otherwise now, and whether something is still in doubt.
func (a *again) took(otherwise, doubt bool) {
	switch {
	case !doubt:
		*a = again{}
	case otherwise:
		a.due = true
	}
}

// sendAgain has the client be sent once more what is in doubt.
func (s *subscription) sendAgain(now time.Time) {
	s.again.due = false
	s.again.after = now.Add(min(firstAgain<<min(s.again.tries, 10), lastAgain))
	s.again.tries++
	for _, d := range s.verdict.doubts(s.has.at, &s.wants) {
		switch {
		case s.has.at.get(d.name) != nil:
			s.has.renew(d.name)
		case s.delta && !s.aliases:
			s.has.owe(d.name) // that it is gone
			s.verdict.tellGone(d.name)
		}
	}
}

// tryAgain has clients be sent once more what is in doubt, if it is time for that.
func (s *stream) tryAgain(now time.Time) {
	for _, sub := range s.subs {
		if sub.again.due && s.mayGo(sub, now) && !s.lookAgain(sub.again.after.Sub(now)) {
			sub.sendAgain(now)
		}
	}
}
