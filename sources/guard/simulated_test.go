package guard

import (
	"fmt"
	"slices"
	"time"

	"tributary/resource"
)

// simulated wraps the guard of the simulation. All code that depends on its methods is here, so that another guard can replace it.
type simulated struct{ *rig }

func newSimulated(start time.Time, settings Settings) *simulated {
	s := &simulated{newRig(settings, 0, 0)}
	s.clock = start
	return s
}

// restart continues with a new guard. Then the source is read again: its objects are put, and others in the table are
// deleted.
func (s *simulated) restart(puts []*resource.Resource, deletes []resource.Key) {
	held := s.held()
	s.rig.restart(panicking{})
	deletes = slices.DeleteFunc(deletes, func(k resource.Key) bool { l, ok := held[k]; return ok && l.Desired == nil })
	s.Apply(puts, deletes)
	s.MarkRead()
}

// panicking fails a simulation, which has no test at hand.
type panicking struct{}

func (panicking) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (panicking) FailNow() {}

// due returns when the hold ends by itself; zero if there is none, or if it does not.
func (s *simulated) due() time.Time {
	if st := s.Status(); st != nil && st.EndTime != nil {
		return *st.EndTime
	}
	return time.Time{}
}

func (s *simulated) holding() bool { return s.Status() != nil }

func (s *simulated) release() { _, _, _ = s.Release("", "somebody") }
